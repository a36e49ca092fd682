//! Which memory a run of instructions touches, and what has to be known of it to say so.
//!
//! Whoever writes a trace and whoever reads it ask the same question of the same bytes: [`plan`]. The writer keeps the
//! registers that it names, where it names them; the reader computes every address from those. It is the *abstract
//! execution* of qpt (Larus, *Abstract execution: a technique for efficiently tracing programs*), of registers only.

mod form;
#[cfg(test)]
mod tests;
mod values;

use alloc::vec::Vec;

use iced_x86::{
    Code, CodeSize, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register as Name, UsedMemory,
};

use crate::Register;
use crate::effects::{is_opaque, number};
use crate::memory::is_hint;
pub use form::{Form, REGISTERS};

/// What is asked of a run of instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Which memory is touched.
    #[default]
    Addresses,
    /// And what is read and written.
    Values,
}

/// What a run of instructions touches: see [`plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// How many instructions there are.
    pub instructions: u16,
    /// How many bytes those have.
    pub length: u32,
    /// What has to be kept.
    pub captures: Vec<Capture>,
    /// The accesses, in the order of their instructions.
    pub accesses: Vec<Access>,
    /// The bases of segments that are set on the way.
    pub bases: Vec<Base>,
}

/// A value that has to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Before which instruction; one more than the last is behind it.
    pub before: u16,
    /// Of what.
    pub place: Captured,
}

/// Where a value is that has to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// A register.
    Register(Register),
    /// The operand in memory of the instruction before: so many of its first bytes.
    Operand(u8),
}

/// Memory that an instruction touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The instruction: its place in the run.
    pub instruction: u16,
    /// What is done with it.
    pub kind: AccessKind,
    /// How many bytes, of each element if it is repeated; 0 if the bytes alone do not say, as for `xsave`.
    pub size: u16,
    /// Where; `None` if that takes more than general registers, as for gathers.
    pub address: Option<Address>,
    /// By how much a repeated string instruction has moved its pointers, over captures: then `address` is where it has
    /// begun, and this many bytes are touched, or none.
    pub moved: Option<Form>,
    /// What is read or, if it is written to, written: its first eight bytes. Nothing if that is not known, or was not
    /// asked.
    pub value: Option<Value>,
}

/// What is captured of an operand that is gone: a number that nothing else is likely to be.
pub const GONE: u64 = 0x8c5e_71d2_f3a9_46b7;

/// How it is known what is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// It was in registers.
    Register(Form),
    /// It was looked up behind the instruction: a capture.
    Memory(u16),
    /// It is where the program goes on.
    Target,
}

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AccessKind {
    /// It is read.
    Load = 1,
    /// It is written.
    Store = 2,
    /// It is read and written.
    Update = 3,
}

/// The address of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its value, over captures.
    pub form: Form,
    /// Whether only the lower 32 bits count.
    pub is_narrow: bool,
    /// Whose base is added.
    pub segment: Option<Segment>,
}

/// A segment with a base of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// What threads keep their own variables in.
    Fs,
    /// The other one.
    Gs,
}

/// An instruction that sets a segment's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The instruction: its place in the run.
    pub instruction: u16,
    /// The segment.
    pub segment: Segment,
    /// Its base from then on, over captures.
    pub form: Form,
    /// Whether only the lower 32 bits count.
    pub is_narrow: bool,
}

impl Access {
    /// The bytes that are touched: where they begin and how many they are, if that can be said; `None` if no byte is.
    /// `sources` are the values that forms speak of, `bases` those of `fs` and `gs`.
    pub fn place(&self, sources: &[u64], bases: [u64; 2]) -> Option<(Option<u64>, u64)> {
        let size = u64::from(self.size);
        let Some(address) = &self.address else { return Some((None, size)) };
        let start = address.value(sources, bases);
        let Some(moved) = &self.moved else { return Some((Some(start), size)) };
        match moved.value(sources) as i64 {
            0 => None,
            up @ 1.. => Some((Some(start), up as u64)),
            down => {
                let bytes = down.unsigned_abs();
                Some((Some(start.wrapping_add(size).wrapping_sub(bytes)), bytes))
            }
        }
    }

    /// What is read or written, if that can be said; `next` is where the program goes on behind the run.
    pub fn value(&self, sources: &[u64], next: Option<u64>) -> Option<u64> {
        let value = match self.value? {
            Value::Register(form) => form.value(sources),
            Value::Memory(capture) => {
                let value = sources.get(REGISTERS + usize::from(capture)).copied();
                value.filter(|&value| value != GONE)?
            }
            Value::Target => next?,
        };
        Some(if self.size < 8 { value & ((1 << (8 * self.size)) - 1) } else { value })
    }
}

