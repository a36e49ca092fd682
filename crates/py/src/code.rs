//! Machine code as text.

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use pyo3::prelude::*;

/// The instructions of a piece of code: of each its address, its length, and its text.
#[pyfunction]
pub fn disassemble(code: &[u8], address: u64) -> Vec<(u64, usize, String)> {
    let mut formatter = NasmFormatter::new();
    let options = formatter.options_mut();
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let row = |instruction: iced_x86::Instruction| {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        (instruction.ip(), instruction.len(), text)
    };
    decoder.into_iter().map(row).collect()
}
