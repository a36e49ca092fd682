//! From the program's code to its clone, a block at a time: bytes in, bytes and their description out.
//!
//! A block is a run of instructions with one way in. Branches out of its middle leave it and calls
//! come back to it; it ends where nothing falls through, where the next instruction has been
//! translated already, or when it is long enough.

mod runs;
mod segment;
mod sequence;
mod traced;

use crate::clone::arena::Arena;
use crate::clone::coprocessor::is_saving;
use crate::clone::emit::{self, Out, RAX, RCX};
use crate::clone::halt::{self, Halts};
use crate::clone::map::Map;
use crate::clone::record::{at, at_counter, kept_names};
use crate::clone::recording::{Recorder, Run, are_flags_free_at};
use crate::clone::sequences::{Descriptor, Lead, Sequence, Sequences};
use crate::clone::weaving::Weaving;
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory,
    OpKind, Register,
};
use weft_abi::recording::ending;
use weft_abi::weaving;
use weft_snippet::Compiled;

pub use crate::clone::pieces::{Cold, INDIRECT_ADDRESS, Kind, stub, thunk};
use segment::{names_gs_base, names_gs_silently, uses_gs};
use sequence::lead;
use traced::Traced;

/// The most instructions of a block.
const LONGEST: usize = 96;
/// The most bytes of an instruction.
pub const LONGEST_INSTRUCTION: usize = 15;
/// The most bytes that an instruction takes in the clone, and in its cold part.
pub const MOST_HOT: usize = 128;
pub const MOST_COLD: usize = 128;
/// The most bytes that a block takes.
pub const MOST: usize = LONGEST * MOST_HOT;
/// The most bytes that are woven before one instruction, in the clone and in its cold part.
const MOST_WOVEN: usize = MOST / 2;

/// A place of the program that got code.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub address: u64,
    /// Where its code is.
    pub body: u64,
    /// Where indirect branches enter it; 0 if they cannot.
    pub entry: u64,
    /// What counts those; 0 if nothing does.
    pub counter: u32,
}

impl Start {
    fn new(address: u64, body: u64) -> Self {
        Self { address, body, entry: 0, counter: 0 }
    }
}

/// A branch that is tied to a block.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Where its distance is.
    pub site: u64,
    /// Where it leads in the program.
    pub target: u64,
}

/// In the place of a branch that is to be tied: a jump that goes once, and then does nothing.
pub const ONE_SHOT: u64 = 1 << 63;

/// What was translated.
#[derive(Debug, Default)]
pub struct Block {
    pub start: u64,
    pub end: u64,
    pub code: u64,
    /// Two bytes each: kind and length of the original; length of the copy.
    pub records: Vec<u8>,
    pub starts: Vec<Start>,
    /// Branches that were tied to other blocks when they were written.
    pub links: Vec<Link>,
    /// Branches that were tied to this one.
    pub loops: Vec<Link>,
    /// What may be descriptors of restartable sequences.
    pub leads: Vec<Lead>,
}

/// Where the program's bytes are, and what they are.
pub struct Source<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
}

impl Source<'_> {
    /// What can be executed from an address on, to where that ends or enough of it.
    pub fn at(address: u64, end: u64) -> Self {
        let length = (end - address).min(2048) as usize;
        // SAFETY: the program's own code, which is mapped and may be read.
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
        Self { address, bytes }
    }
}

struct Translator<'a> {
    known: Known<'a>,
    number: usize,
    arena: &'a mut Arena,
    weaving: &'a mut Weaving,
    recorder: Option<&'a mut Recorder>,
    halts: &'a Halts,
    /// The run of instructions that is being translated, if that is recorded.
    run: Option<Run>,
    /// What is traced of it, if it is.
    traced: Option<Traced>,
    /// What the stub of the next branch is marked with.
    mark: u64,
    out: Out,
    block: Block,
    /// Where each instruction so far went.
    places: Vec<(u64, u64)>,
    extent: Extent,
    /// Whether branches are tied to blocks.
    ties: bool,
    /// Whether this is the jump at a block's end.
    is_at_end: bool,
    /// The instruction that is being translated.
    address: u64,
    /// Branches to what comes later in the same sequences.
    forward: Vec<Link>,
    /// Descriptors that have no length yet, and where their sequences end.
    armed: Vec<(u64, u64)>,
    /// Where the copy of the last instruction ends.
    end: u64,
}

