//! What an engine has told of what its program executes, entry by entry.

use super::options::Records;
use crate::process::modules::Module;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt;
use weft_abi::recording::{STRIPE_COUNT, entry};

/// How many bytes a file may have of notes, among which its build-id is.
const LONGEST_NOTES: u64 = 1 << 20;

/// A file with code; the first one stands for code that no file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowModule {
    /// Its path, as the program has it.
    pub path: String,
    /// What distinguishes it from others of the same name, if it has that.
    pub build_id: Option<Vec<u8>>,
    /// What to add to an address of the file for the address in the process: the first one, if there were several.
    pub bias: u64,
    /// The lowest address of the file that was mapped.
    pub start: u64,
    /// How many bytes from there to its end.
    pub size: u64,
}

/// A run of instructions, as the engine records it.
#[derive(Clone, Debug)]
pub struct Run {
    pub start: u64,
    pub code: u64,
    pub ending: u8,
    pub own: u32,
    pub taken: u32,
    pub fall: u32,
    pub target: u64,
    pub bytes: Vec<u8>,
}

impl Run {
    /// The address after it.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Part of a process' memory that is a file's.
#[derive(Clone, Debug)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub path: String,
    /// What is known of the file, when it was looked into.
    module: OnceCell<FlowModule>,
}

impl Mapped {
    pub fn of_module(module: &Module) -> Self {
        let known = FlowModule {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            bias: module.bias,
            start: module.start.0.wrapping_sub(module.bias),
            size: module.end - module.start,
        };
        Self {
            start: module.start.0,
            end: module.end.0,
            offset: 0,
            path: module.path.clone(),
            module: known.into(),
        }
    }

    /// What is known of the file, which is looked into once.
    pub fn module(&self) -> &FlowModule {
        let unknown = || FlowModule {
            path: self.path.clone(),
            build_id: None,
            bias: self.start.wrapping_sub(self.offset),
            start: self.offset,
            size: self.end - self.start,
        };
        self.module.get_or_init(|| self.look().unwrap_or_else(unknown))
    }

    fn look(&self) -> Option<FlowModule> {
        // Its name is what the program says, and the file may change: nothing is waited for or mapped.
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(&self.path).ok()?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return None;
        }
        let bytes = &ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, bytes).ok()?;
        let loads = || segments.iter().filter(|s| s.p_type(endian) == PT_LOAD);
        let holds =
            |start: u64, size: u64| (start..start.saturating_add(size)).contains(&self.offset);
        let page = crate::base::page::PAGE;
        let segment = loads().find(|s| {
            let slack = s.p_offset(endian) % page;
            holds(s.p_offset(endian) - slack, s.p_filesz(endian).saturating_add(slack))
        })?;
        let address = segment
            .p_vaddr(endian)
            .wrapping_sub(segment.p_offset(endian))
            .wrapping_add(self.offset);
        let start = loads().map(|s| s.p_vaddr(endian)).min()? / page * page;
        let end = loads().map(|s| s.p_vaddr(endian).saturating_add(s.p_memsz(endian))).max()?;
        let is_note = |s: &&ProgramHeader64<Endianness>| {
            s.p_type(endian) == object::elf::PT_NOTE && s.p_filesz(endian) <= LONGEST_NOTES
        };
        let build_id = segments
            .iter()
            .filter(is_note)
            .filter_map(|s| s.data(endian, bytes).ok())
            .find_map(weft_symbols::build_id_note);
        Some(FlowModule {
            path: self.path.clone(),
            build_id,
            bias: self.start.wrapping_sub(address),
            start,
            size: end.saturating_sub(start),
        })
    }
}

/// An entry of the log.
#[derive(Debug)]
pub struct Entry {
    pub pid: u32,
    pub what: What,
}

/// What an entry records.
#[derive(Debug)]
pub enum What {
    Run(Run),
    Entered { address: u64, counter: u32 },
    Cut { pc: u64, code: u64 },
    Mapped(Mapped),
    Side { counter: u32, is_fall: bool },
    Stripe(u64),
    Forked { parent: u32 },
}

