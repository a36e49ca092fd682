//! What is still needed at each instruction, and so what is free to use.
//!
//! Everything is taken for needed unless it is certain that it is not. Two things that conventions alone would get
//! wrong: an exception may take any call to a landing pad, here or in a caller; and a compiler that sees a callee may
//! keep a value in a register that the callee does not touch, convention or not. GCC does that from `-O2` on
//! (`-fipa-ra`): in redis-server, bash and libc about one direct call in a thousand is followed by a read of `r11`. So
//! at a function's entry and at its returns only those registers are free that the function itself overwrites.

use alloc::vec;
use alloc::vec::Vec;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind,
};

use crate::effects::{Effects, number};
use crate::{Call, Convention, ExitKind, FlagSet, Graph, Register, RegisterSet};

/// What a System V function must leave as it was; the stack pointer too.
pub(crate) const CALLEE_SAVED: RegisterSet = RegisterSet::of(&[
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
]);

/// Where a System V function may look for arguments, with the count of vector registers and the static chain.
const ARGUMENTS: RegisterSet = RegisterSet::of(&[
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::RAX,
    Register::R10,
    Register::RSP,
]);

/// Where a System V function leaves what it returns. That LLVM has a third register for it is not in the standard.
const RESULTS: RegisterSet = RegisterSet::of(&[Register::RAX, Register::RDX, Register::RCX]);

/// Where the unwinder leaves what it caught.
const CAUGHT: RegisterSet = RegisterSet::of(&[Register::RAX, Register::RDX]);

/// Registers that Go lets every function use for anything, and that nothing is passed in.
const GO_SCRATCH: RegisterSet = RegisterSet::of(&[Register::R12, Register::R13]);

/// What is needed at a point. Everything else may be changed there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Registers.
    pub registers: RegisterSet,
    /// Flags.
    pub flags: FlagSet,
}

impl Live {
    /// Nothing is known, so everything is needed.
    pub const ALL: Self = Self { registers: RegisterSet::ALL, flags: FlagSet::ALL };
    const NONE: Self = Self { registers: RegisterSet::NONE, flags: FlagSet::NONE };

    fn or(self, other: Self) -> Self {
        Self { registers: self.registers | other.registers, flags: self.flags | other.flags }
    }

    /// What is needed before something with these effects, if this is needed after it.
    fn before(self, effects: &Effects) -> Self {
        Self {
            registers: self.registers & !effects.kills | effects.reads,
            flags: self.flags & !effects.kills_flags | effects.reads_flags,
        }
    }
}

/// What is needed at each instruction of a function.
#[derive(Clone, Debug)]
pub struct Liveness<'a> {
    graph: &'a Graph,
    convention: Convention,
    /// What is needed after each block.
    ends: Vec<Live>,
    /// What landing pads need: any call may lead there.
    unwinding: Live,
    /// What returning leaves free.
    returning: Live,
}

