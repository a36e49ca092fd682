//! Names for the entries of procedure linkage tables: `malloc@plt`.
//!
//! An entry says nothing about its name. It jumps through a slot of the global offset table, and a
//! relocation says which function the loader stores in that slot.

use object::elf;

use crate::elf::{Elf, Section};
use crate::slots::{Relocation, relocations};
use crate::symtab::SymbolTable;

/// One entry of a procedure linkage table.
pub(crate) struct PltEntry {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) target: Relocation,
}

/// Whether a section is a procedure linkage table.
pub(crate) fn is_plt(section: &Section) -> bool {
    section.name == ".iplt" || section.name == ".plt" || section.name.starts_with(".plt.")
}

/// All entries whose slot has a relocation.
pub(crate) fn entries(elf: &Elf) -> Vec<PltEntry> {
    if elf.machine != elf::EM_X86_64 {
        return Vec::new();
    }
    let slots = relocations(elf);
    let mut found = Vec::new();
    for section in elf.sections.iter().filter(|section| is_plt(section)).take(MOST_TABLES) {
        let Some(code) = elf.contents(section) else { continue };
        let size = entry_size(section);
        for (index, entry) in code.chunks(size).enumerate() {
            let address = section.address.wrapping_add((index * size) as u64);
            if let Some(slot) = slot_of(entry, address)
                && let Some(target) = slots.get(&slot)
            {
                found.push(PltEntry { address, size: entry.len() as u64, target: *target });
            }
        }
    }
    found
}

/// `.plt`, `.plt.sec`, `.plt.got`, `.plt.bnd`, `.iplt`: no linker makes more.
const MOST_TABLES: usize = 8;

fn entry_size(section: &Section) -> usize {
    match section.entry_size {
        size @ (8 | 16 | 24 | 32) => size as usize,
        // Some linkers do not state the size for this table, which has short entries.
        _ if section.name == ".plt.got" => 8,
        _ => 16,
    }
}

/// The slot that an entry jumps through: `jmp *displacement(%rip)`, which may have `endbr64` and a
/// `bnd` prefix in front of it.
fn slot_of(entry: &[u8], address: u64) -> Option<u64> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const BND: u8 = 0xf2;
    let mut at = if entry.starts_with(ENDBR64) { ENDBR64.len() } else { 0 };
    if entry.get(at) == Some(&BND) {
        at += 1;
    }
    let jump = entry.get(at..at + 6)?;
    if jump[..2] != [0xff, 0x25] {
        return None;
    }
    let displacement = i32::from_le_bytes(jump[2..].try_into().ok()?);
    Some(address.wrapping_add(at as u64 + 6).wrapping_add_signed(displacement.into()))
}

/// The names of all entries, in their order. `name_at` gives the name of the function at an
/// address, for entries that lead to a resolver.
pub(crate) fn names<'own>(
    entries: &[PltEntry],
    symbols: Option<&SymbolTable<'_>>,
    name_at: impl Fn(u64) -> Option<&'own [u8]>,
) -> Vec<Vec<u8>> {
    let name = |entry: &PltEntry| match entry.target {
        Relocation::Symbol(index) => match symbols.and_then(|table| table.name(index)) {
            Some(name) => [name, b"@plt"].concat(),
            None => format!("sub_{:x}@plt", entry.address).into_bytes(),
        },
        Relocation::Resolver(address) => match name_at(address) {
            Some(name) => [name, b"@plt"].concat(),
            None => format!("sub_{address:x}@plt").into_bytes(),
        },
    };
    entries.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_is_found_behind_each_form_of_entry() {
        // jmp *0x2fe2(%rip); push $0x0; jmp ...
        let lazy = [0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff];
        assert_eq!(slot_of(&lazy, 0x1030), Some(0x1030 + 6 + 0x2fe2));
        // endbr64; jmp *0x2f76(%rip); nop
        let ibt =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x76, 0x2f, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(slot_of(&ibt, 0x1050), Some(0x1050 + 10 + 0x2f76));
        // endbr64; bnd jmp *0x2f75(%rip); nop
        let mpx =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(slot_of(&mpx, 0x1050), Some(0x1050 + 11 + 0x2f75));
    }

    #[test]
    fn the_header_of_the_table_is_no_entry() {
        // push 0x2fe2(%rip); jmp *0x2fe4(%rip); nop
        let header =
            [0xff, 0x35, 0xe2, 0x2f, 0, 0, 0xff, 0x25, 0xe4, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0];
        assert_eq!(slot_of(&header, 0x1020), None);
        assert_eq!(slot_of(&[0xff, 0x25], 0x1020), None);
    }
}