impl Base {
    /// The base that it sets.
    pub fn value(&self, sources: &[u64]) -> u64 {
        let value = self.form.value(sources);
        if self.is_narrow { value & u64::from(u32::MAX) } else { value }
    }
}

impl Address {
    fn value(&self, sources: &[u64], bases: [u64; 2]) -> u64 {
        let value = self.form.value(sources);
        let value = if self.is_narrow { value & u64::from(u32::MAX) } else { value };
        match self.segment {
            None => value,
            Some(Segment::Fs) => value.wrapping_add(bases[0]),
            Some(Segment::Gs) => value.wrapping_add(bases[1]),
        }
    }
}

/// What the instructions in these bytes touch, all of which are executed one after the other: only the last one may go
/// elsewhere. Bytes behind the last whole instruction are not looked at.
///
/// Pushes, pops, calls and returns count, hints about caches do not, and neither does what the kernel touches in a
/// system call. An instruction that touches memory under a mask counts as if it touched all of it.
pub fn plan(bytes: &[u8], address: u64, detail: Detail) -> Plan {
    let mut walk = Walk::new();
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() && walk.plan.instructions < u16::MAX {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        walk.pass(&instruction, detail);
        walk.plan.instructions += 1;
        walk.plan.length += instruction.len() as u32;
    }
    walk.plan
}

/// The registers as a walk along the instructions knows them.
struct Walk {
    plan: Plan,
    /// What each register holds.
    values: [Form; REGISTERS],
    /// How many values have come up that nothing is known of.
    unknown: u16,
    factory: InstructionInfoFactory,
}

impl Walk {
    fn new() -> Self {
        Self {
            plan: Plan::default(),
            values: core::array::from_fn(|register| Form::of(register as u16)),
            unknown: 0,
            factory: InstructionInfoFactory::new(),
        }
    }

    fn value(&mut self, register: Register) -> &mut Form {
        &mut self.values[register.0 as usize & 15]
    }

    fn forget(&mut self, register: Register) {
        *self.value(register) = Form::unknown(self.unknown);
        self.unknown += 1;
    }

    /// What a register holds before an instruction, over captures: one more if need be.
    fn captured(&mut self, register: Register, before: u16) -> Form {
        let held = *self.value(register);
        if held.is_of_captures() {
            return held;
        }
        let source = 16 + self.plan.captures.len() as u16;
        let new = Form::of(source);
        // What a register held at the beginning is kept there, together with what else is.
        if let Some(first) = held.only_register() {
            self.keep(Captured::Register(Register(first)), 0);
            self.replace(first.into(), new);
            return *self.value(register);
        }
        self.keep(Captured::Register(register), before);
        match held.single_unknown() {
            Some(symbol) => {
                // held = symbol + rest, so symbol = capture - rest.
                let rest = held.minus(&Form::of(symbol));
                match rest.and_then(|rest| new.minus(&rest)) {
                    Some(solved) => self.replace(symbol, solved),
                    None => *self.value(register) = new,
                }
            }
            None => *self.value(register) = new,
        }
        *self.value(register)
    }

    fn keep(&mut self, place: Captured, before: u16) {
        self.plan.captures.push(Capture { before, place });
    }

    /// Puts what is known of a source now in its place.
    fn replace(&mut self, source: u16, known: Form) {
        for register in 0..REGISTERS {
            if let Some(value) = self.values[register].with(source, &known) {
                self.values[register] = value;
            } else {
                self.forget(Register(register as u8));
            }
        }
    }

    fn pass(&mut self, instruction: &Instruction, detail: Detail) {
        let first = self.plan.accesses.len();
        let mut pointers = Vec::new();
        if !is_hint(instruction.mnemonic()) {
            pointers = self.accesses(instruction);
        }
        let has_values = detail == Detail::Values && self.plan.accesses.len() > first;
        let stored = if has_values { self.stored(instruction) } else { None };
        self.set_base(instruction);
        self.execute(instruction);
        for (register, value) in pointers {
            *self.value(register) = value;
        }
        if has_values {
            self.add_values(instruction, first, stored);
        }
    }

