//! Separate debug files: where they may be, and which of them belongs to a module.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::backing::Backing;
use crate::elf::{Elf, Layout, string_at};
use crate::inside;

/// Where distributions put the debug files of their packages.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// What a module says about its debug file.
#[derive(Debug)]
pub(crate) struct DebugFiles {
    build_id: Option<Vec<u8>>,
    /// The name and the checksum in `.gnu_debuglink`.
    link: Option<(String, u32)>,
    candidates: Vec<Candidate>,
}

/// A file that is where the debug file should be.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    file: File,
    by_build_id: bool,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) owner: u32,
}

impl FileIdentity {
    pub(crate) fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            owner: metadata.uid(),
        })
    }
}

impl DebugFiles {
    /// Finds the files that are where the debug file of a module should be. `path` is where the
    /// module is within `root`.
    pub(crate) fn find(module: &Elf, build_id: Option<&[u8]>, path: &Path, root: &Path) -> Self {
        let link = debug_link(module);
        let mut found =
            Self { build_id: build_id.map(<[u8]>::to_vec), link, candidates: Vec::new() };
        let own = match &module.backing {
            Backing::File(file, _) => FileIdentity::of(file),
            Backing::Bytes(_) => None,
        };
        for (candidate, by_build_id) in found.places(path) {
            if let Ok(file) = inside::open_file(root, &candidate)
                // A debug link may name the file that it is in.
                && FileIdentity::of(&file) != own
            {
                found.candidates.push(Candidate { path: candidate, file, by_build_id });
            }
        }
        found
    }

    fn places(&self, module: &Path) -> Vec<(PathBuf, bool)> {
        let mut places = Vec::new();
        if let Some(build_id) = &self.build_id
            && build_id.len() > 1
        {
            places.push((build_id_path(build_id), true));
        }
        if let (Some((name, _)), Some(directory)) = (&self.link, module.parent()) {
            let below_root = directory.strip_prefix("/").unwrap_or(directory);
            places.push((directory.join(name), false));
            places.push((directory.join(".debug").join(name), false));
            places.push((Path::new(DEBUG_DIRECTORY).join(below_root).join(name), false));
        }
        places
    }

    /// What tells apart the states in which the candidates can be.
    pub(crate) fn identities(&self) -> impl Iterator<Item = Option<FileIdentity>> {
        self.candidates.iter().map(|candidate| FileIdentity::of(&candidate.file))
    }

    /// The first candidate that belongs to the module, with its path within the root, and why the
    /// ones before it do not.
    pub(crate) fn choose(&self) -> (Option<(Elf, &Path)>, Vec<String>) {
        let mut problems = Vec::new();
        for candidate in &self.candidates {
            match self.check(candidate) {
                Ok(elf) => return (Some((elf, &candidate.path)), problems),
                Err(why) => {
                    problems.push(format!("{} is not used: {why}", candidate.path.display()));
                }
            }
        }
        (None, problems)
    }

    fn check(&self, candidate: &Candidate) -> Result<Elf, String> {
        let file = candidate.file.try_clone().map_err(|error| error.to_string())?;
        let backing = Backing::from_file(file).map_err(|error| error.to_string())?;
        if !candidate.by_build_id
            && let Some((_, expected)) = &self.link
            && backing.crc32() != Some(*expected)
        {
            return Err("its checksum is not the one in .gnu_debuglink".into());
        }
        let elf = Elf::parse(backing, Layout::File).map_err(|error| error.why)?;
        if candidate.by_build_id && elf.build_id() != self.build_id {
            return Err("its build-id is another one".into());
        }
        Ok(elf)
    }
}

/// The file that holds what the debug files of one package have in common (`.gnu_debugaltlink`).
/// `path` is where the file that refers to it is within `root`.
pub(crate) fn supplementary(debug: &Elf, path: &Path, root: &Path) -> Option<Elf> {
    let contents = debug.contents(debug.section(".gnu_debugaltlink")?)?;
    let name = string_at(&contents, 0, 4096)?;
    let build_id = contents.get(name.len() + 1..).filter(|id| (2..=64).contains(&id.len()))?;
    let named = path.parent()?.join(std::str::from_utf8(name).ok()?);
    [build_id_path(build_id), named].iter().find_map(|place| {
        let backing = Backing::from_file(inside::open_file(root, place).ok()?).ok()?;
        let elf = Elf::parse(backing, Layout::File).ok()?;
        (elf.build_id().as_deref() == Some(build_id)).then_some(elf)
    })
}

fn build_id_path(build_id: &[u8]) -> PathBuf {
    let hex = crate::hex(build_id);
    Path::new(DEBUG_DIRECTORY)
        .join(".build-id")
        .join(&hex[..2])
        .join(format!("{}.debug", &hex[2..]))
}

fn debug_link(module: &Elf) -> Option<(String, u32)> {
    let contents = module.contents(module.section(".gnu_debuglink")?)?;
    let name = string_at(&contents, 0, 256)?;
    let checksum_at = (name.len() + 1).next_multiple_of(4);
    let checksum = contents.get(checksum_at..checksum_at + 4)?;
    let name = std::str::from_utf8(name).ok()?;
    // A name, not a path: anything else would lead out of the directories it is looked for in.
    let is_name = !name.is_empty() && name != ".." && name != "." && !name.contains('/');
    is_name.then(|| Some((name.to_owned(), u32::from_le_bytes(checksum.try_into().ok()?))))?
}
