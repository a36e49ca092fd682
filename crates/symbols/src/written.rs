//! Blocks of code that were executed: their bytes, and where their instructions are written.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::elf::Elf;
use crate::line_table::LineTable;

/// A block that was executed: its offset, its bytes, and how many instructions that were.
pub type Executed = (u64, u64, u64);

/// From an offset on: the place of the file among those of the line table, and the line; `None` where they are not
/// known.
pub type Line = (u64, Option<(u32, u32)>);

/// What the file of a module has of a block.
#[derive(Debug, Default)]
pub struct Written {
    /// Its bytes; none where they are not what was executed, as far as the number of instructions tells.
    pub code: Vec<u8>,
    /// Where it is written, each until the next; what comes before the first is not known.
    pub lines: Vec<Line>,
}

/// Finds blocks in a module.
pub(crate) fn find(elf: &Elf, table: &LineTable, blocks: &[Executed]) -> Vec<Written> {
    // Rows of no line are where nothing is written.
    let is_line = |row: &usize| table.lines[*row] != 0;
    let rows: Vec<usize> = (0..table.offsets.len()).filter(is_line).collect();
    blocks.iter().map(|&block| find_one(elf, table, &rows, block).unwrap_or_default()).collect()
}

fn find_one(
    elf: &Elf,
    table: &LineTable,
    rows: &[usize],
    (offset, size, instructions): Executed,
) -> Option<Written> {
    let code = elf.code_at(offset, size)?;
    let mut decoder = Decoder::with_ip(64, &code, offset, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut number, mut lines, mut last) = (0, Vec::new(), None);
    while decoder.can_decode() {
        let at = decoder.ip();
        decoder.decode_out(&mut instruction);
        number += 1;
        let written = line_at(table, rows, at);
        if written != last {
            lines.push((at, written));
            last = written;
        }
    }
    (number == instructions).then(|| Written { code: code.into_owned(), lines })
}

fn line_at(table: &LineTable, rows: &[usize], offset: u64) -> Option<(u32, u32)> {
    let after = rows.partition_point(|&row| table.offsets[row] <= offset);
    let row = *rows.get(after.checked_sub(1)?)?;
    let is_inside = offset < table.offsets[row] + u64::from(table.sizes[row]);
    is_inside.then(|| (table.file_of[row], table.lines[row]))
}
