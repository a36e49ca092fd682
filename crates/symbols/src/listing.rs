//! Machine code as people read it.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, NasmFormatter};

/// Writes instructions the same way everywhere.
pub struct Writer(NasmFormatter);

impl Default for Writer {
    fn default() -> Self {
        let mut formatter = NasmFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_space_after_operand_separator(true);
        Self(formatter)
    }
}

impl Writer {
    /// The text of an instruction.
    pub fn text(&mut self, instruction: &Instruction) -> String {
        let mut text = String::new();
        self.0.format(instruction, &mut text);
        text
    }
}

/// Where the instructions of a piece of code begin.
pub(crate) fn starts(code: &[u8], address: u64) -> impl Iterator<Item = u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    std::iter::from_fn(move || {
        let at = decoder.ip();
        decoder.can_decode().then(|| decoder.decode_out(&mut instruction)).map(|()| at)
    })
}

/// The instructions of a piece of code: of each its address, its length, and its text.
pub fn disassemble(code: &[u8], address: u64) -> Vec<(u64, usize, String)> {
    let mut writer = Writer::default();
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let row =
        |instruction: Instruction| (instruction.ip(), instruction.len(), writer.text(&instruction));
    decoder.into_iter().map(row).collect()
}