/// In the place of an address where a function begins: the same, but reached from within the function, so
/// that it is not entered.
const INNER: u64 = 1 << 62;

/// The start of a function as it is reached from within.
pub fn inner(start: u64) -> u64 {
    start | INNER
}

/// Whether it stands for a start that is reached from within. No program has code at such an address.
pub fn is_inner(key: u64) -> bool {
    key >> 62 == 1
}

/// The address itself, where it may be one that is reached from within.
pub fn real(key: u64) -> u64 {
    if is_inner(key) { key & !INNER } else { key }
}

/// How much to translate at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As far as it goes.
    Block,
    /// One instruction, which nothing is tied to and nothing is inserted at.
    Single,
    /// The same with all that belongs to it.
    Step,
    /// Up to a branch, or to something that may change what follows; the block asks each time whether its
    /// original is what it was.
    Checked,
    /// Restartable sequences that overlap, all of them up to where they end.
    Sequences { end: u64, is_checked: bool },
}

impl Extent {
    /// Whether it is one instruction, by itself.
    fn is_single(self) -> bool {
        matches!(self, Self::Single | Self::Step)
    }

    fn is_checked(self) -> bool {
        matches!(self, Self::Checked | Self::Sequences { is_checked: true, .. })
    }
}

/// Whether what is translated is told of, and stops for a debugger: not what is not kept, and nothing is inserted where
/// the kernel may send the thread away.
fn is_recorded(extent: Extent) -> bool {
    matches!(extent, Extent::Block | Extent::Checked)
}

/// What the clone has that the program does not.
pub struct Inserts<'a> {
    pub weaving: &'a mut Weaving,
    pub recorder: Option<&'a mut Recorder>,
    pub halts: &'a Halts,
}

/// What is known of the program, and the table in which its indirect branches look.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub map: &'a Map,
    pub sequences: &'a Sequences,
    pub table: u32,
}

/// Translates the code at an address, which is to be known as `key`; nothing if there is no whole
/// instruction.
pub fn translate(
    source: &Source<'_>,
    key: u64,
    known: Known<'_>,
    (number, arena): (usize, &mut Arena),
    inserts: Inserts<'_>,
    extent: Extent,
    ties: bool,
) -> Option<Block> {
    let out = arena.hot();
    let code = out.here();
    let is_inner = key != source.address;
    let mut translator = Translator {
        known,
        number,
        arena,
        weaving: inserts.weaving,
        recorder: inserts.recorder.filter(|_| is_recorded(extent) || extent == Extent::Step),
        halts: inserts.halts,
        run: None,
        traced: None,
        mark: 0,
        out,
        block: Block { start: source.address, code, ..Block::default() },
        places: Vec::new(),
        extent,
        // What comes after is not to be tied to something that is thrown away.
        ties: ties && !extent.is_single(),
        is_at_end: false,
        address: source.address,
        forward: Vec::new(),
        armed: Vec::new(),
        end: 0,
    };
    translator.run(source, key, is_inner)?;
    let Translator { out, block, arena, .. } = translator;
    arena.take_hot(out.length);
    Some(block)
}

/// A block that leads out of the clone at an address whose code cannot be read.
pub fn refusal(address: u64, arena: &mut Arena) -> Block {
    let mut out = arena.hot();
    let code = out.here();
    emit::leave_with(&mut out, arena.gates().refused, address);
    arena.take_hot(out.length);
    let records = vec![Kind::Refused as u8 | 1, (out.here() - code) as u8];
    Block { start: address, end: address + 1, code, records, ..Block::default() }
}

