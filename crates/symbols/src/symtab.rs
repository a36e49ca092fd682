//! Functions and variables from symbol tables: `.symtab`, `.dynsym`, and the dynamic segment where the section
//! headers are gone.

use std::borrow::Cow;
use std::collections::HashMap;

use object::elf::{self, Dyn64, Sym64};
use object::{LittleEndian as LE, pod};

use crate::elf::{CodeRanges, Elf, Section, string_at};
use crate::raw::{Binding, FunctionKind, Origin, RawFunction, Visibility};
use crate::versions::Versions;

/// Names are cut here. The longest that compilers are known to write are a tenth of this.
const LONGEST_NAME: usize = 1 << 16;

/// How much longer the names of all symbols may be than the strings they are taken from.
const NAME_SHARING_LIMIT: usize = 8;

/// A symbol table and the strings that its names are in.
pub(crate) struct SymbolTable<'data> {
    symbols: Cow<'data, [u8]>,
    strings: Cow<'data, [u8]>,
    origin: Origin,
    versions: Versions,
    /// The names of symbols that are no default version, with the version: a plain name is the default.
    versioned: HashMap<usize, Vec<u8>>,
}

impl<'data> SymbolTable<'data> {
    /// The table in the first section of that type (`SHT_SYMTAB` or `SHT_DYNSYM`).
    pub(crate) fn in_section(
        elf: &'data Elf,
        section_type: elf::SectionType,
        origin: Origin,
    ) -> Option<Result<Self, String>> {
        let section = elf.sections.iter().find(|section| section.kind == section_type)?;
        if section.size == 0 {
            return None;
        }
        let strings = elf.sections.get(section.link as usize);
        let read = |section: &Section| elf.contents(section);
        Some(match (read(section), strings.and_then(read)) {
            (Some(symbols), Some(strings)) => {
                let versions = match origin {
                    Origin::Dynsym => Versions::read(elf, &strings),
                    _ => Versions::default(),
                };
                Ok(Self::new(symbols, strings, origin, versions))
            }
            _ => Err(format!("the symbols of {} lie outside the file", section.name)),
        })
    }

    /// The dynamic symbols of a module whose section headers cannot be read.
    pub(crate) fn in_dynamic_segment(elf: &'data Elf) -> Option<Self> {
        let segment = elf.segments.iter().find(|segment| segment.kind == elf::PT_DYNAMIC)?;
        let dynamic = elf.at_address(segment.address, segment.file_size)?;
        let count = dynamic.len() / size_of::<Dyn64<LE>>();
        let (entries, _) = pod::slice_from_bytes::<Dyn64<LE>>(&dynamic, count).ok()?;
        let value = |tag| {
            entries.iter().find(|entry| entry.d_tag.get(LE) == tag).map(|entry| entry.d_val.get(LE))
        };
        let address = |tag| value(tag).map(|address| elf.unrelocated(address));
        let symbols_at = address(elf::DT_SYMTAB)?;
        let strings = elf.at_address(address(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?)?;
        let count = address(elf::DT_GNU_HASH)
            .and_then(|hash| count_by_gnu_hash(elf, hash))
            .or_else(|| count_by_hash(elf, address(elf::DT_HASH)?))?;
        let size = count.checked_mul(size_of::<Sym64<LE>>() as u64)?;
        let symbols = elf.at_address(symbols_at, size)?;
        Some(Self::new(symbols, strings, Origin::Dynsym, Versions::default()))
    }

    fn new(
        symbols: Cow<'data, [u8]>,
        strings: Cow<'data, [u8]>,
        origin: Origin,
        versions: Versions,
    ) -> Self {
        let mut table = Self { symbols, strings, origin, versions, versioned: HashMap::new() };
        let symbols = table.symbols();
        let versioned = table.versions.hidden().filter_map(|(index, version)| {
            let symbol = symbols.get(index)?;
            if symbol.st_shndx.get(LE) == elf::SHN_UNDEF {
                return None;
            }
            let name = string_at(&table.strings, symbol.st_name.get(LE).into(), LONGEST_NAME)?;
            Some((index, [name, b"@", version].concat()))
        });
        table.versioned = versioned.collect();
        table
    }

    /// Adds the functions of the table that lie in code; says so when it has to stop early.
    pub(crate) fn functions<'own>(
        &'own self,
        code: &CodeRanges,
        found: &mut Vec<RawFunction<'own>>,
    ) -> Result<(), String> {
        // Symbols may share the strings they are named by. All of a million symbols with the same
        // megabyte for a name would be a file made to exhaust its reader.
        let mut name_bytes_left = self.strings.len().saturating_mul(NAME_SHARING_LIMIT);
        let symbols = self.symbols().iter().enumerate();
        for function in symbols.filter_map(|(index, symbol)| self.function(index, symbol, code)) {
            name_bytes_left =
                name_bytes_left.checked_sub(function.name.len()).ok_or_else(|| {
                    format!("too many symbols of {} share a name", self.origin.name())
                })?;
            found.push(function);
        }
        Ok(())
    }

    fn symbols(&self) -> &[Sym64<LE>] {
        let count = self.symbols.len() / size_of::<Sym64<LE>>();
        let symbols = pod::slice_from_bytes::<Sym64<LE>>(&self.symbols, count);
        symbols.map(|(symbols, _)| symbols).unwrap_or_default()
    }

