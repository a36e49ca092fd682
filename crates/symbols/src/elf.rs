//! The skeleton of an ELF file: its header, its sections and its segments.
//!
//! Every number in the file is a claim. Nothing here trusts one before it is compared with the
//! length of the file, and nothing takes more memory than the file is long (decompression has its
//! own ceiling).

use std::borrow::Cow;

use object::elf::{self, FileHeader64, NoteHeader64, ProgramHeader64, SectionHeader64};
use object::{LittleEndian as LE, pod};

use crate::backing::Backing;
use crate::decompress;
use crate::{Error, Result};

/// Notes are small and few; a file in which they are not may make nobody wait.
const LARGEST_NOTES: u64 = 1 << 16;
const MOST_NOTES: usize = 64;

/// How the bytes are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As in the file. The vDSO has this layout in memory too.
    File,
    /// As the loader has placed the segments in memory, beginning with the lowest. Only what the
    /// program headers lead to can be found then.
    Memory {
        /// What the loader has added to the addresses in the file.
        bias: u64,
    },
}

/// One section header.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: elf::SectionType,
    pub(crate) flags: elf::SectionFlags,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) entry_size: u64,
}

impl Section {
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|distance| distance < self.size)
    }

    fn is_code(&self) -> bool {
        self.flags.0 & elf::SHF_EXECINSTR.0 != 0
    }
}

/// One program header.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) kind: elf::ProgramType,
    pub(crate) flags: elf::ProgramFlags,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
}

/// The addresses of a module that hold code.
#[derive(Clone, Debug)]
pub(crate) struct CodeRanges {
    /// Start and end, sorted, none touching another.
    ranges: Vec<(u64, u64)>,
}

impl CodeRanges {
    fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let touches = next.0 <= kept.1;
            if touches {
                kept.1 = kept.1.max(next.1);
            }
            touches
        });
        Self { ranges }
    }

    /// The ranges, each from its first address to the one behind it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        after.checked_sub(1).is_some_and(|index| address < self.ranges[index].1)
    }
}

/// An ELF file whose headers have been read.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    pub(crate) backing: Backing,
    pub(crate) layout: Layout,
    file_type: elf::FileType,
    pub(crate) machine: elf::Machine,
    pub(crate) sections: Vec<Section>,
    pub(crate) segments: Vec<Segment>,
    /// What could not be read although the file claims to have it.
    pub(crate) problems: Vec<String>,
}

