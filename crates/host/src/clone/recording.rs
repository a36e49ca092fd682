//! The memory in which an engine tells of what its program executes.

use super::Records;
use super::flow::{Entry, Log, Mapped};
use crate::agent::{self, Fetch, away_trip, check_outcomes, making_shared, permitted_traveller};
use crate::modules::{Module, modules};
use crate::proc::{self, Mapping};
use crate::room::Room;
use crate::stopped::Stopped;
use crate::target::open_pidfd;
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::recording::{
    COUNTERS, LOG_OFFSET, LOG_SIZE, RECORDING_NAME, RECORDING_SIZE, RecordingHead, STRIPE_COUNT,
    STRIPE_SIZE, STRIPES_OFFSET, TraceHead, mode,
};
use weft_trace::Detail;

/// Where it may go: far from what a program maps, so that neither its memory nor the clone is in want of room.
const PLACES: std::ops::Range<u64> = 0x10..0x70;
const PLACES_SHIFT: u32 = 40;

/// What an engine tells of what its program executes.
#[derive(Debug)]
pub struct Recording {
    memory: MmapMut,
    at: TargetAddr,
    records: Records,
    /// What was mapped when it began.
    modules: Vec<Module>,
    /// Where code of files was mapped then.
    code: Vec<Mapping>,
}

impl Records {
    /// What the engine calls it.
    pub(super) fn mode(self) -> u64 {
        match self {
            Self::Nothing => mode::OFF,
            Self::Hits => mode::HITS,
            Self::Counts => mode::COUNTS,
            Self::EveryBlock => mode::EVERY_BLOCK,
            Self::Trace => mode::TRACE,
            Self::TraceValues => mode::TRACE_VALUES,
        }
    }

    /// How detailed the trace is that is written, if one is.
    pub(super) fn trace_detail(self) -> Option<Detail> {
        match self {
            Self::Trace => Some(Detail::Addresses),
            Self::TraceValues => Some(Detail::Values),
            _ => None,
        }
    }
}

fn room_for(maps: &[Mapping]) -> Result<TargetAddr> {
    let is_free = |&at: &TargetAddr| {
        maps.iter().all(|mapping| mapping.end <= at || at + RECORDING_SIZE <= mapping.start)
    };
    PLACES.map(|place| TargetAddr(place << PLACES_SHIFT)).find(is_free).ok_or_else(|| {
        Error::new(ErrorKind::UnsupportedTarget, "the target has no room for what is recorded")
    })
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
        let map = agent::map_shared(at, RECORDING_SIZE, read_write, 0);
        let steps = making_shared(RECORDING_NAME, RECORDING_SIZE, vec![map]);
        let traveller = permitted_traveller(stopped, &steps)?;
        let pidfd = open_pidfd(pid)?;
        let mut fetch = Fetch::new(pidfd.as_raw_fd());
        let before = |number: i64, done: &[_]| fetch.before(number, done);
        let outcomes = away_trip(stopped, &traveller, room, &steps, before)?;
        check_outcomes(pid, &outcomes)?;
        let code = maps.into_iter().filter(|map| map.execute && map.inode != 0).collect();
        let recording = Self { memory: fetch.memory()?, at, records, modules: modules(pid)?, code };
        // Number 0 is none.
        recording.head().counters.store(1, Relaxed);
        Ok(Some(recording))
    }

    /// Where it is in the process.
    pub fn at(&self) -> TargetAddr {
        self.at
    }

    /// Where code of files was mapped when it began.
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

    /// Some of it, which nobody writes to at the moment.
    pub(super) fn words(&self, offset: u64, bytes: u64) -> &[u64] {
        let offset = (offset as usize).min(self.memory.len());
        let rest = &self.memory[offset..];
        let count = rest.len().min(bytes as usize) / 8;
        // SAFETY: within the memory, and aligned as all of it is.
        unsafe { std::slice::from_raw_parts(rest.as_ptr().cast(), count) }
    }

    /// The front of a stripe that a trace is written to.
    pub(super) fn trace_head(&self, stripe: u64) -> &TraceHead {
        let offset = STRIPES_OFFSET + stripe.min(STRIPE_COUNT - 1) * STRIPE_SIZE;
        // SAFETY: within the memory, aligned to a page, and all of it is atomic.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast() }
    }

    /// A word, which may just be written.
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset + 8 <= RECORDING_SIZE);
        // SAFETY: within the memory, and aligned.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast() }
    }

    /// Bits of what could not be kept: see [`weft_abi::recording::lost`].
    pub fn lost(&self) -> u64 {
        self.head().lost.load(Relaxed)
    }

    /// How many words of the log are taken.
    pub(super) fn taken(&self) -> u64 {
        self.head().words.load(Acquire).min(LOG_SIZE / 8)
    }

    /// The entry of the log that begins with a word, and where the next one begins; no entry while it is being
    /// written, and nothing if that has only just begun or there is no more.
    pub(super) fn entry(&self, at: u64, taken: u64) -> Option<(Option<Entry>, u64)> {
        if at >= taken {
            return None;
        }
        let head = self.word(LOG_OFFSET + at * 8).load(Acquire);
        let length = head >> 8 & 0xff_ffff;
        if length == 0 || at + length > taken {
            return None;
        }
        let words = self.words(LOG_OFFSET + (at + 1) * 8, (length - 1) * 8);
        Some((Entry::read(head as u8, (head >> 32) as u32, words), at + length))
    }

    /// What it has told so far.
    pub fn log(&self) -> Log {
        let taken = self.taken();
        let mut entries = Vec::new();
        let mut at = 0;
        while let Some((entry, next)) = self.entry(at, taken) {
            entries.extend(entry);
            at = next;
        }
        let mapped = self.modules.iter().map(Mapped::of_module).collect();
        Log { entries, mapped, records: self.records }
    }

    /// What some stripes have counted, by counter.
    pub fn counts(&self, stripes: &[u64]) -> Vec<u64> {
        let counters = self.head().counters.load(Relaxed).min(COUNTERS);
        let mut sums = vec![0u64; counters as usize];
        for &stripe in stripes.iter().filter(|&&stripe| stripe < STRIPE_COUNT) {
            let first = STRIPES_OFFSET + stripe * STRIPE_SIZE;
            for (number, sum) in sums.iter_mut().enumerate() {
                *sum += self.word(first + number as u64 * 8).load(Relaxed);
            }
        }
        sums
    }
}