    /// Adds what an instruction touches. Says where the pointers of one that repeats itself are behind it.
    fn accesses(&mut self, instruction: &Instruction) -> Vec<(Register, Form)> {
        let index = self.plan.instructions;
        let mut used: Vec<UsedMemory> = self.factory.info(instruction).used_memory().to_vec();
        // Reads come first.
        used.sort_by_key(|memory| !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead));
        let first = self.plan.accesses.len();
        for memory in &used {
            let kind = match memory.access() {
                OpAccess::None | OpAccess::NoMemAccess => continue,
                OpAccess::Read | OpAccess::CondRead => AccessKind::Load,
                OpAccess::Write | OpAccess::CondWrite => AccessKind::Store,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => AccessKind::Update,
            };
            let address = match is_elsewhere(instruction) {
                true => None,
                false => self.address(memory),
            };
            let size = match has_length_of_its_own(instruction.mnemonic()) {
                true => 0,
                // How much a repeated one touches is not known, but how much each time.
                false if is_repeated(instruction) => instruction.memory_size().size() as u16,
                false => memory.memory_size().size() as u16,
            };
            let access =
                Access { instruction: index, kind, size, address, moved: None, value: None };
            self.plan.accesses.push(access);
        }
        if is_repeated(instruction) && self.plan.accesses.len() > first {
            return self.repeated(instruction, first);
        }
        Vec::new()
    }

    /// How far a repeated string instruction gets, up or down, shows behind it.
    fn repeated(&mut self, instruction: &Instruction, first: usize) -> Vec<(Register, Form)> {
        let uses_rdi = |kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemoryESEDI);
        let is_rdi = instruction.op_kinds().any(uses_rdi);
        let register = if is_rdi { Register::RDI } else { Register::RSI };
        let is_wide = self.plan.accesses[first..]
            .iter()
            .all(|access| access.address.is_some_and(|address| !address.is_narrow));
        if !is_wide {
            for access in &mut self.plan.accesses[first..] {
                access.address = None;
            }
            return Vec::new();
        }
        let index = self.plan.instructions;
        let begun = self.captured(register, index);
        let source = *self.value(Register::RSI);
        self.forget(register);
        let ended = self.captured(register, index + 1);
        let moved = ended.minus(&begun);
        for access in &mut self.plan.accesses[first..] {
            access.moved = moved;
            if moved.is_none() {
                access.address = None;
            }
        }
        let mut pointers = Vec::from([(register, ended)]);
        if self.plan.accesses.len() - first == 2 {
            let source = moved.and_then(|moved| source.plus(&moved));
            pointers.extend(source.map(|source| (Register::RSI, source)));
        }
        pointers
    }

    /// The address of memory that is used, with what is not known of it captured.
    fn address(&mut self, memory: &UsedMemory) -> Option<Address> {
        let before = self.plan.instructions;
        let mut form = Form::constant(memory.displacement());
        let is_narrow = memory.address_size() == CodeSize::Code32;
        let is_there = |name| !matches!(name, Name::None | Name::RIP | Name::EIP);
        let registers = [(memory.base(), 1), (memory.index(), memory.scale())];
        let registers = || registers.iter().filter(|(name, _)| is_there(*name));
        // Vectors, and `xlat` with its eight bits.
        if registers().any(|(name, _)| !name.is_gpr() || name.size() < 4) {
            return None;
        }
        for &(name, scale) in registers() {
            let register = number(name)?;
            let value = self.captured(register, before);
            form = match form.plus(&value.times(scale as u64)) {
                Some(sum) => sum,
                // Too many terms: this register's own value is one.
                None => {
                    self.forget(register);
                    form.plus(&self.captured(register, before).times(scale as u64))?
                }
            };
        }
        let segment = match memory.segment() {
            Name::FS => Some(Segment::Fs),
            Name::GS => Some(Segment::Gs),
            _ => None,
        };
        Some(Address { form, is_narrow, segment })
    }

    fn set_base(&mut self, instruction: &Instruction) {
        let (segment, is_narrow) = match instruction.code() {
            Code::Wrfsbase_r64 => (Segment::Fs, false),
            Code::Wrfsbase_r32 => (Segment::Fs, true),
            Code::Wrgsbase_r64 => (Segment::Gs, false),
            Code::Wrgsbase_r32 => (Segment::Gs, true),
            _ => return,
        };
        if let Some(register) = number(instruction.op0_register()) {
            let index = self.plan.instructions;
            let form = self.captured(register, index);
            self.plan.bases.push(Base { instruction: index, segment, form, is_narrow });
        }
    }

    /// What registers hold behind an instruction.
    fn execute(&mut self, instruction: &Instruction) {
        if is_opaque(instruction) {
            (0..REGISTERS as u8).for_each(|register| self.forget(Register(register)));
            return;
        }
        if let Some((register, value)) = self.computed(instruction) {
            *self.value(register) = value;
            return;
        }
        let used = self.factory.info(instruction).used_registers();
        let mut written = crate::RegisterSet::NONE;
        for used in used {
            let is_read = matches!(
                used.access(),
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            );
            if let Some(register) = number(used.register()).filter(|_| !is_read) {
                written = written.with(register);
            }
        }
        let stack = self.stack(instruction).filter(|_| written.contains(Register::RSP));
        written.iter().for_each(|register| self.forget(register));
        if let Some(stack) = stack {
            *self.value(Register::RSP) = stack;
        }
    }

    /// Where the stack is behind an instruction that uses it.
    fn stack(&mut self, instruction: &Instruction) -> Option<Form> {
        let frame = *self.value(Register::RBP);
        let stack = *self.value(Register::RSP);
        match instruction.mnemonic() {
            Mnemonic::Leave => frame.plus(&Form::constant(8)),
            Mnemonic::Push
            | Mnemonic::Pushfq
            | Mnemonic::Popfq
            | Mnemonic::Call
            | Mnemonic::Ret
            | Mnemonic::Enter => moved(&stack, instruction),
            Mnemonic::Pop if number(instruction.op0_register()) != Some(Register::RSP) => {
                moved(&stack, instruction)
            }
            _ => None,
        }
    }

    /// The one register that an instruction writes, and its value, where that is simple.
    fn computed(&mut self, instruction: &Instruction) -> Option<(Register, Form)> {
        let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
        if instruction.op_count() == 0 || !is_register(0) {
            return loop_count(instruction).then(|| {
                let rest = self.value(Register::RCX).minus(&Form::constant(1));
                rest.map(|rest| (Register::RCX, rest))
            })?;
        }
        let name = instruction.op0_register();
        let register = number(name)?;
        let is_wide = name.size() == 8;
        let other = || {
            let other = instruction.op1_register();
            number(other).filter(|_| is_register(1) && other.size() == name.size())
        };
        let constant = |operand| instruction.try_immediate(operand).ok();
        let old = *self.value(register);
        let value = match instruction.mnemonic() {
            Mnemonic::Xor | Mnemonic::Sub if name.size() >= 4 && other() == Some(register) => {
                Some(Form::constant(0))
            }
            Mnemonic::Mov if name.size() >= 4 && constant(1).is_some() => {
                let value = constant(1)?;
                Some(Form::constant(if is_wide { value } else { value & u64::from(u32::MAX) }))
            }
            _ if !is_wide => None,
            Mnemonic::Mov => Some(*self.value(other()?)),
            Mnemonic::Lea => self.led(instruction),
            Mnemonic::Inc => old.plus(&Form::constant(1)),
            Mnemonic::Dec => old.minus(&Form::constant(1)),
            Mnemonic::Add => match constant(1) {
                Some(value) => old.plus(&Form::constant(value)),
                None => old.plus(&*self.value(other()?)),
            },
            Mnemonic::Sub => match constant(1) {
                Some(value) => old.minus(&Form::constant(value)),
                None => old.minus(&*self.value(other()?)),
            },
            Mnemonic::Shl => Some(old.times(1 << (constant(1)? & 63))),
            Mnemonic::Imul if instruction.op_count() == 3 => {
                Some(self.value(other()?).times(constant(2)?))
            }
            _ => None,
        };
        value.map(|value| (register, value))
    }

    /// What `lea` computes.
    fn led(&mut self, instruction: &Instruction) -> Option<Form> {
        let mut form = Form::constant(instruction.memory_displacement64());
        let scale = u64::from(instruction.memory_index_scale());
        for (name, scale) in [(instruction.memory_base(), 1), (instruction.memory_index(), scale)] {
            if matches!(name, Name::None | Name::RIP) {
                continue;
            }
            let register = number(name).filter(|_| name.size() == 8)?;
            form = form.plus(&self.value(register).times(scale))?;
        }
        // Addresses of 32 bits without a register.
        (instruction.memory_base() != Name::EIP).then_some(form)
    }
}