impl Translator<'_> {
    fn run(&mut self, source: &Source<'_>, key: u64, is_inner: bool) -> Option<()> {
        let single = self.extent.is_single();
        let mut decoder = Decoder::with_ip(64, source.bytes, source.address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut address = source.address;
        self.block.starts.push(Start::new(key, self.out.here()));
        if self.extent.is_checked() {
            self.leave_for(self.arena.gates().check);
        }
        let most = match self.extent {
            Extent::Single | Extent::Step => 1,
            Extent::Sequences { .. } => usize::MAX,
            Extent::Block | Extent::Checked => LONGEST,
        };
        let mut number = 0;
        loop {
            // What is known as code of its own must not be a jump to itself.
            let is_start = self.is_start();
            // What is traced is written down as a whole.
            let may_end = self.traced.is_none() || single;
            if number >= most && (single || !is_start) && may_end {
                break;
            }
            if self.is_beyond(address, number) {
                break;
            }
            if number > 0
                && !is_start
                && !self.is_in_sequences(address)
                && (self.ties && self.known.map.get(address).is_some()
                    || self.out.length > MOST - MOST_WOVEN && may_end)
            {
                break;
            }
            if !decoder.can_decode() {
                if number == 0 {
                    return None;
                }
                break;
            }
            let offset = (address - source.address) as usize;
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                if decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
                    if number == 0 {
                        return None;
                    }
                    break;
                }
                // Whatever it is, the processor shall say so, at this address.
                let before = self.out.here();
                if instruction.len() == LONGEST_INSTRUCTION {
                    // What is too long is not undefined but forbidden.
                    self.out.bytes(&source.bytes[offset..offset + LONGEST_INSTRUCTION]);
                } else {
                    self.out.bytes(&[0x0f, 0x0b]);
                }
                self.record(Kind::Copied, 1, before);
                address += 1;
                self.block.end = address;
                self.end = self.out.here();
                if self.is_in_sequences(address) {
                    decoder.set_ip(address);
                    let _ = decoder.set_position(offset + 1);
                    number += 1;
                    continue;
                }
                self.end_run(source, address);
                self.finish();
                return Some(());
            }
            self.address = address;
            let body = self.out.here();
            self.lead(source, address);
            // What is entered otherwise than from within is not to be found here, and what is recorded is
            // entered only where that is known.
            if (number > 0 || !is_inner) && self.is_entered_at(address) {
                self.places.push((address, body));
            }
            let displacement = decoder.get_constant_offsets(&instruction).displacement_offset();
            let rest = &source.bytes[offset..];
            self.trace_before(rest, address);
            self.halt(&instruction);
            self.weave(weaving::BEFORE, rest, number == 0 && is_inner);
            self.arm_all(address);
            let is_keeping = self.keep_registers(&instruction);
            if let Some(lead) = lead(&instruction) {
                self.block.leads.push(lead);
            }
            let goes_on = self.instruction(&instruction, rest, displacement);
            address = instruction.next_ip();
            self.end_run_with(source, &instruction);
            self.block.end = address;
            if goes_on && is_keeping {
                self.forget_registers();
            }
            self.end = self.out.here();
            if !goes_on && !self.is_in_sequences(address) {
                self.end_run(source, address);
                self.finish();
                return Some(());
            }
            self.weave(weaving::AFTER, &rest[instruction.len()..], false);
            if self.extent == Extent::Checked && may_change_code(&instruction) {
                break;
            }
            number += 1;
        }
        if self.is_start() {
            self.block.starts.pop();
        }
        self.end_run(source, address);
        let before = self.out.here();
        self.is_at_end = true;
        self.branch(&[0xe9], address);
        self.record(Kind::Onward, 0, before);
        self.finish();
        Some(())
    }

    /// Writes what leaves the clone for a debugger before an instruction, if that is wanted.
    fn halt(&mut self, instruction: &Instruction) {
        if !is_recorded(self.extent) {
            return;
        }
        let gates = self.arena.gates();
        if self.halts.contains(self.address) {
            self.leave_for(gates.halt);
        }
        let before = self.out.here();
        if let Some(look) = self.halts.look(&mut self.out, instruction) {
            self.record_snippet(before);
            self.leave_for(gates.watch);
            look.end(&self.out);
        }
    }

    /// Leaves the clone with the address of the instruction that is being translated.
    fn leave_for(&mut self, gate: u64) {
        let before = self.out.here();
        emit::leave_with(&mut self.out, gate, self.address);
        // As far as the program's state goes, it is a system call that was not made yet.
        self.record(Kind::SystemCall, 0, before);
    }

    /// Whether something is woven at the instruction that is being translated. Not in restartable sequences:
    /// the kernel may send the thread away in the middle of a snippet.
    fn is_woven(&self, way: u8) -> bool {
        self.extent != Extent::Single
            && !self.is_in_sequences(self.address)
            && self.weaving.is_at(self.address, way)
    }

    /// Writes what is woven here, before an instruction or after it; `rest` is what follows.
    fn weave(&mut self, way: u8, rest: &[u8], is_inner: bool) {
        if !self.is_woven(way) {
            return;
        }
        let before = self.out.here();
        let place = (self.number, &mut *self.arena, self.known.table);
        let follows = if way == weaving::AFTER { self.block.end } else { self.address };
        let code = self.weaving.code((self.address, way), (follows, rest), is_inner, place);
        write_snippets(&code, self.arena, &mut self.out);
        self.record_snippet(before);
    }

    /// Says of all that was written since then that it is not the program's, however long it is.
    fn record_snippet(&mut self, mut before: u64) {
        while before < self.out.here() {
            let length = (self.out.here() - before).min(u8::MAX.into());
            self.block.records.extend_from_slice(&[Kind::Snippet as u8, length as u8]);
            before += length;
        }
    }

    /// Whether what comes next is known as code of its own.
    fn is_start(&self) -> bool {
        self.block.starts.iter().any(|start| start.body == self.out.here())
    }

    fn record(&mut self, kind: Kind, length: usize, before: u64) {
        let copied = (self.out.here() - before) as u8;
        self.block.records.extend_from_slice(&[kind as u8 | length as u8, copied]);
    }

    /// Translates an instruction, the first one of `rest`; says whether the next one may be executed after it.
    fn instruction(&mut self, instruction: &Instruction, rest: &[u8], displacement: usize) -> bool {
        let before = self.out.here();
        let length = instruction.len();
        let bytes = &rest[..length];
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => {
                let Some(kind) = self.plain(instruction, rest, displacement) else {
                    return self.refuse(instruction);
                };
                self.record(kind, length, before);
                if is_saving(instruction.code()) && !self.is_in_sequences(instruction.ip()) {
                    self.leave_for(self.arena.gates().saved);
                }
                true
            }
            FlowControl::ConditionalBranch if is_loop(instruction.code()) => {
                self.branch_out(instruction);
                // The same, to a jump of two: it reaches only 127 bytes.
                let opcode = bytes[length - 2];
                let prefix = &bytes[..length - 2];
                while (self.out.here() + prefix.len() as u64 + 5) % 64 > 60 {
                    self.out.byte(0x90);
                }
                let pads = (self.out.here() - before) as usize;
                self.out.bytes(prefix);
                self.out.bytes(&[opcode, 2, 0xeb, 5]);
                self.jump_unaligned(&[0xe9], instruction.near_branch_target());
                debug_assert_eq!((self.out.here() - before) as usize, pads + prefix.len() + 9);
                self.record(Kind::Loop, length, before);
                true
            }
            FlowControl::ConditionalBranch => {
                self.branch_out(instruction);
                // iced counts them from one, in the processor's order.
                let condition = instruction.condition_code() as u8 - 1;
                if self.counts_back(instruction) {
                    self.count_taken(condition, instruction, before);
                } else {
                    self.jump(&[0x0f, 0x80 | condition], instruction.near_branch_target());
                    self.record(Kind::Branch, length, before);
                }
                true
            }
            FlowControl::XbeginXabortXend if is_xbegin(instruction.code()) => {
                self.branch(&[0xc7, 0xf8], instruction.near_branch_target());
                self.record(Kind::Branch, length, before);
                true
            }
            FlowControl::XbeginXabortXend => {
                self.out.bytes(bytes);
                self.record(Kind::Copied, length, before);
                true
            }
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                let before = self.way_out(instruction, ending::JUMP).unwrap_or(before);
                self.jump(&[0xe9], instruction.near_branch_target());
                self.record(Kind::Branch, length, before);
                false
            }
            FlowControl::Call if instruction.is_call_near() => {
                let before = self.way_out(instruction, ending::CALL).unwrap_or(before);
                self.call(instruction.near_branch_target(), next);
                self.record(Kind::Call, length, before);
                self.come_back(next)
            }
            FlowControl::Call if is_system_call(instruction.code()) => {
                emit::leave_with(&mut self.out, self.arena.gates().system_call, next);
                self.record(Kind::SystemCall, length, before);
                self.block.starts.push(Start::new(next, self.out.here()));
                true
            }
            FlowControl::Return if is_near_return(instruction.code()) => {
                let popped = if instruction.op_count() > 0 { instruction.immediate16() } else { 0 };
                if self.extent.is_single() {
                    emit::step_out(&mut self.out, popped);
                    self.record(Kind::Return, length, before);
                    // It is on its way.
                    let before = self.out.here();
                    self.out.jump(self.arena.gates().unknown);
                    self.record(Kind::Entry, 0, before);
                    return false;
                }
                emit::ret(&mut self.out, self.known.table, popped);
                self.record(Kind::Return, length, before);
                false
            }
            FlowControl::IndirectBranch if is_near_indirect(instruction) => {
                self.out.save(RCX, at!(rcx));
                self.load_target(instruction, bytes);
                self.out.save(RAX, at!(rax));
                match self.extent.is_single() {
                    true => emit::through_gate(&mut self.out, self.arena.gates().unknown),
                    false => emit::through_table(&mut self.out, self.known.table),
                }
                let kind = if uses_gs(instruction) { Kind::JumpSegment } else { Kind::Jump };
                self.record(kind, length, before);
                false
            }
            FlowControl::IndirectCall if is_near_indirect(instruction) => {
                self.out.save(RCX, at!(rcx));
                self.load_target(instruction, bytes);
                self.out.save(RAX, at!(rax));
                let mut thunk = self.arena.cold(emit::RETURN_ADDRESS + 10, Cold::CallIndirectThunk);
                emit::return_address(&mut thunk, next);
                match self.extent.is_single() {
                    true => emit::through_gate(&mut thunk, self.arena.gates().unknown),
                    false => emit::through_table(&mut thunk, self.known.table),
                }
                self.out.byte(0xe8);
                self.out.distance(thunk.rx);
                let by_gs = uses_gs(instruction);
                let kind = if by_gs { Kind::CallSegment } else { Kind::CallIndirect };
                self.record(kind, length, before);
                self.come_back(next)
            }
            // Far transfers and returns from interrupts: where they go is not known.
            _ => self.refuse(instruction),
        }
    }

    /// Has the program go on natively at an instruction, behind which nothing is translated.
    fn refuse(&mut self, instruction: &Instruction) -> bool {
        let before = self.out.here();
        emit::leave_with(&mut self.out, self.arena.gates().refused, instruction.ip());
        self.record(Kind::Refused, instruction.len(), before);
        false
    }

    /// Where a called function returns to: right behind the call in the clone, so that the processor
    /// foresees it.
    fn come_back(&mut self, address: u64) -> bool {
        let entry = self.out.here();
        emit::entry(&mut self.out, address, self.arena.gates().wrong);
        self.record(Kind::Entry, 0, entry);
        if halt::is_stack_seen() {
            // Who looks at the stack, and at what nobody has written there, is to find what he would natively. There
            // is nothing else that could be needed: the call has been there.
            let before = self.out.here();
            emit::address_below(&mut self.out, address);
            self.record(Kind::Snippet, 0, before);
        }
        let counter = self.count_return(address);
        self.block.starts.push(Start { address, body: self.out.here(), entry, counter });
        true
    }

    fn call(&mut self, target: u64, next: u64) {
        let mut thunk = self.arena.cold(thunk::SIZE, Cold::CallThunk);
        thunk.save(RAX, at!(far));
        emit::return_address(&mut thunk, next);
        thunk.load(RAX, at!(far));
        thunk.align_distance(1);
        core::mem::swap(&mut self.out, &mut thunk);
        self.branch_unaligned(&[0xe9], target);
        core::mem::swap(&mut self.out, &mut thunk);
        // For those who have to know where a thread is that is here.
        while thunk.length < thunk::TARGET as usize {
            thunk.byte(0xcc);
        }
        thunk.u64(target);
        self.out.byte(0xe8);
        self.out.distance(thunk.rx);
    }

    /// A direct jump of the program's, through what is woven on its way.
    fn jump(&mut self, opcode: &[u8], target: u64) {
        self.out.align_distance(opcode.len() as u64);
        self.jump_unaligned(opcode, target);
    }

    fn jump_unaligned(&mut self, opcode: &[u8], target: u64) {
        let target = self.target_from_here(target);
        let counted = self
            .run
            .filter(|run| run.ending == ending::BRANCH && run.fall == 0 && self.is_counting());
        if !self.is_woven(weaving::TAKEN) && counted.is_none() {
            self.branch_unaligned(opcode, target);
            return;
        }
        let place = (self.number, &mut *self.arena, self.known.table);
        let way = (self.address, weaving::TAKEN);
        let code = self.weaving.code(way, (real(target), &[]), false, place);
        let length: usize = code.iter().map(Compiled::main_len).sum();
        let mut on_the_way = self.arena.cold(length + emit::COUNT + 16, Cold::Snippet);
        self.out.bytes(opcode);
        self.out.distance(on_the_way.rx);
        if let Some(run) = counted {
            emit::count(&mut on_the_way, at_counter(run.taken), are_flags_free_at(real(target)));
        }
        write_snippets(&code, self.arena, &mut on_the_way);
        core::mem::swap(&mut self.out, &mut on_the_way);
        self.branch(&[0xe9], target);
        core::mem::swap(&mut self.out, &mut on_the_way);
    }

    /// What a jump of this instruction leads to: if a function begins there and this is within it, the
    /// function is not entered by it, and if a call returns there, it is no return.
    fn target_from_here(&self, target: u64) -> u64 {
        let is_inner = self.extent != Extent::Single
            && self.weaving.is_passed(target, self.address)
            && !self.known.sequences.holds(target);
        if is_inner { inner(target) } else { target }
    }

    /// A direct branch.
    fn branch(&mut self, opcode: &[u8], target: u64) {
        self.out.align_distance(opcode.len() as u64);
        self.branch_unaligned(opcode, target);
    }

    fn branch_unaligned(&mut self, opcode: &[u8], target: u64) {
        self.out.bytes(opcode);
        let site = self.out.here();
        if self.is_in_sequences(target) {
            match self.inside(target) {
                Some(body) => {
                    self.block.loops.push(Link { site, target });
                    self.out.distance(body);
                }
                None => {
                    self.forward.push(Link { site, target });
                    self.out.u32(0);
                }
            }
            return;
        }
        if !self.ties {
            let stub = stub_for(self.arena, target, 0);
            if self.is_at_end {
                // Nothing is tied that would need this.
                self.mark_stub(stub, 1);
            }
            self.out.distance(stub);
            return;
        }
        let link = Link { site, target };
        let known = self.known.map.get(target).map(|place| place.body);
        let mark = core::mem::take(&mut self.mark);
        if mark != 0 {
            // Who takes it is to tell of it, the first time.
            let stub = stub_for(self.arena, target, site);
            self.mark_stub(stub, mark);
            self.out.distance(stub);
        } else if let Some(body) = self.inside(target) {
            self.block.loops.push(link);
            self.out.distance(body);
        } else if let Some(body) = known.filter(|&body| in_reach(site + 4, body)) {
            self.block.links.push(link);
            self.out.distance(body);
        } else {
            let stub = stub_for(self.arena, target, site);
            self.out.distance(stub);
        }
    }

    fn mark_stub(&self, stub: u64, mark: u64) {
        // SAFETY: a stub that was just written.
        unsafe { *self.arena.writable(stub + stub::FAR).cast::<u64>() = mark };
    }

    /// Where an earlier instruction of this block went, which then becomes a way into it if it may.
    fn inside(&mut self, target: u64) -> Option<u64> {
        let index = self.places.binary_search_by_key(&target, |place| place.0).ok()?;
        let body = self.places[index].1;
        // Who comes from elsewhere has to ask first whether it is what it was.
        let is_open = self.extent != Extent::Checked;
        if is_open && !self.block.starts.iter().any(|start| start.address == target) {
            self.block.starts.push(Start::new(target, body));
        }
        Some(body)
    }

    /// An instruction that does not branch; nothing has been written if it cannot be translated.
    fn plain(
        &mut self,
        instruction: &Instruction,
        rest: &[u8],
        displacement: usize,
    ) -> Option<Kind> {
        let bytes = &rest[..instruction.len()];
        if uses_gs(instruction) || names_gs_base(instruction.code()) {
            return self.by_gs(instruction);
        }
        if names_gs_silently(instruction) || loads_gs(instruction) {
            return None;
        }
        if !instruction.is_ip_rel_memory_operand() {
            match rest.first_chunk() {
                Some(front) => self.out.front(front, bytes.len()),
                None => self.out.bytes(bytes),
            }
            return Some(Kind::Copied);
        }
        let address = instruction.ip_rel_memory_address();
        let end = self.out.here() + bytes.len() as u64;
        if instruction.memory_base() == Register::RIP && in_reach(end, address) {
            self.out.bytes(&bytes[..displacement]);
            self.out.u32(address.wrapping_sub(end) as u32);
            self.out.bytes(&bytes[displacement + 4..]);
            return Some(Kind::Copied);
        }
        self.far(instruction, address)
    }

    /// An instruction whose memory is out of reach.
    fn far(&mut self, instruction: &Instruction, address: u64) -> Option<Kind> {
        let register = free_register(instruction, None);
        let mut changed = *instruction;
        point_to(&mut changed, register);
        let operation = encoded(&changed)?;
        self.out.save(register, at!(far));
        self.out.constant(register, address);
        self.out.bytes(&operation);
        self.out.load(register, at!(far));
        Some(Kind::Far)
    }

    /// Loads what an indirect branch reads into `rcx`.
    fn load_target(&mut self, instruction: &Instruction, bytes: &[u8]) {
        if uses_gs(instruction) {
            return self.load_target_by_gs(instruction);
        }
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            // mov rcx, [rip + distance], where that reaches.
            if in_reach(self.out.here() + 7, address) {
                self.out.bytes(&[0x48, 0x8b, 0x0d]);
                self.out.distance(address);
            } else {
                self.out.constant(RCX, address);
                self.out.bytes(&[0x48, 0x8b, 0x09]);
            }
            return;
        }
        // The same operand for `mov rcx, ...`: the opcode and one field differ.
        let mut at = 0;
        while matches!(
            bytes[at],
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf2 | 0xf3
        ) {
            if matches!(bytes[at], 0x64 | 0x67) {
                self.out.byte(bytes[at]);
            }
            at += 1;
        }
        let mut rex = 0x48;
        if bytes[at] & 0xf0 == 0x40 {
            rex |= bytes[at] & 3;
            at += 1;
        }
        debug_assert_eq!(bytes[at], 0xff);
        self.out.bytes(&[rex, 0x8b, bytes[at + 1] & 0xc7 | RCX << 3]);
        self.out.bytes(&bytes[at + 2..]);
    }
}

