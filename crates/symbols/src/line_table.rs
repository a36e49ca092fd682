//! All that the debug information says of the lines of a module, in columns.

use std::collections::{HashMap, HashSet};

use gimli::{ColumnType, EndianSlice, LineRow, LittleEndian, Unit};

use crate::dwarf::DebugInfo;
use crate::sources::file_path;

type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// The lines of a module: each row is a piece of code, in the order of their offsets.
#[derive(Debug, Default)]
pub struct LineTable {
    /// The source files, each once.
    pub files: Vec<String>,
    /// Where a piece of code begins.
    pub offsets: Vec<u64>,
    /// Its bytes. None for a line of which no instruction was left, before which control is.
    pub sizes: Vec<u32>,
    /// The place of its file among the files.
    pub file_of: Vec<u32>,
    /// Its line, and 0 for code that belongs to none.
    pub lines: Vec<u32>,
    /// Its column, and 0 for one that is not known.
    pub columns: Vec<u32>,
    /// Whether a statement begins there.
    pub statements: Vec<u8>,
}

/// One row, while they are collected.
#[derive(Clone, Copy)]
struct Row {
    offset: u64,
    size: u32,
    file: u32,
    line: u32,
    column: u32,
    is_statement: bool,
}

/// Pieces of code, none of which touch each other, in the order of their offsets: where each begins and ends.
type Pieces = Vec<(u64, u64)>;

impl Row {
    /// Code of a file that cannot be told is code of no line.
    fn give_file(&mut self, number: Option<u32>) {
        self.file = number.unwrap_or(0);
        self.line = number.map_or(0, |_| self.line);
    }
}

#[derive(Default)]
struct Collected {
    /// The code whose lines are wanted; all if there are none.
    wanted: Option<Pieces>,
    files: Vec<String>,
    numbers: HashMap<String, u32>,
    rows: Vec<Row>,
}

/// Reads the lines of all units.
pub(crate) fn read(debug_info: &DebugInfo) -> LineTable {
    read_wanted(debug_info, None)
}

/// Reads the lines of pieces of code, each an offset and a size: those rows of the whole table that have any of it.
pub(crate) fn read_of(
    debug_info: &DebugInfo,
    pieces: impl Iterator<Item = (u64, u64)>,
) -> LineTable {
    read_wanted(debug_info, Some(joined(pieces)))
}

fn joined(pieces: impl Iterator<Item = (u64, u64)>) -> Pieces {
    let mut all: Pieces =
        pieces.map(|(offset, size)| (offset, offset.saturating_add(size))).collect();
    all.sort_unstable();
    let mut joined: Pieces = Vec::new();
    for (begin, end) in all {
        match joined.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

fn read_wanted(debug_info: &DebugInfo, wanted: Option<Pieces>) -> LineTable {
    let dwarf = debug_info.borrow();
    let mut found = Collected { wanted, ..Collected::default() };
    let mut programs = HashSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        if found.wanted.as_ref().is_some_and(|wanted| is_elsewhere(&dwarf, &unit, wanted)) {
            continue;
        }
        // Several units may share the lines of one, which are the same.
        let offset = unit.line_program.as_ref().map(|program| program.header().offset().0);
        if offset.is_some_and(|offset| programs.insert(offset)) {
            // A unit that cannot be read takes nothing from the others.
            let _ = found.read_unit(&dwarf, &unit);
        }
    }
    found.finish()
}

/// Whether a unit says where its code is, and none of that is wanted.
fn is_elsewhere(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    wanted: &[(u64, u64)],
) -> bool {
    let Ok(mut ranges) = dwarf.unit_ranges(unit) else { return false };
    let mut is_known = false;
    loop {
        match ranges.next() {
            Ok(Some(range)) => {
                let next = wanted.partition_point(|&(_, end)| end <= range.begin);
                if wanted.get(next).is_some_and(|&(begin, _)| begin < range.end) {
                    return false;
                }
                is_known |= range.begin < range.end;
            }
            Ok(None) => return is_known,
            Err(_) => return false,
        }
    }
}

impl Collected {
    fn read_unit(
        &mut self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
    ) -> gimli::Result<()> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut numbers: HashMap<u64, Option<u32>> = HashMap::new();
        let mut number = |found: &mut Self, file| {
            *numbers
                .entry(file)
                .or_insert_with(|| file_path(dwarf, unit, file).map(|path| found.number(path)))
        };
        // Where a sequence of rows begins, and whether its code is in the module at all.
        let mut begin = self.rows.len();
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row()? {
            let address = row.address();
            if let Some(last) = self.rows[begin..].last_mut() {
                last.size = u32::try_from(address.saturating_sub(last.offset)).unwrap_or(0);
            }
            if row.end_sequence() {
                // Functions that the linker has discarded are left at 0.
                if self.rows.get(begin).is_some_and(|first| first.offset == 0) {
                    self.rows.truncate(begin);
                }
                self.keep_wanted(begin);
                // Few of the files of a unit are looked up, and most rows are of the same one as those before.
                let mut last = (None, None);
                for at in begin..self.rows.len() {
                    let file = self.rows[at].file;
                    if last.0 != Some(file) {
                        last = (Some(file), number(self, u64::from(file)));
                    }
                    self.rows[at].give_file(last.1);
                }
                begin = self.rows.len();
                continue;
            }
            self.rows.push(made(row, address));
        }
        // A sequence without an end has no last row to trust.
        self.rows.truncate(begin);
        Ok(())
    }

    /// Drops those of the last rows that have no code that is wanted.
    fn keep_wanted(&mut self, begin: usize) {
        let Some(wanted) = &self.wanted else { return };
        let is_next = |place: usize, offset: u64| {
            place.checked_sub(1).is_none_or(|before| wanted[before].1 <= offset)
                && wanted.get(place).is_none_or(|&(_, end)| offset < end)
        };
        let (mut kept, mut next) = (begin, 0);
        for at in begin..self.rows.len() {
            let row = self.rows[at];
            // It is the same as for the row before, most often.
            if !is_next(next, row.offset) {
                next = wanted.partition_point(|&(_, end)| end <= row.offset);
            }
            let end = row.offset.saturating_add(u64::from(row.size));
            if wanted.get(next).is_some_and(|&(begin, _)| begin < end) {
                self.rows[kept] = row;
                kept += 1;
            }
        }
        self.rows.truncate(kept);
    }

    fn number(&mut self, path: String) -> u32 {
        let next = self.files.len() as u32;
        *self.numbers.entry(path).or_insert_with_key(|path| {
            self.files.push(path.clone());
            next
        })
    }

    fn finish(mut self) -> LineTable {
        // Rows of one address stay in their order: the last one is that of the instruction.
        self.rows.sort_by_key(|row| row.offset);
        let rows = &self.rows;
        LineTable {
            offsets: rows.iter().map(|row| row.offset).collect(),
            sizes: rows.iter().map(|row| row.size).collect(),
            file_of: rows.iter().map(|row| row.file).collect(),
            lines: rows.iter().map(|row| row.line).collect(),
            columns: rows.iter().map(|row| row.column).collect(),
            statements: rows.iter().map(|row| u8::from(row.is_statement)).collect(),
            files: self.files,
        }
    }
}

/// A row whose file is still the number that its unit gives to it.
fn made(row: &LineRow, offset: u64) -> Row {
    let column = match row.column() {
        ColumnType::LeftEdge => 0,
        ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
    };
    Row {
        offset,
        size: 0,
        file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
        line: row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0),
        column,
        is_statement: row.is_stmt(),
    }
}
