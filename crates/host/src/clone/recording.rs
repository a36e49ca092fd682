//! The memory in which an engine records what its program executes.

use super::log::{Entry, Log, Mapped, What};
use super::losses::Losses;
use super::options::Records;
use crate::process::modules::{Module, modules};
use crate::process::proc::{self, Mapping, Tid};
use crate::process::stopped::Stopped;
use crate::trip::room::Room;
use crate::trip::sharing::{self, Sharing};
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};
use weft_abi::addresses;
use weft_abi::recording::{
    COUNTERS, LOG_OFFSET, LOG_SIZE, RECORDING_NAME, RECORDING_SIZE, RecordingHead, STRIPE_COUNT,
    STRIPE_SIZE, STRIPES_OFFSET, TraceHead,
};

/// Where else it may go in a program that has something else at [`addresses::RECORDING`].
const PLACES: std::ops::Range<u64> = 0x10..0x70;
const PLACES_SHIFT: u32 = 40;

/// How many entries of a log are looked at: more than it has room for, if most are of blocks.
const MOST_ENTRIES: usize = (LOG_SIZE / 64) as usize;
/// How many files can be named.
const MOST_NAMED: usize = 1 << 16;

/// What an engine records of what its program executes.
#[derive(Debug)]
pub struct Recording {
    memory: MmapMut,
    /// The same memory.
    file: File,
    at: TargetAddr,
    records: Records,
    /// What was mapped when it began.
    modules: Vec<Module>,
    /// Where code of files was mapped then, the program's own first.
    code: Vec<Mapping>,
    /// Where code of files was mapped later by processes that could not report their names.
    named: Mutex<Vec<Mapping>>,
}

fn room_for(maps: &[Mapping]) -> Result<TargetAddr> {
    let is_free = |&at: &TargetAddr| {
        maps.iter().all(|mapping| mapping.end <= at || at + RECORDING_SIZE <= mapping.start)
    };
    let others = PLACES.map(|place| place << PLACES_SHIFT);
    std::iter::once(addresses::RECORDING).chain(others).map(TargetAddr).find(is_free).ok_or_else(
        || Error::new(ErrorKind::UnsupportedTarget, "the target has no room for what is recorded"),
    )
}

impl Recording {
    /// Brings the memory into a process that is stopped, if something is to be recorded.
    pub fn begin(stopped: &Stopped, room: &Room, records: Records) -> Result<Option<Self>> {
        if records == Records::Nothing {
            return Ok(None);
        }
        let pid = stopped.pid();
        let maps = proc::maps(pid)?;
        let at = room_for(&maps)?;
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let map = sharing::map_shared(at, RECORDING_SIZE, read_write, 0);
        let sharing = Sharing::new(RECORDING_NAME, RECORDING_SIZE, vec![map]);
        let (memory, file) = sharing.make(stopped, room)?;
        if memory.len() as u64 != RECORDING_SIZE {
            return Err(Error::new(ErrorKind::Internal, "what is recorded has no room"));
        }
        let mut code: Vec<Mapping> = maps.into_iter().filter(is_code_of_file).collect();
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        code.sort_by_key(|map| executable.as_deref() != Some(Path::new(&map.path)));
        let (modules, named) = (modules(pid)?, Mutex::default());
        let recording = Self { memory, file, at, records, modules, code, named };
        // Number 0 is none.
        recording.head().counters.store(1, Relaxed);
        Ok(Some(recording))
    }

    /// The memory that it takes of the process.
    pub fn range(&self) -> (TargetAddr, u64) {
        (self.at, RECORDING_SIZE)
    }

    /// Where code of files was mapped when it began, the program's own first.
    pub fn code(&self) -> &[Mapping] {
        &self.code
    }

    /// What it records.
    pub fn records(&self) -> Records {
        self.records
    }

    pub(super) fn head(&self) -> &RecordingHead {
        // SAFETY: it is at least that large, and all of it is atomic.
        unsafe { &*self.memory.as_ptr().cast() }
    }

    /// Copies words of it. The program can write to them meanwhile, so each is looked at once.
    pub(super) fn copy(&self, offset: u64, count: u64, words: &mut Vec<u64>) {
        let end = offset.saturating_add(count.saturating_mul(8)).min(RECORDING_SIZE);
        words.clear();
        words.extend((offset..end).step_by(8).map(|at| self.word(at).load(Relaxed)));
    }

