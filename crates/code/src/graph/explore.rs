//! Decodes what can be reached.

use alloc::vec;
use alloc::vec::Vec;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::{Callee, Function, Program};

/// What happens after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Jump(u64),
    /// To the target or to the next instruction.
    Branch(u64),
    Call {
        target: Option<u64>,
        callee: Option<Callee>,
        returns: bool,
    },
    Return,
    IndirectJump,
    Halt,
}

pub(super) struct Step {
    pub(super) instruction: Instruction,
    pub(super) flow: Flow,
}

/// All instructions found so far.
pub(super) struct Explorer<'a> {
    pub(super) program: &'a dyn Program,
    pub(super) function: &'a Function,
    pub(super) steps: Vec<Step>,
    /// For each byte of the function the instruction that starts there, plus one.
    starts: Vec<u32>,
    /// Bytes that are part of an instruction.
    covered: Vec<bool>,
}

impl<'a> Explorer<'a> {
    pub(super) fn new(program: &'a dyn Program, function: &'a Function) -> Self {
        let size: u64 = function.ranges.iter().map(|range| range.end - range.start).sum();
        Self {
            program,
            function,
            steps: Vec::new(),
            starts: vec![0; size as usize],
            covered: vec![false; size as usize],
        }
    }

    /// The place of an address in arrays with one element for each byte of the function.
    pub(super) fn offset(&self, address: u64) -> Option<usize> {
        let mut before = 0;
        for range in &self.function.ranges {
            if range.contains(&address) {
                return Some((before + address - range.start) as usize);
            }
            before += range.end - range.start;
        }
        None
    }

    /// How many bytes the function has.
    pub(super) fn size(&self) -> usize {
        self.starts.len()
    }

    /// The instruction that starts at an address.
    pub(super) fn step_at(&self, address: u64) -> Option<usize> {
        (self.starts[self.offset(address)?] as usize).checked_sub(1)
    }

    /// Whether an address lies behind the first byte of a known instruction, where no instruction is known to start.
    pub(super) fn is_inside(&self, address: u64) -> bool {
        self.offset(address).is_some_and(|offset| self.covered[offset] && self.starts[offset] == 0)
    }

    /// Whether what is at an address looks like code that fits to what is known: for guesses.
    pub(super) fn is_plausible(&self, mut address: u64) -> bool {
        const ENOUGH: usize = 32;
        for _ in 0..ENOUGH {
            if self.step_at(address).is_some() {
                return true;
            }
            let Some(instruction) = self.decode(address).filter(|_| !self.is_inside(address))
            else {
                return false;
            };
            match self.flow(&instruction) {
                Flow::Jump(target) | Flow::Branch(target) if self.is_inside(target) => {
                    return false;
                }
                Flow::Next | Flow::Branch(_) | Flow::Call { returns: true, .. } => {}
                _ => return true,
            }
            address = instruction.next_ip();
        }
        true
    }

    /// What a linkage stub does behind its jump until the dynamic linker has been asked: it pushes a number and jumps
    /// on. Only if it is in the function.
    pub(super) fn lazy_part(&self, address: u64) -> Option<u64> {
        let push = self.decode(address).filter(|push| push.code() == Code::Pushq_imm32)?;
        let jump = self.decode(push.next_ip())?;
        matches!(self.flow(&jump), Flow::Jump(_)).then_some(address)
    }

    /// Decodes everything that can be reached from some addresses without indirect jumps.
    pub(super) fn follow(&mut self, addresses: impl IntoIterator<Item = u64>) {
        let mut pending: Vec<u64> = addresses.into_iter().collect();
        while let Some(address) = pending.pop() {
            if let Some(offset) = self.offset(address) {
                self.follow_run(address, offset, &mut pending);
            }
        }
    }