impl<'a> Liveness<'a> {
    /// Works it out for a whole function.
    pub fn of(graph: &'a Graph, convention: Convention) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let mut liveness = Self {
            graph,
            convention,
            ends: vec![Live::NONE; graph.blocks.len()],
            unwinding: Live::NONE,
            returning: Live::ALL,
        };
        liveness.returning = liveness.at_return(&mut factory);
        let mut starts = vec![Live::NONE; graph.blocks.len()];
        let fixed: Vec<Live> =
            (0..graph.blocks.len()).map(|block| liveness.at_exit(block)).collect();
        let mut pending: Vec<usize> = (0..graph.blocks.len()).collect();
        let mut queued = vec![true; graph.blocks.len()];
        while let Some(block) = pending.pop() {
            queued[block] = false;
            let end = graph
                .successors(block)
                .iter()
                .fold(fixed[block], |live, edge| live.or(starts[edge.to]));
            liveness.ends[block] = end;
            let start = liveness.through(block, 0, &mut factory);
            if start == starts[block] {
                continue;
            }
            starts[block] = start;
            let mut queue = |block: usize| {
                if !core::mem::replace(&mut queued[block], true) {
                    pending.push(block);
                }
            };
            graph.predecessors(block).for_each(|edge| queue(edge.from));
            if graph.landing_pads.binary_search(&block).is_ok() {
                let needed = Live { registers: start.registers & !CAUGHT, flags: FlagSet::NONE };
                let before = liveness.unwinding;
                liveness.unwinding = before.or(needed);
                if liveness.unwinding != before {
                    graph.calls.iter().for_each(|call| queue(call.block));
                }
            }
        }
        liveness
    }

    /// What is needed just before the instruction at an address; everything if there is no such instruction.
    pub fn before(&self, address: u64) -> Live {
        self.at(address, 0)
    }

    /// What is needed just after the instruction at an address has run and control goes on or leaves.
    pub fn after(&self, address: u64) -> Live {
        self.at(address, 1)
    }

    /// Whether a register is free just before the instruction at an address.
    pub fn is_free(&self, address: u64, register: Register) -> bool {
        !self.before(address).registers.contains(register)
    }

    /// What is needed before each instruction of a block, and at last what is needed after it.
    pub fn of_block(&self, block: usize) -> Vec<Live> {
        let mut factory = InstructionInfoFactory::new();
        let mut live = self.ends[block];
        let mut found = vec![live];
        for instruction in self.graph.instructions(block).iter().rev() {
            live = self.step(live, instruction, &mut factory);
            found.push(live);
        }
        found.reverse();
        found
    }

    fn at(&self, address: u64, skip: usize) -> Live {
        let Some(block) = self.graph.block_of(address) else { return Live::ALL };
        let instructions = self.graph.instructions(block);
        match instructions.iter().position(|instruction| instruction.ip() == address) {
            Some(index) => self.through(block, index + skip, &mut InstructionInfoFactory::new()),
            None => Live::ALL,
        }
    }

    /// What is needed before an instruction of a block.
    fn through(&self, block: usize, index: usize, factory: &mut InstructionInfoFactory) -> Live {
        let instructions = &self.graph.instructions(block)[index..];
        instructions
            .iter()
            .rev()
            .fold(self.ends[block], |live, instruction| self.step(live, instruction, factory))
    }

    /// What is needed before an instruction, if this is needed after it.
    fn step(
        &self,
        after: Live,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> Live {
        if let Some(call) = self.call_at(instruction) {
            return self.before_call(after, call, instruction, factory);
        }
        let mut effects = Effects::of(instruction, factory);
        if instruction.code() == Code::Syscall && !after.registers.contains(Register::R11) {
            // The kernel leaves a copy of the flags there, which nobody looks at.
            effects.reads_flags = FlagSet::NONE;
        }
        after.before(&effects)
    }

    fn call_at(&self, instruction: &Instruction) -> Option<&Call> {
        if !matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return None;
        }
        let index =
            self.graph.calls.binary_search_by_key(&instruction.ip(), |call| call.address).ok()?;
        Some(&self.graph.calls[index])
    }

    fn before_call(
        &self,
        after: Live,
        call: &Call,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> Live {
        let after = after.or(self.unwinding);
        let own = Effects::of(instruction, factory);
        match self.callee_convention(call) {
            Convention::SystemV => {
                // Of what callees may change all but r11 may hold arguments. A callee that its caller's compiler saw
                // may leave r11 alone, so that what follows a direct call may still need it.
                let external =
                    call.target.is_none() || call.callee.is_some_and(|callee| callee.external);
                let kept = if external { CALLEE_SAVED } else { CALLEE_SAVED.with(Register::R11) };
                Live {
                    registers: after.registers & kept | ARGUMENTS | CALLEE_SAVED | own.reads,
                    flags: FlagSet::DF,
                }
            }
            // Some callees of Go's preserve what the convention would let them change.
            Convention::Go => {
                Live { registers: after.registers | !GO_SCRATCH | own.reads, flags: FlagSet::ALL }
            }
            Convention::Unknown => Live::ALL,
        }
    }

    /// The convention that holds for a call: only if both sides are known to follow it.
    fn callee_convention(&self, call: &Call) -> Convention {
        let callee = match (call.target, call.callee) {
            (_, Some(callee)) => callee.convention,
            // A pointer leads to something that the function's compiler knows how to call.
            (None, None) => self.convention,
            (Some(_), None) => Convention::Unknown,
        };
        if callee == self.convention { callee } else { Convention::Unknown }
    }

    fn at_return(&self, factory: &mut InstructionInfoFactory) -> Live {
        match self.convention {
            // What returns to the function's own middle may return to anything.
            _ if self.graph.calls_itself_inside => Live::ALL,
            Convention::SystemV => {
                // A register that the function never touches may be in use by a caller whose compiler knew that.
                let touched = self.touched(factory) & !self.restored(factory);
                let registers = !touched | RESULTS | CALLEE_SAVED;
                Live { registers, flags: FlagSet::DF }
            }
            Convention::Go => Live { registers: !GO_SCRATCH, flags: FlagSet::ALL },
            Convention::Unknown => Live::ALL,
        }
    }

    /// Registers that the function overwrites somewhere, so that no caller can rely on them.
    fn touched(&self, factory: &mut InstructionInfoFactory) -> RegisterSet {
        let strangers = self.graph.calls.iter().any(|call| {
            let external =
                call.target.is_none() || call.callee.is_some_and(|callee| callee.external);
            external && self.callee_convention(call) == Convention::SystemV
        });
        if strangers {
            return !CALLEE_SAVED;
        }
        (0..self.graph.blocks.len())
            .flat_map(|block| self.graph.instructions(block))
            .fold(RegisterSet::NONE, |set, instruction| {
                set | Effects::of(instruction, factory).writes
            })
    }

    /// Registers that the function keeps on the stack from its entry on and takes back before it returns: some functions
    /// promise more than the convention asks.
    fn restored(&self, factory: &mut InstructionInfoFactory) -> RegisterSet {
        let graph = self.graph;
        let moved = |instruction: &Instruction, mnemonic: Mnemonic| {
            (instruction.mnemonic() == mnemonic && instruction.op0_kind() == OpKind::Register)
                .then(|| number(instruction.op0_register()))
                .flatten()
        };
        let mut kept = RegisterSet::NONE;
        let mut written = RegisterSet::NONE;
        for &entry in &graph.entries {
            for instruction in graph.instructions(entry) {
                match moved(instruction, Mnemonic::Push) {
                    Some(register) if !written.contains(register) => kept = kept.with(register),
                    _ => written = written | Effects::of(instruction, factory).writes,
                }
            }
        }
        let popped = graph
            .exits
            .iter()
            .flat_map(|exit| graph.instructions(exit.block))
            .filter_map(|instruction| moved(instruction, Mnemonic::Pop))
            .fold(RegisterSet::NONE, RegisterSet::with);
        kept & popped
    }

    /// What is needed by whoever control goes to when it leaves at the end of a block.
    fn at_exit(&self, block: usize) -> Live {
        let graph = self.graph;
        let last = graph.last(block).ip();
        let mut live = if graph.is_lost(block) { Live::ALL } else { Live::NONE };
        let first = graph.exits.partition_point(|exit| exit.address < last);
        for exit in graph.exits[first..].iter().take_while(|exit| exit.address == last) {
            live = live.or(match exit.kind {
                ExitKind::Return => self.returning,
                // The call itself says what it needs.
                ExitKind::NoReturnCall => Live::NONE,
                ExitKind::TailJump { target, .. } => {
                    let convention = match (target, exit.callee) {
                        (_, Some(callee)) => callee.convention,
                        (None, None) => self.convention,
                        (Some(_), None) => Convention::Unknown,
                    };
                    self.at_tail_jump(convention)
                }
                ExitKind::FallsOff { .. } | ExitKind::Halt => Live::ALL,
            });
        }
        live
    }

    /// Like a call whose result is returned.
    fn at_tail_jump(&self, convention: Convention) -> Live {
        match convention {
            Convention::SystemV if convention == self.convention => {
                self.returning.or(Live { registers: ARGUMENTS, flags: FlagSet::NONE })
            }
            _ => Live::ALL,
        }
    }
}

