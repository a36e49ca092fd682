//! One module, opened.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::backing::Backing;
use crate::block::Block;
use crate::cache::{Cache, CacheKey};
use crate::collect::{self, collect};
use crate::debug_file::{DebugFiles, FileIdentity};
use crate::dwarf::{DebugInfo, Frame, Lines};
use crate::elf::{Elf, Layout};
use crate::glob::Glob;
use crate::instructions::{self, Instructions};
use crate::jumps::{self, Jump};
use crate::line_table::{self, LineTable};
use crate::names::Names;
use crate::raw::FunctionKind;
use crate::slots::{self, Candidates, Slot};
use crate::sources::{self, Sources};
use crate::table::{Function, FunctionTable};
use crate::written::{self, Executed, Written};
use crate::{Error, Result, hex, inside};
use crate::{frames, json, parallel, results, strings};

/// The two kinds of entries in the cache.
const FUNCTIONS_ENTRY: &str = "functions";
const SOURCES_ENTRY: &str = "sources";

/// A module that is a file.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    /// The path of the file within `root`, as the program that has loaded it would say.
    pub path: PathBuf,
    /// The path to open, from here: `/proc/PID/root/...` reaches into another mount namespace, and is followed there.
    pub open_path: PathBuf,
    /// The root directory that debug files are looked for in, from here: `/proc/PID/root`.
    pub root: PathBuf,
}

impl ModuleFile {
    /// A file of this mount namespace.
    pub fn here(path: &Path) -> Self {
        // Debug files are looked for next to the file itself, not next to a link to it.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self { path: real, open_path: path.to_owned(), root: "/".into() }
    }
}

/// A module whose bytes somebody has read from memory: the vDSO, or a file that is deleted.
#[derive(Clone, Debug)]
pub struct ModuleImage {
    /// What to call it.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// How they are laid out.
    pub layout: Layout,
    /// The root directory that debug files are looked for in.
    pub root: PathBuf,
}

/// Where a module's bytes can be had again when debug information is asked for. Nothing is kept
/// open in between: a process may have a thousand modules, and weft a thousand descriptors.
#[derive(Debug)]
enum Place {
    File(ModuleFile),
    Image(ModuleImage),
}

/// The functions of one module.
pub struct ModuleSymbols {
    place: Place,
    build_id: Option<Vec<u8>>,
    key: Option<CacheKey>,
    stamp: u64,
    cache: Cache,
    functions: FunctionTable,
    names: OnceLock<Names>,
    from_cache: bool,
    sources: OnceLock<Sources>,
    /// The lines, once they have been asked for: nothing when there is no debug information. That
    /// it cannot be read is remembered too, for it may have taken long to find out.
    lines: Mutex<Option<Result<Option<Lines>>>>,
}

/// A module whose headers have been read and whose debug file has been looked for.
struct Opened {
    elf: Elf,
    build_id: Option<Vec<u8>>,
    debug_files: DebugFiles,
    stamp: u64,
    /// Whether the build-id and the stamp together say what the contents are.
    identified: bool,
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::File(file) => &file.path,
            Self::Image(image) => &image.path,
        }
    }

    fn root(&self) -> &Path {
        match self {
            Self::File(file) => &file.root,
            Self::Image(image) => &image.root,
        }
    }

    fn open(&self) -> Result<Opened> {
        let named = |error: Error| Error {
            what: format!("{} cannot be read as a program or library", self.path().display()),
            ..error
        };
        let mut stamp = Stamp::new();
        let (backing, layout, identity) = match self {
            Self::File(module) => {
                let file = open_regular(&module.open_path, &module.root)?;
                let identity = FileIdentity::of(&file);
                let backing = Backing::from_file(file)
                    .map_err(|error| named(Error::new("").why(error.to_string())))?;
                (backing, Layout::File, identity)
            }
            Self::Image(image) => {
                if let Layout::Memory { bias } = image.layout {
                    stamp.add(bias);
                }
                (Backing::Bytes(image.bytes.clone()), image.layout, None)
            }
        };
        let elf = Elf::parse(backing, layout).and_then(Elf::check_loadable).map_err(named)?;
        let build_id = elf.build_id();
        let debug_files = DebugFiles::find(&elf, build_id.as_deref(), self.path(), self.root());
        // A stripped file and its debug file have one build-id, so the shape counts too. The owner
        // counts because a build-id is only a claim: what one user's file claims must not become
        // the truth about the files of another.
        stamp.add(elf.backing.len());
        stamp.add(elf.sections.len() as u64);
        stamp.add(elf.segments.len() as u64);
        if let Some(identity) = identity {
            stamp.add(identity.owner.into());
            if build_id.is_none() {
                stamp.add_identity(&identity);
            }
        }
        for candidate in debug_files.identities().flatten() {
            stamp.add_identity(&candidate);
        }
        let identified = build_id.is_some() || identity.is_some();
        Ok(Opened { elf, build_id, debug_files, stamp: stamp.0, identified })
    }
}