/// The stack pointer behind an instruction that moves it by a constant.
fn moved(stack: &Form, instruction: &Instruction) -> Option<Form> {
    let distance = i64::from(instruction.stack_pointer_increment());
    (distance != 0).then(|| stack.plus(&Form::constant(distance as u64)))?
}

/// Whether an instruction counts `rcx` down.
fn loop_count(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Loop_rel8_64_RCX | Code::Loope_rel8_64_RCX | Code::Loopne_rel8_64_RCX
    )
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Whether an instruction touches memory elsewhere than its operand says: by a number of bits, by the rows of a tile,
/// by the frames of enclosing functions, or wherever a table of the processor's says.
fn is_elsewhere(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
            instruction.op0_kind() == OpKind::Memory && instruction.op1_kind() == OpKind::Register
        }
        Mnemonic::Enter => instruction.immediate8_2nd() != 0,
        Mnemonic::Tileloadd | Mnemonic::Tileloaddt1 | Mnemonic::Tilestored => true,
        _ => {
            is_opaque(instruction)
                || instruction.flow_control() == FlowControl::Call
                    && instruction.mnemonic() != Mnemonic::Call
        }
    }
}

/// Whether how much memory an instruction touches depends on more than the instruction.
fn has_length_of_its_own(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Xsave
            | Mnemonic::Xsave64
            | Mnemonic::Xsavec
            | Mnemonic::Xsavec64
            | Mnemonic::Xsaveopt
            | Mnemonic::Xsaveopt64
            | Mnemonic::Xrstor
            | Mnemonic::Xrstor64
    )
}