    /// The addresses and sizes of variables with a wanted name. Those that each thread has for itself
    /// have no address, and constants of the linker are none.
    pub(crate) fn variables(
        &self,
        is_wanted: &impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (u64, u64)> {
        self.symbols().iter().filter_map(move |symbol| {
            let is_here = !matches!(symbol.st_shndx.get(LE), elf::SHN_UNDEF | elf::SHN_ABS);
            let name = (is_here && symbol.st_type() == elf::STT_OBJECT)
                .then(|| string_at(&self.strings, symbol.st_name.get(LE).into(), LONGEST_NAME))??;
            let is_wanted = std::str::from_utf8(name).is_ok_and(is_wanted);
            is_wanted.then(|| (symbol.st_value.get(LE), symbol.st_size.get(LE)))
        })
    }

    /// The variables that contain an address: where each starts, its size and its name.
    pub(crate) fn variables_at(&self, address: u64) -> impl Iterator<Item = (u64, u64, &str)> {
        self.symbols().iter().filter_map(move |symbol| {
            let (start, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
            let is_here = !matches!(symbol.st_shndx.get(LE), elf::SHN_UNDEF | elf::SHN_ABS)
                && symbol.st_type() == elf::STT_OBJECT
                && address.checked_sub(start).is_some_and(|offset| offset < size);
            let name = is_here
                .then(|| string_at(&self.strings, symbol.st_name.get(LE).into(), LONGEST_NAME))??;
            Some((start, size, std::str::from_utf8(name).ok()?))
        })
    }

    fn function<'own>(
        &'own self,
        index: usize,
        symbol: &Sym64<LE>,
        code: &CodeRanges,
    ) -> Option<RawFunction<'own>> {
        if symbol.st_shndx.get(LE) == elf::SHN_UNDEF {
            return None;
        }
        let binding = match symbol.st_bind() {
            elf::STB_LOCAL => Binding::Local,
            elf::STB_WEAK => Binding::Weak,
            _ => Binding::Global,
        };
        let kind = match symbol.st_type() {
            elf::STT_FUNC => FunctionKind::Function,
            elf::STT_GNU_IFUNC => FunctionKind::Ifunc,
            // Assembler code often forgets the type; what it exports is a function all the same.
            elf::STT_NOTYPE if binding != Binding::Local => FunctionKind::Function,
            _ => return None,
        };
        let address = symbol.st_value.get(LE);
        if !code.contains(address) {
            return None;
        }
        let name = match self.versioned.get(&index) {
            Some(name) => name,
            None => string_at(&self.strings, symbol.st_name.get(LE).into(), LONGEST_NAME)?,
        };
        if name.is_empty() {
            return None;
        }
        let visibility = match symbol.st_visibility() {
            elf::STV_INTERNAL => Visibility::Internal,
            elf::STV_HIDDEN => Visibility::Hidden,
            elf::STV_PROTECTED => Visibility::Protected,
            _ => Visibility::Default,
        };
        let size = symbol.st_size.get(LE);
        Some(RawFunction { address, size, name, kind, binding, visibility, origin: self.origin })
    }

    /// The version of one symbol, for relocations.
    pub(crate) fn version(&self, index: u32) -> Option<&[u8]> {
        self.versions.of(index as usize)
    }

    /// The name of one symbol, for relocations.
    pub(crate) fn name(&self, index: u32) -> Option<&[u8]> {
        let size = size_of::<Sym64<LE>>();
        let symbol = self.symbols.get((index as usize).checked_mul(size)?..)?;
        let (symbol, _) = pod::from_bytes::<Sym64<LE>>(symbol).ok()?;
        string_at(&self.strings, symbol.st_name.get(LE).into(), LONGEST_NAME)
            .filter(|name| !name.is_empty())
    }
}

/// The number of symbols, which only the hash tables tell: here the last symbol of the chains.
fn count_by_gnu_hash(elf: &Elf, address: u64) -> Option<u64> {
    let words = |address: u64, count: u64| elf.at_address(address, count.checked_mul(4)?);
    let header = words(address, 4)?;
    let bucket_count = u64::from(word(&header, 0)?);
    let first_hashed = u64::from(word(&header, 1)?);
    let bloom_size = u64::from(word(&header, 2)?) * 8;
    let buckets_at = address.checked_add(16 + bloom_size)?;
    let buckets = words(buckets_at, bucket_count)?;
    let last_chain = buckets.chunks_exact(4).filter_map(|bucket| word(bucket, 0)).max()?;
    let last_chain = u64::from(last_chain);
    if last_chain < first_hashed {
        return Some(first_hashed);
    }
    let chains_at = buckets_at.checked_add(bucket_count * 4)?;
    let chain = elf.rest_of_segment(chains_at.checked_add((last_chain - first_hashed) * 4)?)?;
    let length = chain.chunks_exact(4).position(|entry| entry[0] & 1 == 1)?;
    Some(last_chain + length as u64 + 1)
}

fn count_by_hash(elf: &Elf, address: u64) -> Option<u64> {
    word(&elf.at_address(address, 8)?, 1).map(u64::from)
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(index * 4..index * 4 + 4)?.try_into().ok()?))
}