/// Writes snippets one after the other.
fn write_snippets(code: &[Compiled], arena: &mut Arena, out: &mut Out) {
    for snippet in code {
        let mut cold = arena.cold(snippet.cold_len(), Cold::Snippet);
        let (main, rest) = snippet.place(out.here(), cold.rx);
        out.bytes(&main);
        cold.bytes(&rest);
    }
}

/// Whether a copy is one of the instruction that bytes of the program's begin with, of a length that it had
/// when it was copied.
pub fn is_copy(
    address: u64,
    bytes: &[u8],
    copy: &[u8; LONGEST_INSTRUCTION],
    length: usize,
) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return copy.starts_with(&[0x0f, 0x0b]) || copy == bytes;
    }
    if names_gs_base(instruction.code()) {
        return true;
    }
    if instruction.len() != length {
        return false;
    }
    // A distance is another one.
    let distance = match instruction.is_ip_rel_memory_operand() {
        true => decoder.get_constant_offsets(&instruction).displacement_offset(),
        false => length,
    };
    let rest = (distance + 4).min(length);
    copy[..distance] == bytes[..distance] && copy[rest..length] == bytes[rest..length]
}

/// Whether what follows an instruction may be something else after it.
fn may_change_code(instruction: &Instruction) -> bool {
    use iced_x86::OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    let mut factory = InstructionInfoFactory::new();
    let writes = |access| matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite);
    instruction.flow_control() != FlowControl::Next
        || factory.info(instruction).used_memory().iter().any(|memory| writes(memory.access()))
}

