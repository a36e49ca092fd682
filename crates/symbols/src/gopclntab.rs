//! The function table that Go programs carry, stripped or not, for their own stack traces.

use crate::elf::{Elf, string_at};

/// The formats of Go 1.18 and 1.20; the older ones are gone from living programs.
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

/// Go's own linker cuts names far below this.
const LONGEST_NAME: usize = 1 << 12;

/// One function of the table.
pub(crate) struct GoFunction {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// All functions of the table; none when the module has no table that can be read.
pub(crate) fn functions(elf: &Elf) -> Vec<GoFunction> {
    let section = elf.section(".gopclntab").or_else(|| elf.section(".data.rel.ro.gopclntab"));
    let Some(section) = section else { return Vec::new() };
    elf.contents(section).and_then(|table| parse(&table)).unwrap_or_default()
}

fn parse(table: &[u8]) -> Option<Vec<GoFunction>> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(table.get(at..at + 4)?.try_into().ok()?));
    let word = |index: usize| {
        let at = 8 + index * 8;
        Some(u64::from_le_bytes(table.get(at..at + 8)?.try_into().ok()?))
    };
    let pointer_size = *table.get(7)?;
    if !matches!(u32_at(0)?, MAGIC_1_18 | MAGIC_1_20) || pointer_size != 8 {
        return None;
    }
    let count = usize::try_from(word(0)?).ok()?;
    let text_start = word(2)?;
    let names = table.get(usize::try_from(word(3)?).ok()?..)?;
    // A list of (offset of the code, offset of the function's record), and the end of the code.
    let list = table.get(usize::try_from(word(7)?).ok()?..)?;
    if count > list.len() / 8 {
        return None;
    }
    let list_at = |index: usize| {
        Some(u32::from_le_bytes(list.get(index * 4..index * 4 + 4)?.try_into().ok()?))
    };
    let mut name_bytes_left = table.len().saturating_mul(4);
    let mut found = Vec::new();
    for index in 0..count {
        let start = list_at(index * 2)?;
        let record = list_at(index * 2 + 1)? as usize;
        let end = list_at(index * 2 + 2)?;
        let name_at = list.get(record + 4..record + 8)?.try_into().ok()?;
        let name = string_at(names, u32::from_le_bytes(name_at).into(), LONGEST_NAME)?;
        name_bytes_left = name_bytes_left.checked_sub(name.len())?;
        if !name.is_empty() {
            found.push(GoFunction {
                address: text_start.wrapping_add(start.into()),
                size: end.saturating_sub(start).into(),
                name: String::from_utf8_lossy(name).into_owned(),
            });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with one function, `main.main`, of 0x20 bytes.
    fn table() -> Vec<u8> {
        let mut table = MAGIC_1_20.to_le_bytes().to_vec();
        table.extend_from_slice(&[0, 0, 1, 8]);
        for word in [1u64, 0, 0x40_1000, 72, 0, 0, 0, 88] {
            table.extend_from_slice(&word.to_le_bytes());
        }
        table.extend_from_slice(b"main.main\0\0\0\0\0\0\0");
        for number in [0x10u32, 12, 0x30, 0x10, 0] {
            table.extend_from_slice(&number.to_le_bytes());
        }
        table
    }

    #[test]
    fn a_function_has_its_name_and_its_size() {
        let found = parse(&table()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].address, found[0].size), (0x40_1010, 0x20));
        assert_eq!(found[0].name, "main.main");
    }

    #[test]
    fn a_table_cut_short_is_no_table() {
        let table = table();
        for len in 0..table.len() {
            assert!(parse(&table[..len]).is_none(), "{len}");
        }
    }
}
