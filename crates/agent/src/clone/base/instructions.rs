//! Facts about instructions of the program.

use crate::clone::base::program;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

/// The most bytes of an instruction.
pub const LONGEST_INSTRUCTION: usize = 15;
/// How long `syscall` is.
pub const SYSTEM_CALL_LENGTH: u64 = 2;

/// The instruction of the program's at an address, if there is one.
pub fn instruction_at(pc: u64) -> Option<Instruction> {
    let bytes = program::read::<[u8; 16]>(pc)?;
    Some(Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode())
}

/// Whether an instruction does the same again and again, and can be interrupted meanwhile.
pub fn is_repeated(instruction: Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Whether a repeated instruction looks at what it has compared before it goes around again.
pub fn compares(instruction: Instruction) -> bool {
    use iced_x86::Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    matches!(instruction.mnemonic(), Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq)
}

/// Whether an instruction reads or writes where `gs` begins.
pub fn names_gs_base(code: Code) -> bool {
    matches!(
        code,
        Code::Rdgsbase_r32 | Code::Rdgsbase_r64 | Code::Wrgsbase_r32 | Code::Wrgsbase_r64
    )
}
