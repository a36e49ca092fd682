//! What is read and written: mostly what a register holds before or behind the instruction, else what is in memory
//! behind it.

use super::{AccessKind, Captured, Form, Value, Walk, is_repeated};
use crate::Register;
use crate::effects::number;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register as Name};

impl Walk {
    /// What an instruction is about to store, where it comes from a register or is part of the instruction.
    pub(super) fn stored(&mut self, instruction: &Instruction) -> Option<Form> {
        let operand = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => 1,
            Mnemonic::Push => 0,
            Mnemonic::Call => return Some(Form::constant(instruction.next_ip())),
            _ => return None,
        };
        if let Ok(constant) = instruction.try_immediate(operand) {
            return Some(Form::constant(constant));
        }
        let register = whole(instruction, operand)?;
        let before = self.plan.instructions;
        Some(self.captured(register, before))
    }

    /// Says of the accesses of an instruction, which are the last ones, what is read or written.
    pub(super) fn add_values(
        &mut self,
        instruction: &Instruction,
        first: usize,
        stored: Option<Form>,
    ) {
        let goes_there = matches!(
            instruction.flow_control(),
            FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
        );
        let loaded = self.loaded(instruction).map(Value::Register);
        for index in first..self.plan.accesses.len() {
            let value = match self.plan.accesses[index].kind {
                AccessKind::Load if goes_there => Some(Value::Target),
                AccessKind::Load => loaded,
                AccessKind::Store => stored.map(Value::Register),
                AccessKind::Update => None,
            };
            self.plan.accesses[index].value = value;
        }
        let is_missing = self.plan.accesses[first..].iter().any(|access| access.value.is_none());
        if let Some(size) = self.readable(instruction, first).filter(|_| is_missing) {
            let capture = self.plan.captures.len() as u16;
            self.keep(Captured::Operand(size), self.plan.instructions + 1);
            for access in &mut self.plan.accesses[first..] {
                access.value.get_or_insert(Value::Memory(capture));
            }
        }
    }

    /// What an instruction has loaded, where that is in a register now.
    fn loaded(&mut self, instruction: &Instruction) -> Option<Form> {
        let register = match instruction.mnemonic() {
            Mnemonic::Leave => Register::RBP,
            Mnemonic::Pop => whole(instruction, 0)?,
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
                if instruction.op1_kind() == OpKind::Memory =>
            {
                whole(instruction, 0)?
            }
            _ => return None,
        };
        let behind = self.plan.instructions + 1;
        // Of the stack pointer it is known where it is, not what it was.
        (register != Register::RSP).then(|| self.captured(register, behind))
    }

    /// How many of the first bytes of its operand in memory can be read again behind an instruction, which has found them
    /// there.
    fn readable(&mut self, instruction: &Instruction, first: usize) -> Option<u8> {
        let is_plain = |kind| kind == OpKind::Memory;
        if instruction.flow_control() != FlowControl::Next
            || is_repeated(instruction)
            || instruction.has_op_mask()
            || !instruction.op_kinds().any(is_plain)
            || instruction.memory_segment() == Name::GS
        {
            return None;
        }
        let accesses = &self.plan.accesses[first..];
        let is_there = |access: &super::Access| access.address.is_some_and(|it| !it.is_narrow);
        if !accesses.iter().all(is_there) {
            return None;
        }
        let info = self.factory.info(instruction);
        let is_certain = |access| {
            use OpAccess::{Read, ReadCondWrite, ReadWrite, Write};
            matches!(access, Read | Write | ReadWrite | ReadCondWrite)
        };
        if !info.used_memory().iter().all(|memory| is_certain(memory.access())) {
            return None;
        }
        let segment = instruction.memory_segment();
        let parts = [instruction.memory_base(), instruction.memory_index()].map(number);
        let is_changed = info.used_registers().iter().any(|used| {
            let (name, is_read) =
                (used.register(), matches!(used.access(), OpAccess::Read | OpAccess::CondRead));
            let is_part = number(name).is_some_and(|name| parts.contains(&Some(name)));
            !is_read && (is_part || name == segment)
        });
        match accesses[0].size {
            _ if is_changed => None,
            size @ (1 | 2 | 4) => Some(size as u8),
            8.. => Some(8),
            _ => None,
        }
    }
}

/// The general register that an operand is, from its lowest byte on.
fn whole(instruction: &Instruction, operand: u32) -> Option<Register> {
    let name = instruction.op_register(operand);
    let is_whole = !matches!(name, Name::AH | Name::BH | Name::CH | Name::DH);
    number(name).filter(|_| is_whole && instruction.op_kind(operand) == OpKind::Register)
}