/// Writes a stub that leaves the clone for an address.
pub fn stub_for(arena: &mut Arena, target: u64, site: u64) -> u64 {
    let gate = arena.gates().exit;
    let mut out = arena.cold(stub::SIZE, Cold::Stub);
    emit::leave(&mut out, gate);
    out.bytes(&[0xcc; stub::TARGET as usize - emit::LEAVE]);
    out.u64(target);
    out.u64(site);
    out.u64(0);
    out.rx
}

/// Whether a distance from behind an instruction can be written in four bytes.
pub fn in_reach(from: u64, to: u64) -> bool {
    i32::try_from(to.wrapping_sub(from) as i64).is_ok()
}

const NAMES: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The bytes of an instruction, if it has any.
fn encoded(instruction: &Instruction) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    encoder.encode(instruction, 0).ok()?;
    Some(encoder.take_buffer())
}

/// An instruction with a register and the memory of another one, not counting its segment.
fn with_memory_of(other: &Instruction, code: Code, register: Register) -> Instruction {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    instruction.set_op0_kind(OpKind::Register);
    instruction.set_op0_register(register);
    instruction.set_op1_kind(OpKind::Memory);
    instruction.set_memory_base(other.memory_base());
    instruction.set_memory_index(other.memory_index());
    instruction.set_memory_index_scale(other.memory_index_scale());
    instruction.set_memory_displacement64(other.memory_displacement64());
    instruction.set_memory_displ_size(other.memory_displ_size());
    instruction
}