impl Entry {
    /// An entry from its words; `None` if it is none.
    pub fn read(kind: u8, pid: u32, words: &[u64]) -> Option<Self> {
        let text = |words: &[u64]| {
            let mut bytes = Vec::with_capacity(8 * words.len());
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes
        };
        let what = match (kind, words) {
            (entry::BLOCK, &[start, code, shape, counters, fall, target, ref rest @ ..]) => {
                let mut bytes = text(rest);
                bytes.truncate(shape as u16 as usize);
                start.checked_add(bytes.len() as u64)?;
                What::Run(Run {
                    start,
                    code,
                    ending: (shape >> 16) as u8,
                    own: counters as u32,
                    taken: (counters >> 32) as u32,
                    fall: fall as u32,
                    target,
                    bytes,
                })
            }
            (entry::ENTERED, &[address, counter]) => {
                What::Entered { address, counter: counter as u32 }
            }
            (entry::CUT, &[pc, code]) => What::Cut { pc, code },
            (entry::MODULE, &[start, end, offset, ref rest @ ..]) if start <= end => {
                let mut name = text(rest);
                while name.last() == Some(&0) {
                    name.pop();
                }
                let path = String::from_utf8_lossy(&name).into_owned();
                What::Mapped(Mapped { start, end, offset, path, module: OnceCell::new() })
            }
            (entry::SIDE, &[counter, is_fall]) => {
                What::Side { counter: counter as u32, is_fall: is_fall != 0 }
            }
            (entry::STRIPE, &[stripe]) => What::Stripe(stripe),
            (entry::FORKED, &[parent]) => What::Forked { parent: parent as u32 },
            _ => return None,
        };
        Some(Self { pid, what })
    }
}

/// The whole log of an engine.
pub struct Log {
    pub entries: Vec<Entry>,
    /// What was mapped when it began.
    pub mapped: Vec<Mapped>,
    pub records: Records,
    /// Whether all of it was looked at.
    pub is_whole: bool,
}

/// A process of a program, by its entries.
#[derive(Debug, Default)]
pub struct Process {
    pub stripes: Vec<u64>,
    /// Who has forked it, and when: what came before is its own as well.
    parent: Option<(usize, usize)>,
    /// Its entries, by their places in the log.
    pub entries: Vec<usize>,
}

impl Log {
    /// The run that an entry is, if it is one.
    pub fn run(&self, place: usize) -> Option<&Run> {
        match &self.entries[place].what {
            What::Run(run) => Some(run),
            _ => None,
        }
    }

    /// The processes, and how many were not to be told from others.
    pub fn processes(&self) -> (Vec<Process>, u64) {
        let mut processes: Vec<Process> = Vec::new();
        let mut owned = vec![false; STRIPE_COUNT as usize];
        let mut garbled = 0;
        let mut current: HashMap<u32, usize> = HashMap::new();
        for (place, entry) in self.entries.iter().enumerate() {
            if let What::Forked { parent } = entry.what {
                let parent = current.get(&parent).map(|&index| (index, place));
                current.insert(entry.pid, processes.len());
                processes.push(Process { parent, ..Process::default() });
                continue;
            }
            let index = *current.entry(entry.pid).or_insert_with(|| {
                processes.push(Process::default());
                processes.len() - 1
            });
            match entry.what {
                // Each belongs to one.
                What::Stripe(stripe) => match owned.get_mut(stripe as usize) {
                    Some(is_owned @ false) => {
                        *is_owned = true;
                        processes[index].stripes.push(stripe);
                    }
                    _ => garbled += 1,
                },
                _ => processes[index].entries.push(place),
            }
        }
        (processes, garbled)
    }

    /// The entries of a process and of those that it comes from, in their order.
    pub fn visible(&self, processes: &[Process], index: usize) -> Vec<usize> {
        let mut places = processes[index].entries.clone();
        let mut from = processes[index].parent;
        while let Some((parent, fork)) = from {
            let older = processes[parent].entries.iter().filter(|&&place| place < fork);
            places.extend(older);
            from = processes[parent].parent.map(|(next, earlier)| (next, earlier.min(fork)));
        }
        places.sort_unstable();
        places
    }
}
