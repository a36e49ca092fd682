//! Instructions of the program: what they are, and how they are written with other operands.

use alloc::vec::Vec;
use iced_x86::{
    Code, Encoder, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

/// The general registers by their numbers.
pub const NAMES: [Register; 16] = [
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
pub fn encoded(instruction: &Instruction) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    encoder.encode(instruction, 0).ok()?;
    Some(encoder.take_buffer())
}

/// An instruction with a register and the memory of another one, not counting its segment.
pub fn with_memory_of(other: &Instruction, code: Code, register: Register) -> Instruction {
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

/// Replaces an instruction's memory operand by one that a register points to.
pub fn point_to(instruction: &mut Instruction, register: u8) {
    instruction.set_memory_base(NAMES[register as usize]);
    instruction.set_memory_index(Register::None);
    instruction.set_memory_displacement64(0);
    instruction.set_memory_displ_size(0);
}

/// Whether an instruction gives `gs` another segment, and with it another base.
pub fn loads_gs(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Lgs, Mov, Pop};
    match instruction.mnemonic() {
        Lgs => true,
        Mov | Pop => instruction.op0_register() == Register::GS,
        _ => false,
    }
}

/// A register that an instruction does not use, other than one that is taken: one that needs no prefix.
pub fn free_register(instruction: &Instruction, taken: Option<u8>) -> u8 {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers();
    let is_free = |&number: &u8| {
        let name = NAMES[number as usize];
        taken != Some(number) && used.iter().all(|one| one.register().full_register() != name)
    };
    [0, 1, 2, 3, 6, 7, 5].into_iter().find(is_free).unwrap_or(0)
}

/// Whether an instruction counts in `rcx`, or looks at it, and reaches 127 bytes only.
pub fn is_loop(code: Code) -> bool {
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

/// Whether an instruction begins a transaction.
pub fn is_xbegin(code: Code) -> bool {
    matches!(code, Code::Xbegin_rel16 | Code::Xbegin_rel32)
}

/// Whether an instruction is `syscall`.
pub fn is_system_call(code: Code) -> bool {
    matches!(code, Code::Syscall)
}

/// Whether an instruction returns within the segment.
pub fn is_near_return(code: Code) -> bool {
    matches!(code, Code::Retnq | Code::Retnq_imm16)
}

/// Whether an instruction is an indirect branch within the segment, whose target can be loaded.
pub fn is_near_indirect(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Jmp_rm64 | Code::Call_rm64)
}

/// Whether an instruction may change the code that follows it.
pub fn may_change_code(instruction: &Instruction) -> bool {
    use iced_x86::OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    let mut factory = InstructionInfoFactory::new();
    let writes = |access| matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite);
    instruction.flow_control() != FlowControl::Next
        || factory.info(instruction).used_memory().iter().any(|memory| writes(memory.access()))
}

/// Whether an instruction's memory is in `gs`, as it is written. An address that is only computed has no
/// segment.
pub fn uses_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        && instruction.mnemonic() != Mnemonic::Lea
        && (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory)
}

/// Whether an instruction's memory is in `gs` without being written there.
pub fn names_gs_silently(instruction: &Instruction) -> bool {
    let by_gs = |memory: &iced_x86::UsedMemory| memory.segment() == Register::GS;
    instruction.segment_prefix() == Register::GS
        && InstructionInfoFactory::new().info(instruction).used_memory().iter().any(by_gs)
}