impl Elf {
    /// Reads the headers.
    pub(crate) fn parse(backing: Backing, layout: Layout) -> Result<Self> {
        let header_size = size_of::<FileHeader64<LE>>() as u64;
        let header_bytes = backing
            .read(0, header_size)
            .ok_or_else(|| bad_file("it is shorter than the header of an ELF file"))?;
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&header_bytes)
            .map_err(|()| bad_file("its header cannot be read"))?;
        let ident = &header.e_ident;
        if ident.magic != elf::ELFMAG {
            return Err(bad_file("it does not begin as an ELF file does"));
        }
        if ident.class != elf::ELFCLASS64 || ident.data != elf::ELFDATA2LSB {
            return Err(bad_file("it is not a 64-bit little-endian ELF file"));
        }
        let mut read = Self {
            layout,
            file_type: header.e_type.get(LE),
            machine: header.e_machine.get(LE),
            sections: Vec::new(),
            segments: Vec::new(),
            problems: Vec::new(),
            backing: backing.clone(),
        };
        read.read_segments(header);
        if layout == Layout::File {
            read.read_sections(header);
        }
        Ok(read)
    }

    /// Fails for what cannot be loaded: the addresses in it mean nothing yet.
    pub(crate) fn check_loadable(self) -> Result<Self> {
        if matches!(self.file_type, elf::ET_EXEC | elf::ET_DYN) {
            return Ok(self);
        }
        Err(bad_file("it is neither a program nor a shared library")
            .advice("link it first, or name the program or library it became part of"))
    }

    fn read_segments(&mut self, header: &FileHeader64<LE>) {
        let size = u64::from(header.e_phnum.get(LE)) * size_of::<ProgramHeader64<LE>>() as u64;
        let Some(bytes) = self.backing.read(header.e_phoff.get(LE), size) else {
            self.problems.push("the program headers lie outside the file".into());
            return;
        };
        let count = usize::from(header.e_phnum.get(LE));
        let headers = pod::slice_from_bytes::<ProgramHeader64<LE>>(&bytes, count);
        self.segments = headers
            .map(|(headers, _)| headers)
            .unwrap_or_default()
            .iter()
            .map(|header| Segment {
                kind: header.p_type.get(LE),
                flags: header.p_flags.get(LE),
                offset: header.p_offset.get(LE),
                address: header.p_vaddr.get(LE),
                file_size: header.p_filesz.get(LE),
                memory_size: header.p_memsz.get(LE),
            })
            .collect();
    }

    fn read_sections(&mut self, header: &FileHeader64<LE>) {
        let offset = header.e_shoff.get(LE);
        if offset == 0 {
            return;
        }
        let entry = size_of::<SectionHeader64<LE>>() as u64;
        let Some(first) = self.backing.read(offset, entry) else {
            self.problems.push("the section headers lie outside the file".into());
            return;
        };
        let Ok((first, _)) = pod::from_bytes::<SectionHeader64<LE>>(&first) else { return };
        // A file with very many sections keeps their number in the first section header.
        let count = match header.e_shnum.get(LE) {
            0 => first.sh_size.get(LE),
            count => u64::from(count),
        };
        let names_index = match header.e_shstrndx.get(LE) {
            elf::SHN_XINDEX => first.sh_link.get(LE) as usize,
            index => usize::from(index.0),
        };
        let Some(bytes) = count.checked_mul(entry).and_then(|size| self.backing.read(offset, size))
        else {
            self.problems.push("the section headers lie outside the file".into());
            return;
        };
        let headers = pod::slice_from_bytes::<SectionHeader64<LE>>(&bytes, count as usize);
        let headers = headers.map(|(headers, _)| headers).unwrap_or_default();
        let names = headers
            .get(names_index)
            .and_then(|names| self.backing.read(names.sh_offset.get(LE), names.sh_size.get(LE)))
            .unwrap_or_default();
        self.sections = headers
            .iter()
            .map(|header| Section {
                // Longer names than this mean nothing to weft, and many headers may share one.
                name: String::from_utf8_lossy(
                    string_at(&names, header.sh_name.get(LE).into(), 64).unwrap_or_default(),
                )
                .into_owned(),
                kind: header.sh_type.get(LE),
                flags: header.sh_flags.get(LE),
                address: header.sh_addr.get(LE),
                offset: header.sh_offset.get(LE),
                size: header.sh_size.get(LE),
                link: header.sh_link.get(LE),
                entry_size: header.sh_entsize.get(LE),
            })
            .collect();
    }

    /// The section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// What a section holds, decompressed; `None` when it has no bytes in this file.
    pub(crate) fn contents(&self, section: &Section) -> Option<Cow<'_, [u8]>> {
        if section.kind == elf::SHT_NOBITS {
            return None;
        }
        let bytes = self.backing.read(section.offset, section.size)?;
        if section.flags.0 & elf::SHF_COMPRESSED.0 == 0 {
            return Some(bytes);
        }
        decompress::section(&bytes).map(Cow::Owned)
    }

    /// The bytes that are at an address once the module is loaded, `len` of them.
    pub(crate) fn at_address(&self, address: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        let end = address.checked_add(len)?;
        let segment = self.loaded().find(|segment| {
            segment.address <= address && end <= segment.address.saturating_add(segment.file_size)
        })?;
        let offset = match self.layout {
            Layout::File => segment.offset.checked_add(address - segment.address)?,
            Layout::Memory { .. } => address.checked_sub(self.lowest_page()?)?,
        };
        self.backing.read(offset, len)
    }

    /// The bytes at an address of a segment that the loader maps to be executed, `len` of them.
    pub(crate) fn code_at(&self, address: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        let is_around = |segment: &&Segment| {
            let inside = address.checked_sub(segment.address);
            inside.is_some_and(|inside| inside < segment.file_size)
        };
        let segment = self.loaded().find(is_around)?;
        (segment.flags.0 & elf::PF_X.0 != 0).then(|| self.at_address(address, len)).flatten()
    }

    /// The bytes from an address to the end of the segment it is in.
    pub(crate) fn rest_of_segment(&self, address: u64) -> Option<Cow<'_, [u8]>> {
        let segment = self.loaded().find(|segment| {
            address.checked_sub(segment.address).is_some_and(|at| at < segment.file_size)
        })?;
        self.at_address(address, segment.file_size - (address - segment.address))
    }

    /// An address as the file states it, for one that the loader may have relocated in memory.
    pub(crate) fn unrelocated(&self, address: u64) -> u64 {
        match self.layout {
            Layout::Memory { bias } if bias != 0 && address >= bias => address - bias,
            _ => address,
        }
    }

    /// The segments that become memory.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == elf::PT_LOAD)
    }

    fn lowest_page(&self) -> Option<u64> {
        self.loaded().map(|segment| segment.address & !0xfff).min()
    }

    /// The addresses that hold code.
    pub(crate) fn code(&self) -> CodeRanges {
        let mut ranges: Vec<_> = self
            .sections
            .iter()
            .filter(|section| section.is_code())
            .map(|section| (section.address, section.address.saturating_add(section.size)))
            .collect();
        if ranges.is_empty() {
            ranges = self
                .loaded()
                .filter(|segment| segment.flags.0 & elf::PF_X.0 != 0)
                .map(|segment| {
                    (segment.address, segment.address.saturating_add(segment.memory_size))
                })
                .collect();
        }
        CodeRanges::new(ranges)
    }

    /// The identifier that the linker gave to this build.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        let from_sections = self
            .sections
            .iter()
            .filter(|section| section.kind == elf::SHT_NOTE && section.size <= LARGEST_NOTES)
            .take(MOST_NOTES)
            .filter_map(|section| self.contents(section))
            .find_map(|notes| build_id_note(&notes));
        from_sections.or_else(|| {
            self.segments
                .iter()
                .filter(|segment| segment.kind == elf::PT_NOTE)
                .filter(|segment| segment.file_size <= LARGEST_NOTES)
                .take(MOST_NOTES)
                .filter_map(|segment| self.at_address(segment.address, segment.file_size))
                .find_map(|notes| build_id_note(&notes))
        })
    }
}