impl ModuleSymbols {
    /// Reads the functions of a file.
    pub fn open(file: ModuleFile, cache: &Cache) -> Result<Self> {
        Self::read(Place::File(file), cache)
    }

    /// Reads the functions of a module in memory.
    pub fn from_image(image: ModuleImage, cache: &Cache) -> Result<Self> {
        Self::read(Place::Image(image), cache)
    }

    fn read(place: Place, cache: &Cache) -> Result<Self> {
        let opened = place.open()?;
        let Opened { elf, build_id, debug_files, stamp, identified } = opened;
        let key = identified.then(|| CacheKey {
            build_id: build_id.as_deref().map_or_else(|| "file".into(), hex),
            stamp,
        });
        let cached = key
            .as_ref()
            .and_then(|key| cache.load(key, FUNCTIONS_ENTRY))
            .and_then(|entry| FunctionTable::from_bytes(Block::Mapped(entry), stamp));
        let from_cache = cached.is_some();
        let functions = match cached {
            Some(functions) => functions,
            None => {
                let (debug_file, problems) = debug_files.choose();
                let debug_file = debug_file.as_ref().map(|(elf, _)| elf);
                let functions = collect(&elf, debug_file, problems, stamp)?;
                if let Some(key) = &key {
                    cache.store(key, FUNCTIONS_ENTRY, functions.bytes());
                }
                functions
            }
        };
        Ok(Self {
            place,
            build_id,
            key,
            stamp,
            cache: cache.clone(),
            functions,
            names: OnceLock::new(),
            from_cache,
            sources: OnceLock::new(),
            lines: Mutex::new(None),
        })
    }

    /// The path of the module, as the program that has loaded it would say.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The identifier that the linker gave to this build, in hexadecimal digits.
    pub fn build_id(&self) -> Option<String> {
        self.build_id.as_deref().map(hex)
    }