/// What is needed at a function's entry, or before any instruction if the convention is not known, as far as a short look
/// at the code there tells: it follows both sides of each branch for `limit` instructions in all, and takes for needed
/// what it has not seen overwritten by then. `bytes` begin at `start`.
pub fn live_at_entry(
    (bytes, start): (&[u8], u64),
    address: u64,
    convention: Convention,
    limit: usize,
) -> Live {
    let mut live = Live::NONE;
    let mut factory = InstructionInfoFactory::new();
    // Where to go on, with what has been overwritten on the way there.
    let mut pending = vec![(address, Live::NONE)];
    // Where it has been, likewise.
    let mut seen: Vec<(u64, Live)> = Vec::new();
    let mut left = limit;
    while let Some((mut at, mut written)) = pending.pop() {
        loop {
            let is_known =
                |(place, less): &(u64, Live)| *place == at && less.without(written) == Live::NONE;
            if seen.iter().any(is_known) {
                // With less overwritten, so nothing more is needed there.
                break;
            }
            seen.push((at, written));
            let offset = usize::try_from(at.wrapping_sub(start)).unwrap_or(usize::MAX);
            let rest = bytes.get(offset..).unwrap_or_default();
            let instruction = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
            if left == 0 || instruction.is_invalid() {
                live = live.or(unseen(convention).without(written));
                break;
            }
            left -= 1;
            let effects = Effects::of(&instruction, &mut factory);
            let read = Live { registers: effects.reads, flags: effects.reads_flags };
            live = live.or(read.without(written));
            written = written.or(Live { registers: effects.kills, flags: effects.kills_flags });
            let near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::UnconditionalBranch if near => {
                    at = instruction.near_branch64();
                    continue;
                }
                FlowControl::ConditionalBranch if near => {
                    pending.push((instruction.near_branch64(), written));
                }
                _ => {
                    live = live.or(unseen(convention).without(written));
                    break;
                }
            }
            at = instruction.next_ip();
        }
    }
    live
}

/// What code that was not looked at may need of what a function was entered with.
fn unseen(convention: Convention) -> Live {
    match convention {
        // No caller passes anything in the flags that arithmetic sets.
        Convention::SystemV => Live { flags: FlagSet::DF, ..Live::ALL },
        _ => Live::ALL,
    }
}

impl Live {
    fn without(self, other: Self) -> Self {
        Self { registers: self.registers & !other.registers, flags: self.flags & !other.flags }
    }
}

#[cfg(test)]
mod tests;
