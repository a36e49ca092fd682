//! The unwind rules of a target's modules, in memory that its snippets read: see [`weft_snippet::unwind`].

use crate::process::modules::{self, Module};
use crate::process::proc::{self, FileId, Mapping, Tid};
use crate::stacks::rules::{ModuleRows, RuleSet, module_rows};
use crate::trip::place;
use crate::trip::sharing::{Sharing, map_shared};
use crate::{Result, TargetAddr};
use memmap2::MmapMut;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use weft_abi::VALUES_NAME;
use weft_snippet::unwind::{FREE, HEAD, RULES, Region};

/// How long the memory is. It takes real memory only where it is written to: 8 bytes for each of some ten thousand rows
/// of a library, some million of a browser.
const LENGTH: u64 = 128 << 20;

/// The rules of a target's modules.
#[derive(Debug, Default)]
pub struct StackTables {
    set: RuleSet,
    /// What is from [`FREE`] on: rows and lists.
    words: Vec<u64>,
    /// By the file, or the name of what has none.
    modules: HashMap<(FileId, String), Placed>,
    /// The current list.
    list: Vec<u64>,
    list_at: u32,
    generation: u32,
    shared: Option<Shared>,
    /// All code that was ever seen.
    seen: BTreeSet<SeenCode>,
}

/// Code of a module that a target has, or had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenCode {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The module's bias.
    pub bias: u64,
    /// Its file.
    pub file: FileId,
    /// Its path.
    pub path: String,
}

/// Where the rows of a module are.
#[derive(Debug, Default)]
struct Placed {
    rows: u32,
    count: u32,
    signal_returns: Vec<u64>,
}

#[derive(Debug)]
struct Shared {
    base: TargetAddr,
    memory: MmapMut,
    file: FileId,
    rules: usize,
    words: usize,
}

impl StackTables {
    /// Brings them into a process.
    pub fn create(
        &mut self,
        pid: Tid,
        share: &mut dyn FnMut(&Sharing) -> Result<MmapMut>,
    ) -> Result<()> {
        let base = place::find(pid, &proc::maps(pid)?, LENGTH)?;
        let map = map_shared(base, LENGTH, libc::PROT_READ, 0);
        let memory = share(&Sharing::new(VALUES_NAME, LENGTH, vec![map]))?;
        let maps = proc::maps(pid)?;
        let file = maps.iter().find(|m| m.start == base).map(Mapping::file).unwrap_or_default();
        self.shared = Some(Shared { base, memory, file, rules: 0, words: 0 });
        self.write();
        Ok(())
    }

    /// Where they are in the target.
    pub fn base(&self) -> Option<TargetAddr> {
        self.shared.as_ref().map(|shared| shared.base)
    }

    /// What is mapped for them.
    pub fn all(&self) -> Option<(TargetAddr, u64)> {
        self.base().map(|base| (base, LENGTH))
    }

    /// All code that was seen at any update.
    pub fn seen(&self) -> impl Iterator<Item = &SeenCode> {
        self.seen.iter()
    }

    /// Whether a process with these mappings has them, if there are any.
    pub fn is_in(&self, maps: &[Mapping]) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            maps.iter().any(|m| m.shared && m.start == shared.base && m.file() == shared.file)
        })
    }

    /// Makes them those of the code that is in a process now. Reading the tables of a library takes a while.
    pub fn update(&mut self, pid: Tid) -> Result<()> {
        let (maps, modules) = (proc::maps(pid)?, modules::modules(pid)?);
        let (mut regions, mut signal_returns) = (Vec::new(), Vec::new());
        for map in maps.iter().filter(|map| map.execute && !is_own(map)) {
            let (start, end) = (map.start.0, map.end.0);
            let is_of =
                |m: &&Module| m.file == map.file() && m.start <= map.start && map.end <= m.end;
            let mut region = Region { start, end, bias: start, rows: 0, count: 0 };
            if let Some(module) = modules.iter().find(is_of) {
                let (file, path) = (module.file, module.path.clone());
                self.seen.insert(SeenCode { start, end, bias: module.bias, file, path });
                let placed = self.placed(pid, module);
                (region.bias, region.rows, region.count) = (module.bias, placed.rows, placed.count);
                let returns = placed.signal_returns.iter().map(|at| at.wrapping_add(module.bias));
                signal_returns.extend(returns.filter(|at| (start..end).contains(at)));
            }
            regions.push(region);
        }
        let mut list = vec![regions.len() as u64 | (signal_returns.len() as u64) << 32];
        list.extend(regions.iter().flat_map(Region::words));
        list.extend(signal_returns);
        if list != self.list
            && let Some(at) = self.put(&list)
        {
            (self.list, self.list_at) = (list, at);
            self.generation += 1;
        }
        self.write();
        Ok(())
    }

    /// The rows of a module, put there when they are first wanted.
    fn placed(&mut self, pid: Tid, module: &Module) -> &Placed {
        let key = (module.file, module.path.clone());
        if !self.modules.contains_key(&key) {
            let found = module_rows(pid, module, &mut self.set).unwrap_or_default();
            let ModuleRows { rows, signal_returns } = found;
            // Where there is no room for them, stacks are cut at the module unless it has frame pointers.
            let placed = match self.put(&rows) {
                Some(at) => Placed { rows: at, count: rows.len() as u32, signal_returns },
                None => Placed::default(),
            };
            self.modules.insert(key.clone(), placed);
        }
        self.modules.entry(key).or_default()
    }

    /// Puts words behind those that are there, if there is room.
    fn put(&mut self, words: &[u64]) -> Option<u32> {
        let at = u64::from(FREE) + 8 * self.words.len() as u64;
        if at + 8 * words.len() as u64 > LENGTH {
            return None;
        }
        self.words.extend_from_slice(words);
        Some(at as u32)
    }

    /// Writes to the target what is new.
    fn write(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        let rules = self.set.words();
        shared.fill(RULES as usize + 8 * shared.rules, &rules[shared.rules..]);
        shared.fill(FREE as usize + 8 * shared.words, &self.words[shared.words..]);
        (shared.rules, shared.words) = (rules.len(), self.words.len());
        let head = u64::from(self.list_at) | u64::from(self.generation) << 32;
        shared.head().store(head, Release);
    }
}

impl Shared {
    fn fill(&mut self, at: usize, words: &[u64]) {
        for (place, word) in self.memory[at..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: a mapping is page-aligned and lives as long as `self`; the target reads the word at any time.
        unsafe { &*self.memory.as_ptr().add(HEAD as usize).cast() }
    }
}

/// Whether code is weft's own: what returns to it is no call of the program.
fn is_own(map: &Mapping) -> bool {
    map.path.starts_with("/memfd:weft") || map.path == "[vsyscall]"
}