    /// Whether the functions came from the cache.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache
    }

    /// All functions, sorted by offset.
    pub fn functions(&self) -> &FunctionTable {
        &self.functions
    }

    /// Where its unwind tables are (`.eh_frame`), as the file states it.
    pub fn frames_address(&self) -> Option<u64> {
        frames::address(&self.place.open().ok()?.elf)
    }

    /// What could not be read, in words.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.functions.problems()
    }

    /// The functions one of whose names (the linker's, the demangled, an alias) matches.
    pub fn select(&self, names: &Glob) -> Vec<u32> {
        if names.matches_all() {
            return (0..self.functions.len() as u32).collect();
        }
        let matching = self.functions.iter().filter(|function| matches(*function, names));
        matching.map(|function| function.index() as u32).collect()
    }

    /// The functions that have exactly this name, or this alias, or this demangled name with or
    /// without its parameters.
    ///
    /// A name without a version is that of the default version, `memcpy` and `memcpy@@GLIBC_2.14`; where there is none,
    /// it is that of all versions.
    pub fn find(&self, name: &str) -> Vec<u32> {
        let found = self.find_exactly(name);
        if !found.is_empty() || name.is_empty() {
            return found;
        }
        if let Some((plain, version)) = name.split_once("@@") {
            let hidden = self.find_exactly(&format!("{plain}@{version}"));
            return if hidden.is_empty() { self.find_exactly(plain) } else { Vec::new() };
        }
        let is_version = |one: &str| {
            one.strip_prefix(name).is_some_and(|rest| rest.starts_with('@') && rest != "@plt")
        };
        self.called(name, |function| {
            is_version(function.name()) || function.aliases().any(is_version)
        })
    }

    fn find_exactly(&self, name: &str) -> Vec<u32> {
        let is_it = |function: &Function<'_>| {
            function.name() == name
                || function.demangled().is_some_and(|demangled| {
                    demangled.strip_prefix(name).is_some_and(|rest| {
                        rest.is_empty() || (rest.starts_with('(') && !name.is_empty())
                    })
                })
                || function.aliases().any(|alias| alias == name)
        };
        self.called(name, is_it)
    }

    /// The functions of a name that is one of those in the index, if they are the ones.
    fn called(&self, name: &str, is_it: impl Fn(&Function<'_>) -> bool) -> Vec<u32> {
        let names = self.names.get_or_init(|| Names::of(&self.functions));
        let may_be = names.candidates(name);
        may_be
            .filter(|&index| self.functions.get(index as usize).as_ref().is_some_and(&is_it))
            .collect()
    }

    /// The function at an offset, and the source line with the functions inlined there.
    pub fn frames_at(&self, offset: u64) -> Result<Vec<Frame>> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let load = || self.debug_info()?.map(|info| info.lines()).transpose();
        match lines.get_or_insert_with(load) {
            Ok(Some(lines)) => lines.frames(offset),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Where in the source every function is written.
    pub fn sources(&self) -> Result<&Sources> {
        if let Some(sources) = self.sources.get() {
            return Ok(sources);
        }
        let cached = self
            .key
            .as_ref()
            .and_then(|key| self.cache.load(key, SOURCES_ENTRY))
            .and_then(|entry| Sources::from_bytes(Block::Mapped(entry), self.stamp));
        let sources = match cached {
            Some(sources) => sources,
            None => {
                let debug_info = self.debug_info()?;
                let found = sources::find(&self.functions, debug_info.as_ref(), self.stamp);
                let found =
                    found.ok_or_else(|| Error::new("the module names too many source files"))?;
                if let Some(key) = &self.key {
                    self.cache.store(key, SOURCES_ENTRY, found.bytes());
                }
                found
            }
        };
        Ok(self.sources.get_or_init(|| sources))
    }

    /// The lines of all code; empty when there is no debug information.
    pub fn line_table(&self) -> Result<LineTable> {
        Ok(self.debug_info()?.as_ref().map(line_table::read).unwrap_or_default())
    }

    /// Of functions, given by their offsets, what they give to their callers, where that is not what is in `rax`
    /// when they return; `None` where it is, or where no debug information tells.
    pub fn other_results(&self, offsets: &[u64]) -> Result<Vec<Option<&'static str>>> {
        let debug_info = self.debug_info()?;
        let found = debug_info.as_ref().map(|info| results::others(info, offsets));
        let found = found.unwrap_or_default();
        Ok(offsets.iter().map(|offset| found.get(offset).copied()).collect())
    }

    /// The instructions of pieces of code, each an offset and a size. Those that are not in the file
    /// are left out.
    pub fn instructions(&self, pieces: &[(u64, u64)]) -> Result<Instructions> {
        Ok(instructions::read(&self.reopen()?.elf, pieces))
    }

    /// The indirect jumps of functions, each an offset and a size, and where their tables lead. Those whose table is
    /// not found, or that have none, are left out.
    pub fn jump_tables(&self, functions: &[(u64, u64)]) -> Result<Vec<Jump>> {
        Ok(jumps::read(&self.reopen()?.elf, functions))
    }

    /// The bytes of pieces of code, each an offset and a size, as the file has them; empty where they are not all in a
    /// segment with code.
    pub fn code(&self, pieces: &[(u64, u64)]) -> Result<Vec<Vec<u8>>> {
        let opened = self.reopen()?;
        let bytes = |&(at, size): &(u64, u64)| opened.elf.code_at(at, size).unwrap_or_default();
        Ok(pieces.iter().map(|piece| bytes(piece).into_owned()).collect())
    }

    /// What the file has of blocks that were executed, and the source files that their lines are in.
    pub fn written(&self, blocks: &[Executed]) -> Result<(Vec<String>, Vec<Written>)> {
        let pieces = || blocks.iter().map(|&(offset, size, _)| (offset, size));
        let table = self.debug_info()?.as_ref().map(|info| line_table::read_of(info, pieces()));
        let table = table.unwrap_or_default();
        let found = written::find(&self.reopen()?.elf, &table, blocks);
        Ok((table.files, found))
    }

    /// Instructions for people: of each piece, the offsets and the texts of its instructions.
    pub fn disassemble(&self, pieces: &[(u64, u64)]) -> Result<Vec<Vec<(u64, String)>>> {
        Ok(instructions::disassemble(&self.reopen()?.elf, pieces))
    }

    /// Functions as JSON objects, separated by a comma and a new line.
    pub fn json(&self, indexes: &[u32], sources: Option<&Sources>) -> String {
        const CHUNK: usize = 4096;
        let get = |index: &u32| self.functions.get(*index as usize);
        let functions: Vec<Function<'_>> = indexes.iter().filter_map(get).collect();
        let chunks = parallel::map_chunks(&functions, CHUNK, |chunk| {
            let mut out = String::new();
            for function in chunk {
                if !out.is_empty() {
                    out.push_str(",\n");
                }
                json::push_function(&mut out, *function, sources);
            }
            out
        });
        chunks.join(",\n")
    }

    /// The variables of a name, each with its offset and its size. Read when asked for: one who wants
    /// a variable wants few.
    pub fn variables(&self, name: &str) -> Result<Vec<(u64, u64)>> {
        let opened = self.reopen()?;
        let debug_file = opened.debug_files.choose().0;
        Ok(collect::variables(&opened.elf, debug_file.as_ref().map(|(elf, _)| elf), name))
    }

    /// The variable that contains an offset: its name, and the offset at which it starts.
    pub fn variable_at(&self, offset: u64) -> Result<Option<(String, u64)>> {
        let opened = self.reopen()?;
        let debug_file = opened.debug_files.choose().0;
        Ok(collect::variable_at(&opened.elf, debug_file.as_ref().map(|(elf, _)| elf), offset))
    }

    /// The slots of the module that resolvers fill, and those of symbols with one of these names.
    pub fn slots(&self, names: &HashSet<&str>) -> Result<Vec<Slot>> {
        Ok(slots::slots(&self.reopen()?.elf, names))
    }

    /// What a resolver can choose, as far as its code tells. It is given by its index among the functions.
    pub fn candidates(&self, resolver: u32) -> Result<Candidates> {
        let Some(function) = self.functions.get(resolver as usize) else {
            return Ok(Candidates::default());
        };
        let begins = |address| {
            let containing = self.functions.containing(address);
            containing
                .is_some_and(|one| one.offset() == address && one.kind() == FunctionKind::Function)
        };
        Ok(slots::candidates(&self.reopen()?.elf, function.offset(), function.size(), begins))
    }

    /// Where its code takes the address of a string.
    pub fn users_of(&self, text: &str) -> Result<Vec<u64>> {
        Ok(strings::users(&self.reopen()?.elf, text))
    }

    /// The module once more, if it still is what it was.
    fn reopen(&self) -> Result<Opened> {
        let opened = self.place.open()?;
        if opened.stamp != self.stamp || opened.build_id != self.build_id {
            return Err(Error::new(format!(
                "{} has changed since its functions were read",
                self.path().display()
            ))
            .advice("open the module again"));
        }
        Ok(opened)
    }

    /// The debug information in the module itself, or else in its debug file.
    fn debug_info(&self) -> Result<Option<DebugInfo>> {
        let opened = self.reopen()?;
        let root = self.place.root();
        if let Some(own) = DebugInfo::load(&opened.elf, self.path(), root)? {
            return Ok(Some(own));
        }
        match opened.debug_files.choose().0 {
            Some((elf, path)) => DebugInfo::load(&elf, path, root),
            None => Ok(None),
        }
    }
}

fn matches(function: Function<'_>, names: &Glob) -> bool {
    names.matches(function.name())
        || function.demangled().is_some_and(|demangled| names.matches(demangled))
        || function.aliases().any(|alias| names.matches(alias))
}

fn open_regular(path: &Path, root: &Path) -> Result<File> {
    let here = Path::new("/");
    let opened = match path.strip_prefix(root) {
        Ok(within) if root != here => inside::open_file(root, within),
        // What the kernel hands out (`/proc/PID/exe`) is no path that could lead elsewhere.
        _ => open_here(path),
    };
    opened.map_err(|error| {
        let what = format!("{} cannot be opened", path.display());
        Error::new(what).why(error.to_string())
    })
}

fn open_here(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// A number that stands for everything that has been added to it (FNV-1a).
struct Stamp(u64);

impl Stamp {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn add_identity(&mut self, identity: &FileIdentity) {
        for value in [identity.device, identity.inode, identity.size] {
            self.add(value);
        }
        self.add(identity.modified.0 as u64);
        self.add(identity.modified.1 as u64);
    }
}