/// The string that begins at an offset of a string table, without its end; at most `limit` bytes.
pub(crate) fn string_at(table: &[u8], offset: u64, limit: usize) -> Option<&[u8]> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let rest = &rest[..rest.len().min(limit)];
    Some(&rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len())])
}

/// Finds the GNU build-id among notes.
pub fn build_id_note(mut notes: &[u8]) -> Option<Vec<u8>> {
    const ALIGN: usize = 4;
    /// The longest identifier that any linker writes is a SHA-512.
    const LONGEST: usize = 64;
    loop {
        let (header, rest) = pod::from_bytes::<NoteHeader64<LE>>(notes).ok()?;
        let name_len = header.n_namesz.get(LE) as usize;
        let len = header.n_descsz.get(LE) as usize;
        let start = name_len.checked_next_multiple_of(ALIGN)?;
        let description = rest.get(start..)?.get(..len)?;
        let is_build_id = header.n_type.get(LE) == elf::NT_GNU_BUILD_ID;
        if is_build_id && rest.starts_with(b"GNU\0") && (1..=LONGEST).contains(&len) {
            return Some(description.to_vec());
        }
        notes = rest.get(start.checked_add(len.checked_next_multiple_of(ALIGN)?)?..)?;
    }
}

fn bad_file(why: &str) -> Error {
    Error::new("the file cannot be read as a program or library").why(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Elf> {
        Elf::parse(Backing::Bytes(bytes.into()), Layout::File)
    }

    #[test]
    fn what_is_no_elf_file_is_refused_with_the_reason() {
        let error = parse(b"#!/bin/sh\n").unwrap_err();
        assert!(error.why.contains("shorter"));
        let error = parse(&[0x41; 100]).unwrap_err();
        assert!(error.why.contains("does not begin"));
    }

    #[test]
    fn this_test_itself_is_an_elf_file_with_code() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = parse(&own).unwrap();
        let text = elf.section(".text").unwrap();
        assert!(elf.code().contains(text.address));
        assert!(!elf.code().contains(0));
        assert!(elf.problems.is_empty());
    }

    #[test]
    fn headers_beyond_the_end_are_a_problem_and_no_more() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = parse(&own[..4096]).unwrap();
        assert_eq!(elf.problems, ["the section headers lie outside the file"]);
        assert!(!elf.segments.is_empty());
    }

    #[test]
    fn a_note_that_claims_too_much_ends_the_search() {
        let mut note = Vec::new();
        for word in [4u32, u32::MAX, 3] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        note.extend_from_slice(b"GNU\0abcd");
        assert_eq!(build_id_note(&note), None);
        note[4..8].copy_from_slice(&4u32.to_le_bytes());
        assert_eq!(build_id_note(&note).as_deref(), Some(&b"abcd"[..]));
    }

    #[test]
    fn notes_made_to_confuse() {
        assert_eq!(build_id_note(&[0xff; 64]), None);
        assert_eq!(build_id_note(b""), None);
        let other = [&4u32.to_ne_bytes()[..], &0u32.to_ne_bytes(), &1u32.to_ne_bytes(), b"GNU\0"];
        let mine = [&4u32.to_ne_bytes()[..], &2u32.to_ne_bytes(), &3u32.to_ne_bytes(), b"GNU\0ab"];
        assert_eq!(build_id_note(&[other.concat(), mine.concat()].concat()), Some(b"ab".to_vec()));
    }
}
