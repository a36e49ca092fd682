//! The modules of a live process: its program, its libraries, the vDSO.

use super::memory;
use super::proc::{self, FileId, Mapping, Tid};
use crate::base::page::PAGE;
use crate::{Result, TargetAddr};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use weft_symbols::{build_id_note, inside};

/// An ELF file that is mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its path in the target's own mount namespace, which may have been removed or taken by another
    /// file since; or `[vdso]`.
    pub path: String,
    /// The file, as the kernel tells it apart from others whatever their names.
    pub file: FileId,
    /// Whether it is the program itself, not a library.
    pub is_program: bool,
    /// Where weft can open the very same file; `None` when it can only be read from memory.
    pub open_path: Option<PathBuf>,
    /// The first address that it is mapped at.
    pub start: TargetAddr,
    /// The address after the last.
    pub end: TargetAddr,
    /// What to add to an address of the file to get the address in the process.
    pub bias: u64,
    /// The build-id, if it has one.
    pub build_id: Option<Vec<u8>>,
}

impl Module {
    /// Whether this is what `other` was when it was listed: the same file at the same addresses. Its name
    /// says nothing: files are renamed, removed and replaced while programs run them.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |m: &Self| (m.file, m.start, m.end, m.bias);
        place(self) == place(other)
    }
}

/// The path of the program that a process runs, as the process would name it; `None` if it has ended.
pub fn program_path(pid: Tid) -> Option<String> {
    let exe = format!("/proc/{pid}/exe");
    let path = fs::read_link(&exe).ok()?.to_string_lossy().into_owned();
    let inode = fs::metadata(&exe).map_or(0, |m| m.ino());
    Some(undeleted(pid, &path, inode))
}

/// A path without what the kernel appends when the file is no longer at it. Files may be called so, too.
fn undeleted(pid: Tid, path: &str, inode: u64) -> String {
    let is_called_so =
        || fs::metadata(format!("/proc/{pid}/root{path}")).is_ok_and(|m| m.ino() == inode);
    match path.strip_suffix(" (deleted)") {
        // Memory files never have a path.
        Some(before) if !before.starts_with("/memfd:") && !is_called_so() => before.to_owned(),
        _ => path.to_owned(),
    }
}

/// The modules of a process, in the order of their addresses.
pub fn modules(pid: Tid) -> Result<Vec<Module>> {
    proc::check_namespace(pid)?;
    let maps = proc::maps(pid)?;
    let headers = proc::auxiliary_value(pid, libc::AT_PHDR).map(TargetAddr);
    let found = maps
        .iter()
        .enumerate()
        .filter(|(_, m)| m.offset == 0 && m.read && (m.inode != 0 || m.path == "[vdso]"))
        .filter_map(|(index, head)| module(pid, head, &maps[index..]));
    let is_program = |m: &Module| headers.is_some_and(|at| m.start <= at && at < m.end);
    Ok(found.map(|m| Module { is_program: is_program(&m), ..m }).collect())
}