    /// Decodes one instruction after the other, up to one that is known or where control goes elsewhere.
    fn follow_run(&mut self, address: u64, mut offset: usize, pending: &mut Vec<u64>) {
        let program = self.program;
        let bytes = program.bytes(address);
        let limit = self.rest_of_range(address).min(bytes.len());
        let mut decoder = Decoder::with_ip(64, &bytes[..limit], address, DecoderOptions::NONE);
        while decoder.can_decode() && self.starts[offset] == 0 {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return;
            }
            let flow = self.flow(&instruction);
            self.steps.push(Step { instruction, flow });
            self.starts[offset] = self.steps.len() as u32;
            self.covered[offset..offset + instruction.len()].fill(true);
            offset += instruction.len();
            match flow {
                Flow::Next => {}
                Flow::Branch(target) => pending.push(target),
                Flow::Jump(target) => return pending.push(target),
                Flow::Call { target, returns, .. } => {
                    pending.extend(target);
                    if !returns {
                        return;
                    }
                }
                Flow::Return | Flow::IndirectJump | Flow::Halt => return,
            }
        }
    }

    /// How many bytes of its range follow from an address on.
    fn rest_of_range(&self, address: u64) -> usize {
        let range = self.function.ranges.iter().find(|range| range.contains(&address));
        range.map_or(0, |range| (range.end - address) as usize)
    }

    /// The instruction at an address, if all of it is in the function.
    fn decode(&self, address: u64) -> Option<Instruction> {
        let bytes = self.program.bytes(address);
        let limit = self.rest_of_range(address).min(bytes.len()).min(15);
        let instruction =
            Decoder::with_ip(64, &bytes[..limit], address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    fn flow(&self, instruction: &Instruction) -> Flow {
        let near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch if near => Flow::Jump(instruction.near_branch64()),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend if near => {
                Flow::Branch(instruction.near_branch64())
            }
            FlowControl::Call if near => {
                let target = instruction.near_branch64();
                if target == instruction.next_ip() {
                    // How position-independent code of old asks where it is.
                    return Flow::Next;
                }
                self.call(instruction, Some(target), self.program.callee(target))
            }
            FlowControl::IndirectCall => {
                let callee = (instruction.op0_kind() == OpKind::Memory
                    && instruction.is_ip_rel_memory_operand())
                .then(|| self.program.callee_through(instruction.ip_rel_memory_address()))
                .flatten();
                self.call(instruction, None, callee)
            }
            FlowControl::Return => Flow::Return,
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::IndirectJump,
            FlowControl::Exception => Flow::Halt,
            FlowControl::Interrupt if matches!(instruction.code(), Code::Int3 | Code::Int1) => {
                Flow::Halt
            }
            _ if instruction.code() == Code::Hlt => Flow::Halt,
            _ => Flow::Next,
        }
    }

    /// A call that is followed by nothing but filling does not return, whatever is known of the callee: compilers put
    /// no code behind such calls.
    fn call(&self, instruction: &Instruction, target: Option<u64>, callee: Option<Callee>) -> Flow {
        let next = instruction.next_ip();
        let returns = callee.is_none_or(|callee| callee.returns)
            && self
                .function
                .ranges
                .iter()
                .find(|range| range.contains(&instruction.ip()))
                .is_some_and(|range| !self.is_filling(next, range.end));
        Flow::Call { target, callee, returns }
    }

    /// Whether there are only no-ops from an address to another.
    fn is_filling(&self, from: u64, to: u64) -> bool {
        let mut address = from;
        while address < to {
            match self.decode(address) {
                Some(instruction) if is_filling(&instruction) => address = instruction.next_ip(),
                _ => return false,
            }
        }
        true
    }
}

/// Whether compilers and assemblers use an instruction to fill space.
pub(super) fn is_filling(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic;
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Int3 => true,
        // Old ways to do nothing in two bytes or more.
        Mnemonic::Xchg | Mnemonic::Mov => {
            instruction.op_count() == 2
                && instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register()
                && instruction.op0_register().size() == 8
        }
        Mnemonic::Lea => {
            instruction.op0_register() == instruction.memory_base()
                && instruction.memory_index() == iced_x86::Register::None
                && instruction.memory_displacement64() == 0
        }
        _ => false,
    }
}