/// Has an instruction's memory be where a register points.
fn point_to(instruction: &mut Instruction, register: u8) {
    instruction.set_memory_base(NAMES[register as usize]);
    instruction.set_memory_index(Register::None);
    instruction.set_memory_displacement64(0);
    instruction.set_memory_displ_size(0);
}

/// Whether an instruction gives `gs` another segment, and with it another base.
fn loads_gs(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Lgs, Mov, Pop};
    match instruction.mnemonic() {
        Lgs => true,
        Mov | Pop => instruction.op0_register() == Register::GS,
        _ => false,
    }
}

/// A register without which the instruction can do, other than one that is taken: one that needs no prefix.
fn free_register(instruction: &Instruction, taken: Option<u8>) -> u8 {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers();
    let is_free = |&number: &u8| {
        let name = NAMES[number as usize];
        taken != Some(number) && used.iter().all(|one| one.register().full_register() != name)
    };
    [0, 1, 2, 3, 6, 7, 5].into_iter().find(is_free).unwrap_or(0)
}

fn is_loop(code: Code) -> bool {
    use Code::*;
    matches!(
        code,
        Loop_rel8_64_RCX
            | Loop_rel8_64_ECX
            | Loope_rel8_64_RCX
            | Loope_rel8_64_ECX
            | Loopne_rel8_64_RCX
            | Loopne_rel8_64_ECX
            | Jrcxz_rel8_64
            | Jecxz_rel8_64
    )
}

fn is_xbegin(code: Code) -> bool {
    matches!(code, Code::Xbegin_rel16 | Code::Xbegin_rel32)
}

fn is_system_call(code: Code) -> bool {
    matches!(code, Code::Syscall)
}

fn is_near_return(code: Code) -> bool {
    matches!(code, Code::Retnq | Code::Retnq_imm16)
}

/// Whether where an indirect branch goes can be loaded: not by the program's own `gs`.
fn is_near_indirect(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Jmp_rm64 | Code::Call_rm64)
}
