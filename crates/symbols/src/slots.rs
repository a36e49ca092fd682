//! Slots: the words of a module that the loader fills with addresses of functions.
//!
//! An indirect function (`STT_GNU_IFUNC`) is no code to call. Its symbol is a resolver, which the loader calls to find out which
//! implementation suits the processor; the answer is stored in a slot. So slots tell what a program calls by such a name, and
//! where none is filled yet, the code of the resolver tells what it can be.

use std::collections::{HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::elf::{self, Rela64};
use object::{LittleEndian as LE, pod};

use crate::elf::Elf;
use crate::symtab::SymbolTable;

/// A resolver whose size is not known is read this far.
const LARGEST_RESOLVER: u64 = 1 << 10;

/// What the loader stores in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocation {
    /// The address of the symbol with this number in the dynamic symbol table.
    Symbol(u32),
    /// Whatever the resolver at this address chooses.
    Resolver(u64),
}

/// A slot, by where it is in the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its address as the file states it.
    pub offset: u64,
    /// The resolver of this module that it is filled by, as the file states it.
    pub resolver: Option<u64>,
    /// The symbol that it is filled with.
    pub name: String,
    /// The version of the symbol; empty when it has none.
    pub version: String,
}

/// What a resolver can choose, as far as its code tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Where functions of the module begin that it takes the address of.
    pub functions: Vec<u64>,
    /// Slots that it reads: they may have addresses of functions.
    pub slots: Vec<u64>,
    /// Whether it does what cannot be followed, so that there may be others.
    pub is_open: bool,
}

/// The relocations of slots.
pub(crate) fn relocations(elf: &Elf) -> HashMap<u64, Relocation> {
    let mut slots = HashMap::new();
    for name in [".rela.plt", ".rela.dyn", ".rela.iplt"] {
        let Some(bytes) = elf.section(name).and_then(|section| elf.contents(section)) else {
            continue;
        };
        let count = bytes.len() / size_of::<Rela64<LE>>();
        let relocations = pod::slice_from_bytes::<Rela64<LE>>(&bytes, count);
        for relocation in relocations.map(|(all, _)| all).unwrap_or_default() {
            let target = match relocation.r_type(LE, false) {
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                    Relocation::Symbol(relocation.r_sym(LE, false))
                }
                elf::R_X86_64_64 if relocation.r_addend.get(LE) == 0 => {
                    Relocation::Symbol(relocation.r_sym(LE, false))
                }
                elf::R_X86_64_IRELATIVE => Relocation::Resolver(relocation.r_addend.get(LE) as u64),
                _ => continue,
            };
            slots.insert(relocation.r_offset.get(LE), target);
        }
    }
    slots
}

/// The slots that resolvers fill, and those of symbols with one of these names.
pub(crate) fn slots(elf: &Elf, names: &HashSet<&str>) -> Vec<Slot> {
    let in_section = SymbolTable::in_section(elf, elf::SHT_DYNSYM, crate::raw::Origin::Dynsym);
    let symbols = in_section.and_then(Result::ok);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let slot = |(offset, relocation)| match relocation {
        Relocation::Resolver(resolver) => Some(Slot {
            offset,
            resolver: Some(resolver),
            name: String::new(),
            version: String::new(),
        }),
        Relocation::Symbol(number) => {
            let symbols = symbols.as_ref()?;
            let name = std::str::from_utf8(symbols.name(number)?).ok()?;
            let version = symbols.version(number).map(text).unwrap_or_default();
            let is_wanted = names.contains(name);
            is_wanted.then(|| Slot { offset, resolver: None, name: name.to_owned(), version })
        }
    };
    relocations(elf).into_iter().filter_map(slot).collect()
}

/// What the resolver at an address can choose. `begins` says whether a function begins at an address.
pub(crate) fn candidates(
    elf: &Elf,
    address: u64,
    size: u64,
    begins: impl Fn(u64) -> bool,
) -> Candidates {
    let mut found = Candidates::default();
    let size = if size == 0 { LARGEST_RESOLVER } else { size.min(LARGEST_RESOLVER) };
    let Some(code) = elf.at_address(address, size) else {
        return Candidates { is_open: true, ..found };
    };
    let slots = relocations(elf);
    let own = address..address + size;
    let mut functions = HashSet::new();
    for instruction in &mut Decoder::with_ip(64, &code, address, DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::IndirectBranch | FlowControl::IndirectCall => found.is_open = true,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                found.is_open |= !own.contains(&instruction.near_branch_target());
            }
            _ => {}
        }
        if let Some(slot) = slot_read(&instruction)
            && slots.contains_key(&slot)
        {
            found.slots.push(slot);
        }
        functions.extend(address_taken(&instruction).filter(|address| begins(*address)));
    }
    found.functions = functions.into_iter().collect();
    found.functions.sort_unstable();
    found
}

fn address_taken(instruction: &Instruction) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        // Programs at fixed addresses have them as numbers.
        Mnemonic::Mov => match instruction.op1_kind() {
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                Some(instruction.immediate(1))
            }
            _ => None,
        },
        _ => None,
    }
}

fn slot_read(instruction: &Instruction) -> Option<u64> {
    let reads =
        matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Cmove | Mnemonic::Cmovne)
            && instruction.op1_kind() == OpKind::Memory
            && instruction.is_ip_rel_memory_operand();
    reads.then(|| instruction.ip_rel_memory_address())
}

#[cfg(test)]
mod tests {
    use crate::module::ModuleFile;
    use crate::{Cache, ModuleSymbols};
    use std::path::Path;

    /// The C library of this very test.
    fn libc() -> ModuleSymbols {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.split_whitespace().nth(5)?.strip_suffix("libc.so.6"));
        let path = format!("{}libc.so.6", path.unwrap());
        ModuleSymbols::open(ModuleFile::here(Path::new(&path)), &Cache::disabled()).unwrap()
    }

    #[test]
    fn a_plain_name_is_the_default_version() {
        let libc = libc();
        let kinds = |name: &str| -> Vec<_> {
            let found = libc.find(name);
            found.iter().map(|i| libc.functions().get(*i as usize).unwrap().kind()).collect()
        };
        let ifunc = vec![crate::FunctionKind::Ifunc];
        assert_eq!(kinds("memcpy"), ifunc);
        assert_eq!(kinds("memcpy@@GLIBC_2.14"), ifunc);
        let old = kinds("memcpy@GLIBC_2.2.5");
        assert_eq!(old.len(), 1);
        assert_ne!(libc.find("memcpy"), libc.find("memcpy@GLIBC_2.2.5"));
    }

    #[test]
    fn what_a_resolver_can_choose() {
        let libc = libc();
        let index = libc.find("strlen")[0];
        let candidates = libc.candidates(index).unwrap();
        assert!(!candidates.is_open);
        assert!(candidates.functions.len() >= 3, "{candidates:?}");
        // This one asks the vDSO.
        assert!(libc.candidates(libc.find("time")[0]).unwrap().is_open);
    }
}