    /// The front of a stripe that a trace is written to.
    pub(super) fn trace_head(&self, stripe: u64) -> &TraceHead {
        let offset = STRIPES_OFFSET + stripe.min(STRIPE_COUNT - 1) * STRIPE_SIZE;
        // SAFETY: within the memory, aligned to a page, and all of it is atomic.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast() }
    }

    /// A word, which may just be written.
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset <= RECORDING_SIZE - 8 && offset.is_multiple_of(8));
        // SAFETY: within the memory, and aligned.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast() }
    }

    /// What is missing from it.
    pub fn losses(&self) -> Losses {
        let head = self.head();
        Losses {
            unrecorded: head.unrecorded.load(Relaxed),
            unnamed: head.unnamed.load(Relaxed),
            bits: head.lost.load(Relaxed),
            ..Losses::default()
        }
    }

    /// Remembers the names of the files that a process has mapped: it cannot report them itself.
    pub fn name_files(&self, pid: Tid) {
        let Ok(maps) = proc::maps(pid) else { return };
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        for map in maps.into_iter().filter(is_code_of_file) {
            if named.len() < MOST_NAMED && !named.contains(&map) {
                named.push(map);
            }
        }
    }

    /// The name of a file that was mapped somewhere, if a process could not report it.
    fn name_of(&self, start: u64, offset: u64) -> Option<String> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |map: &&Mapping| {
            let at = TargetAddr(start);
            map.contains(at) && (at - map.start).checked_add(map.offset) == Some(offset)
        };
        named.iter().rev().find(is_it).map(|map| map.path.clone())
    }

    /// How many words of the log are taken.
    pub(super) fn taken(&self) -> u64 {
        self.head().words.load(Acquire).min(LOG_SIZE / 8)
    }

    /// The entry of the log that begins with a word, and where the next one begins; no entry while it is being
    /// written, or if it is none, and nothing if it has no end.
    pub(super) fn entry(&self, at: u64, taken: u64) -> Option<(Option<Entry>, u64)> {
        let head = self.word(LOG_OFFSET + at * 8).load(Acquire);
        let length = head >> 8 & 0xff_ffff;
        if length == 0 || at + length > taken {
            return None;
        }
        let mut words = Vec::new();
        self.copy(LOG_OFFSET + (at + 1) * 8, length - 1, &mut words);
        let mut entry = Entry::read(head as u8, (head >> 32) as u32, &words);
        if let Some(Entry { what: What::Mapped(mapped), .. }) = &mut entry
            && mapped.path.is_empty()
        {
            mapped.path = self.name_of(mapped.start, mapped.offset).unwrap_or_default();
        }
        Some((entry, at + length))
    }

    /// What it has told so far.
    pub fn log(&self) -> Log {
        let taken = self.taken();
        let mut entries = Vec::new();
        let mut at = 0;
        while at < taken && entries.len() < MOST_ENTRIES {
            let Some((entry, next)) = self.entry(at, taken) else { break };
            entries.extend(entry);
            at = next;
        }
        let mapped = self.modules.iter().map(Mapped::of_module).collect();
        Log { entries, mapped, records: self.records, is_whole: at >= taken }
    }

    /// What some stripes have counted, by counter.
    pub fn counts(&self, stripes: &[u64]) -> Vec<u64> {
        let counters = self.head().counters.load(Relaxed).min(COUNTERS);
        let mut sums = vec![0u64; counters as usize];
        for &stripe in stripes.iter().filter(|&&stripe| stripe < STRIPE_COUNT) {
            let first = STRIPES_OFFSET + stripe * STRIPE_SIZE;
            let mut end = first;
            while let Some(data) = self.data(end, first + counters * 8) {
                end = data.end;
                for at in data.step_by(8) {
                    let sum = &mut sums[((at - first) / 8) as usize];
                    *sum = sum.saturating_add(self.word(at).load(Relaxed));
                }
            }
        }
        sums
    }

    /// The first part from one place to another that anything was ever written to. The rest is zero, and the kernel
    /// would make memory of it if it were read.
    fn data(&self, from: u64, to: u64) -> Option<Range<u64>> {
        let seek = |from: u64, whence: i32| {
            // SAFETY: plain numbers. Nobody reads by this descriptor.
            let at = unsafe { libc::lseek(self.file.as_raw_fd(), from as i64, whence) };
            u64::try_from(at).ok()
        };
        let start = seek(from, libc::SEEK_DATA).filter(|&start| start < to)?.max(from);
        let end = seek(start, libc::SEEK_HOLE).unwrap_or(to);
        Some(start..end.clamp(start, to))
    }
}

fn is_code_of_file(map: &Mapping) -> bool {
    map.execute && map.inode != 0
}
