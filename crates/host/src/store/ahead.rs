//! Making the clone of a file before anything of it is executed.

use super::folder::Folder;
use super::keep::{key_of, place_for, read_code};
use super::learnt::identity_of;
use crate::base::page::PAGE;
use crate::{Error, ErrorKind, Result};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_agent::storing::{self, Executed, Extent};
use weft_symbols::{Cache, ModuleFile, ModuleSymbols};

/// Where libraries are, about.
const HIGH: u64 = 0x7f00_0000_0000;

/// A part of a file that is mapped to be executed.
struct Code {
    /// Where it is mapped, from where the file is mapped.
    address: u64,
    offset: u64,
    length: u64,
    /// Whether it is mapped where it says.
    is_fixed: bool,
}

/// Makes the clone of a program or library, as far as its control flow can be found in it. Returns how many places were
/// found.
pub fn prepare(folder: &Folder, path: &Path, table: u64) -> Result<u64> {
    let failed = |why: String| {
        let what = format!("{} cannot be prepared", path.display());
        Error::new(ErrorKind::InvalidArgument, what).why(why)
    };
    let path = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
    if !fs::metadata(&path).is_ok_and(|status| status.is_file()) {
        return Err(failed("it is no file".into()));
    }
    let parts = parts(&path).map_err(failed)?;
    let file = ModuleFile::here(&path);
    let symbols =
        ModuleSymbols::open(file, &Cache::of_user()).map_err(|e| failed(e.to_string()))?;
    let functions: Vec<(u64, u64)> =
        symbols.functions().iter().map(|function| (function.offset(), function.size())).collect();
    let jumps = symbols.jump_tables(&functions).unwrap_or_default();
    let targets = jumps.into_iter().flat_map(|(_, targets)| targets);
    let starts: BTreeSet<u64> =
        functions.iter().map(|function| function.0).chain(targets).collect();
    let mut count = 0;
    for part in parts {
        let places: Vec<Executed> = starts
            .range(part.address..part.address + part.length)
            .filter_map(|start| u32::try_from(start - part.address).ok())
            .map(|offset| Executed { offset, is_entered: true })
            .collect();
        let status = File::open(&path).and_then(|file| file.metadata());
        let status = status.map_err(|error| failed(error.to_string()))?;
        let identity = identity_of(&status, part.offset, part.length);
        let key = key_of(identity, table);
        let start = if part.is_fixed { part.address } else { HIGH };
        let Some(code) = read_code(&path, &identity) else {
            return Err(failed("it was changed a moment ago, or is too large".into()));
        };
        if storing::may_have_sequences(&code) {
            return Err(failed("it has restartable sequences (rseq)".into()));
        }
        let name = path.as_os_str().as_bytes();
        let made = place_for(start, places.len(), &key, &[]).and_then(|distance| {
            storing::store(key, (name, &code), &places, distance, Extent::Reachable)
        });
        let made = made.ok_or_else(|| failed("no function can be found in it".into()))?;
        folder.put(&key, &made).map_err(|error| failed(error.to_string()))?;
        count += folder.block_count(&key).unwrap_or_default();
    }
    folder.trim();
    Ok(count)
}

/// What the kernel, and every loader, maps of a file to be executed.
fn parts(path: &Path) -> Result<Vec<Code>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let file =
        ElfFile64::<object::Endianness>::parse(&*bytes).map_err(|error| error.to_string())?;
    let endian = file.elf_header().endian().map_err(|error| error.to_string())?;
    let is_fixed = file.elf_header().e_type.get(endian) == elf::ET_EXEC;
    let mut parts = Vec::new();
    for segment in file.elf_program_headers() {
        let flags = segment.p_flags(endian).0;
        let is_code = flags & elf::PF_X.0 != 0 && flags & elf::PF_W.0 == 0;
        if segment.p_type(endian) != elf::PT_LOAD || !is_code {
            continue;
        }
        let (address, offset) = (segment.p_vaddr(endian), segment.p_offset(endian));
        let before = address % PAGE;
        parts.push(Code {
            address: address - before,
            offset: offset.checked_sub(before).ok_or("its program headers make no sense")?,
            length: (before + segment.p_filesz(endian)).next_multiple_of(PAGE),
            is_fixed,
        });
    }
    if parts.is_empty() { Err("it has no code".into()) } else { Ok(parts) }
}
