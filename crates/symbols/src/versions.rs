//! The versions of dynamic symbols: `memcpy@GLIBC_2.2.5` beside `memcpy@@GLIBC_2.14`.
//!
//! A library may define one name several times. A program that is linked today gets the default version; the others are
//! there for programs that were linked before, and are marked as hidden.

use std::borrow::Cow;
use std::collections::HashMap;

use object::elf;

use crate::elf::{Elf, string_at};

/// Versions are called after releases.
const LONGEST_NAME: usize = 1 << 10;
/// glibc has about forty.
const MOST_VERSIONS: usize = 1 << 12;

const HIDDEN: u16 = 0x8000;
const INDEX: u16 = 0x7fff;

/// What is known of the versions of a table of dynamic symbols.
#[derive(Default)]
pub(crate) struct Versions {
    /// One for each symbol: a number, and whether it is hidden.
    of_symbols: Vec<u16>,
    names: HashMap<u16, Vec<u8>>,
}

impl Versions {
    /// The versions of `.dynsym`, whose names are in `strings`.
    pub(crate) fn read(elf: &Elf, strings: &[u8]) -> Self {
        let contents = |kind| {
            let section = elf.sections.iter().find(|section| section.kind == kind)?;
            elf.contents(section)
        };
        let of_symbols: Option<Cow<'_, [u8]>> = contents(elf::SHT_GNU_VERSYM);
        let Some(of_symbols) = of_symbols else { return Self::default() };
        let mut names = HashMap::new();
        // Of a definition, the version is in the head and its name in the first entry; of a requirement, each entry
        // has both.
        if let Some(definitions) = contents(elf::SHT_GNU_VERDEF) {
            let mut at = 0;
            for _ in 0..MOST_VERSIONS {
                let (Some(number), Some(entry), Some(next)) = (
                    half(&definitions, at + 4),
                    word(&definitions, at + 12),
                    word(&definitions, at + 16),
                ) else {
                    break;
                };
                let name = word(&definitions, at + entry as usize)
                    .and_then(|name| string_at(strings, name.into(), LONGEST_NAME));
                names.extend(name.map(|name| (number & INDEX, name.to_vec())));
                if next == 0 {
                    break;
                }
                at += next as usize;
            }
        }
        if let Some(requirements) = contents(elf::SHT_GNU_VERNEED) {
            let mut left = MOST_VERSIONS;
            let mut at = 0;
            while let (Some(entry), Some(next)) =
                (word(&requirements, at + 8), word(&requirements, at + 12))
            {
                let mut entry_at = at + entry as usize;
                while let (Some(number), Some(name), Some(following)) = (
                    half(&requirements, entry_at + 6),
                    word(&requirements, entry_at + 8),
                    word(&requirements, entry_at + 12),
                ) {
                    let name = string_at(strings, name.into(), LONGEST_NAME);
                    names.extend(name.map(|name| (number & INDEX, name.to_vec())));
                    left = left.saturating_sub(1);
                    if following == 0 || left == 0 {
                        break;
                    }
                    entry_at += following as usize;
                }
                if next == 0 || left == 0 {
                    break;
                }
                at += next as usize;
            }
        }
        let of_symbols =
            of_symbols.chunks_exact(2).map(|number| u16::from_le_bytes([number[0], number[1]]));
        Self { of_symbols: of_symbols.collect(), names }
    }

    /// The version of a symbol.
    pub(crate) fn of(&self, symbol: usize) -> Option<&[u8]> {
        let number = self.of_symbols.get(symbol)?;
        self.names.get(&(number & INDEX)).map(Vec::as_slice)
    }

    /// The symbols that are not the default version of their name, with the version of each.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let numbers = self.of_symbols.iter().enumerate();
        numbers
            .filter(|(_, number)| *number & HIDDEN != 0)
            .filter_map(|(symbol, number)| Some((symbol, self.names.get(&(number & INDEX))?)))
            .map(|(symbol, name)| (symbol, name.as_slice()))
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
