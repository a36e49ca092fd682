//! What compilers fill the gaps between functions with.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

/// How many bytes from the start of these there are before the padding at their end.
pub fn code_length(bytes: &[u8]) -> u64 {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut length = 0;
    while decoder.can_decode() {
        if !is_filler(&decoder.decode()) {
            length = decoder.position() as u64;
        }
    }
    length
}

/// How many bytes from the start of these are fillers between functions.
pub fn padding_length(bytes: &[u8]) -> u64 {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut length = 0;
    while decoder.can_decode() {
        if !is_filler(&decoder.decode()) {
            break;
        }
        length = decoder.position() as u64;
    }
    length
}

/// Whether an instruction is one that compilers fill gaps with.
pub fn is_filler(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Int3 => true,
        // `xchg ax, ax` and the like decode as themselves.
        _ => instruction.code() == Code::Xchg_rm16_r16 && instruction.len() == 3,
    }
}