/// The bytes of a module as they are in memory, from its first to its last mapping; holes are zero.
pub fn image(pid: Tid, module: &Module) -> Result<Vec<u8>> {
    let mut image = vec![0; (module.end - module.start) as usize];
    let pages: Vec<_> = (0..image.len())
        .step_by(PAGE as usize)
        .map(|offset| (module.start + offset as u64, PAGE as usize))
        .collect();
    for (page, bytes) in memory::read_many(pid, &pages)?.into_iter().enumerate() {
        if let Some(bytes) = bytes {
            image[page * PAGE as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    Ok(image)
}

/// The program headers of the file that a mapping begins.
pub(crate) fn program_headers(
    pid: Tid,
    head: &Mapping,
) -> Option<(Endianness, Vec<elf::ProgramHeader64<Endianness>>)> {
    let bytes = memory::read(pid, head.start, head.len().min(PAGE) as usize).ok()?;
    let header = elf::FileHeader64::<Endianness>::parse(&*bytes).ok()?;
    let endian = header.endian().ok()?;
    Some((endian, header.program_headers(endian, &*bytes).ok()?.to_vec()))
}

/// The module that `head` begins; `following` starts with it.
fn module(pid: Tid, head: &Mapping, following: &[Mapping]) -> Option<Module> {
    let (endian, segments) = program_headers(pid, head)?;
    let loads = || segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD);
    let first = loads().next()?;
    let bias =
        head.start.0.wrapping_sub(first.p_vaddr(endian).wrapping_sub(first.p_offset(endian)));
    let last_byte = loads().map(|s| s.p_vaddr(endian).saturating_add(s.p_memsz(endian))).max()?;
    let end = TargetAddr(bias.wrapping_add(last_byte).checked_next_multiple_of(PAGE)?);
    // A file that is merely mapped, to be read, has no segment at its place.
    let loaded = following
        .iter()
        .take_while(|m| m.start < end)
        .any(|m| m.file() == head.file() && m.execute);
    if !loaded || end <= head.start {
        return None;
    }
    let build_id = segments.iter().filter(|s| s.p_type(endian) == elf::PT_NOTE).find_map(|s| {
        let size = s.p_filesz(endian).min(PAGE) as usize;
        let notes =
            memory::read(pid, TargetAddr(bias.wrapping_add(s.p_vaddr(endian))), size).ok()?;
        build_id_note(&notes)
    });
    Some(Module {
        path: undeleted(pid, &head.path, head.inode),
        file: head.file(),
        is_program: false,
        open_path: open_path(pid, head),
        start: head.start,
        end,
        bias,
        build_id,
    })
}

/// A path by which weft can open the file behind a mapping: the target may live in another mount
/// namespace, and the file may have been replaced or deleted since.
fn open_path(pid: Tid, head: &Mapping) -> Option<PathBuf> {
    if head.inode == 0 {
        return None;
    }
    let same_file = |path: &PathBuf| File::open(path).is_ok_and(|file| is_mapped(pid, head, &file));
    let root = inside::root_of(pid);
    if let Ok(file) = inside::open_file(&root, Path::new(&head.path))
        && is_mapped(pid, head, &file)
    {
        return Some(PathBuf::from(format!("{}{}", root.display(), head.path)));
    }
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    // The kernel hands out the mapped file itself here, but only to the privileged.
    let mapped =
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", head.start.0, head.end.0));
    [program, mapped].into_iter().find(same_file).or_else(|| open_descriptor(pid, head))
}

/// Whether a file is the one behind a mapping. On some file systems (btrfs, overlays) `/proc/PID/maps` has another device
/// than `stat`: then the beginning of the file has to be what is mapped, headers and build-id.
fn is_mapped(pid: Tid, head: &Mapping, file: &File) -> bool {
    let Ok(found) = file.metadata() else { return false };
    if !found.is_file() || found.ino() != head.inode {
        return false;
    }
    let device = (libc::major(found.dev()), libc::minor(found.dev()));
    if device == head.device {
        return true;
    }
    let size = head.len().min(PAGE).min(found.len()) as usize;
    let mut start = vec![0; size];
    file.read_exact_at(&mut start, head.offset).is_ok()
        && memory::read(pid, head.start, size).is_ok_and(|mapped| mapped == start)
}

/// A memory file has no path, but the process that made it may still have it open.
fn open_descriptor(pid: Tid, head: &Mapping) -> Option<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    entries.flatten().map(|e| e.path()).find(|path| {
        fs::metadata(path).is_ok_and(|m| m.ino() == head.inode)
            && fs::read_link(path).is_ok_and(|link| link.to_string_lossy() == head.path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_program_its_libraries_and_the_vdso() {
        let me = std::process::id() as Tid;
        let modules = modules(me).unwrap();
        let named = |part: &str| modules.iter().find(|m| m.path.contains(part)).unwrap();
        let program = std::env::current_exe().unwrap();
        let mine = named(program.to_str().unwrap());
        assert_eq!(
            fs::metadata(mine.open_path.as_ref().unwrap()).unwrap().ino(),
            fs::metadata(program).unwrap().ino()
        );
        let here = TargetAddr(finds_the_program_its_libraries_and_the_vdso as fn() as usize as u64);
        assert!(mine.start <= here && here < mine.end);
        assert_eq!(named("libc.so.6").build_id.as_ref().unwrap().len(), 20);
        assert!(mine.is_program && !named("libc.so.6").is_program);
        assert_eq!(program_path(me).unwrap(), mine.path);
        let vdso = named("[vdso]");
        assert_eq!(vdso.open_path, None);
        assert!(image(me, vdso).unwrap().starts_with(b"\x7fELF"));
    }
}
