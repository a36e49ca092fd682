//! What the program executes: the engine logs to memory that it shares with weft which blocks there are, and counts
//! them.
//!
//! A thread counts in a stripe of its own, right behind its record, so that code in the clone reaches a counter by
//! `gs` and one number. What can be known from other counts is not counted: a block that is only reached from
//! others is executed as often as the branches to it are taken, and what follows a branch as often as the branch is
//! not taken. Such branches have to lead forward: then no count depends on itself.

use crate::clone::base::fail::fail;
use crate::clone::base::{files, observers, program, system};
use crate::clone::cache::address_map::Place;
use crate::clone::cache::arena::Arena;
use crate::clone::cache::emit;
use crate::clone::cache::emit::Out;
use crate::clone::cache::marks::Choice;
use crate::clone::thread::record::{Thread, at_counter, stripe};
use crate::clone::tools::tracing;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::recording::{
    COUNTERS, LOG_OFFSET, LOG_SIZE, RECORDING_SIZE, RecordingHead, STRIPE_COUNT, STRIPE_SIZE,
    STRIPES_OFFSET, entry, lost, mode,
};
use weft_code::accesses::Detail;
use weft_code::{Convention, FlagSet, live_at_entry};

/// How many instructions are looked at for flags that are free.
const LOOK_AHEAD: usize = 16;
/// How many bytes that may be.
const BYTES_AHEAD: usize = 64;
/// The longest name of a file.
const LONGEST_NAME: usize = 4096;

/// A run of instructions that is entered only at its front.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    pub start: u64,
    /// Its own counter, if it has one, and those of its exits.
    pub own: u32,
    pub taken: u32,
    pub fall: u32,
    /// One of [`ending`](weft_abi::recording::ending).
    pub ending: u8,
    /// Where its branch leads.
    pub target: u64,
}

/// Where it is all recorded.
#[derive(Debug)]
pub struct Recorder {
    base: u64,
    mode: u64,
    /// Where blocks have begun so far.
    known: BTreeSet<u64>,
    /// Of branches that have one counter for two exits: by counter, whether the exit that is not counted is the
    /// fall-through.
    choices: BTreeMap<u32, bool>,
    pid: u64,
    /// The marks of calls that are in the clone, by their addresses.
    pub marked_calls: BTreeMap<u64, u32>,
    /// Where in the clone blocks begin that are traced.
    pub trace_starts: BTreeSet<u64>,
}

impl Recorder {
    /// A recorder, if something is to be recorded.
    pub fn new(base: u64, mode: u64) -> Option<Self> {
        observers::set_values_traced(mode == mode::TRACE_VALUES);
        (base != 0).then(|| Self {
            base,
            mode,
            known: BTreeSet::new(),
            choices: BTreeMap::new(),
            pid: system::pid() as u64,
            marked_calls: BTreeMap::new(),
            trace_starts: BTreeSet::new(),
        })
    }

    fn head(&self) -> &'static RecordingHead {
        // SAFETY: the host has mapped it, and leaves it there.
        unsafe { &*(self.base as *const RecordingHead) }
    }

    /// Whether only the first time that an exit is taken is recorded.
    pub fn is_for_hits(&self) -> bool {
        self.mode == mode::HITS
    }

    /// Whether exits are counted.
    pub fn is_for_counts(&self) -> bool {
        self.mode == mode::COUNTS
    }

    /// Whether all that is executed is traced, in order.
    pub fn is_for_trace(&self) -> bool {
        matches!(self.mode, mode::TRACE | mode::TRACE_VALUES)
    }

    /// How much is recorded of each access.
    pub fn detail(&self) -> Detail {
        if self.mode == mode::TRACE_VALUES { Detail::Values } else { Detail::Addresses }
    }

    /// Updates that this is another process, and logs that.
    pub fn begin_process(&mut self) {
        let parent = core::mem::replace(&mut self.pid, system::pid() as u64);
        self.log(entry::FORKED, &[parent], &[]);
    }

    /// Another counter; 0 if there is none.
    pub fn counter(&self) -> u32 {
        let number = self.head().counters.fetch_add(1, Relaxed);
        if number < COUNTERS {
            return number as u32;
        }
        self.lose(lost::COUNTERS);
        0
    }

    pub fn lose(&self, what: u64) {
        self.head().lost.fetch_or(what, Relaxed);
    }

    /// The counter of a block that begins at an address, if it needs one: if every block has one, or if this is
    /// not the first block there. Of several, all but one have their own.
    pub fn own_counter(&mut self, address: u64) -> u32 {
        let has_own = match self.mode {
            mode::EVERY_BLOCK | mode::TRACE | mode::TRACE_VALUES => true,
            mode::COUNTS => !self.known.insert(address),
            _ => false,
        };
        if has_own { self.counter() } else { 0 }
    }

    /// Whether an exit of a branch is counted: not the one that is taken first.
    pub fn counts(&mut self, way: Choice) -> bool {
        if let Some(&is_fall) = self.choices.get(&way.counter) {
            return is_fall != way.is_fall;
        }
        self.choices.insert(way.counter, way.is_fall);
        self.log(entry::SIDE, &[way.counter.into(), way.is_fall.into()], &[]);
        false
    }

    /// Notes how many captures a run has that is traced.
    pub fn note_captures(&self, number: u32, count: usize) {
        tracing::note_captures(self.base, number, count);
    }

    /// Gives a thread a stripe to count in. If there is none left, it counts in memory that is never read.
    pub fn claim_stripe(&self, thread: &Thread) {
        let taken = &self.head().stripes;
        let claim = |next: u64| (next < STRIPE_COUNT).then_some(next + 1);
        let stripe = taken.fetch_update(Relaxed, Relaxed, claim).ok();
        let stripe = stripe.filter(|stripe| {
            let from = (self.base + STRIPES_OFFSET + stripe * STRIPE_SIZE) as usize;
            // SAFETY: what is kept for it behind the thread's record becomes a second view of the stripe.
            unsafe { system::map_again(from, STRIPE_SIZE as usize, thread.counters() as usize) }
        });
        if stripe.is_none() {
            self.head().unrecorded.fetch_add(1, Relaxed);
            // SAFETY: the same place: what a forked child finds there is its parent's stripe.
            if !unsafe { system::map_over(thread.counters() as usize, STRIPE_SIZE as usize) } {
                fail("no memory for counters");
            }
        }
        thread.has_stripe.set(if stripe.is_some() { stripe::SHARED } else { stripe::PRIVATE });
        if self.is_for_trace() {
            tracing::prepare(thread);
        }
        if let Some(stripe) = stripe {
            self.log(entry::STRIPE, &[stripe], &[]);
        }
    }

    /// Unmaps the recording; the host keeps what was recorded.
    pub fn unmap(&self) {
        system::unmap(self.base as usize, RECORDING_SIZE as usize);
    }

    /// Writes an entry of the log. A process can be killed at any instruction of this: others, and the host, must
    /// find how long every entry is. So room is taken by writing the length of the entry where it begins, and then
    /// moving the end of the log; a writer that finds the first without the second does the second.
    pub fn log(&self, kind: u8, words: &[u64], bytes: &[u8]) {
        let length = (1 + words.len() + bytes.len().div_ceil(8)) as u64;
        let end = &self.head().words;
        let at = loop {
            let first = end.load(Relaxed);
            if first.saturating_add(length) > LOG_SIZE / 8 {
                return self.lose(lost::LOG);
            }
            let at = self.base + LOG_OFFSET + first * 8;
            // SAFETY: within the log, which is zero where no room is taken yet.
            let head = unsafe { &*(at as *const AtomicU64) };
            let taken = head.compare_exchange(0, length << 8, Relaxed, Relaxed);
            let there = taken.map_or_else(|other| other >> 8 & 0xff_ffff, |_| length);
            let _ = end.compare_exchange(first, first + there, Relaxed, Relaxed);
            if taken.is_ok() {
                break at;
            }
            if there == 0 {
                // Not written by the engine: no entry is that short.
                return self.lose(lost::LOG);
            }
        };
        let head = u64::from(kind) | length << 8 | self.pid << 32;
        // SAFETY: room that was just taken in the log.
        unsafe {
            let rest = (at + 8) as *mut u64;
            core::ptr::copy_nonoverlapping(words.as_ptr(), rest, words.len());
            let rest = rest.add(words.len()).cast();
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), rest, bytes.len());
            (*(at as *const AtomicU64)).store(head, Release);
        }
    }

    /// Logs a run. `code` is where the block of the clone begins that it is in.
    pub fn log_run(&self, run: &Run, code: u64, bytes: &[u8]) {
        let shape = bytes.len() as u64 | u64::from(run.ending) << 16;
        let counters = u64::from(run.own) | u64::from(run.taken) << 32;
        let words = [run.start, code, shape, counters, u64::from(run.fall), run.target];
        self.log(entry::BLOCK, &words, bytes);
    }

    /// A counter for an address that is reached from anywhere, which is logged.
    pub fn entries_counter(&self, address: u64) -> u32 {
        let counter = self.counter();
        self.log(entry::ENTERED, &[address, counter.into()], &[]);
        counter
    }

    /// Counts in the entry of a place that is reached from anywhere. Returns the counter.
    pub fn count_entry(&self, place: &Place, out: &mut Out) -> u32 {
        if !self.is_for_counts() {
            return place.counter;
        }
        let counter = match place.counter {
            0 => self.entries_counter(place.address),
            counter => counter,
        };
        emit::count(out, at_counter(counter), are_flags_free_at(place.address));
        counter
    }

    /// Logs what was mapped. Returns whether the host has to look for the name: there may be no `/proc`.
    pub fn log_module(&self, place: Range<u64>, descriptor: u64, offset: u64) -> bool {
        let mut room = [0u8; LONGEST_NAME];
        // A descriptor is 32 bits wide to the kernel.
        let name = files::name_of(u64::from(descriptor as u32), &mut room).unwrap_or_default();
        self.log(entry::MODULE, &[place.start, place.end, offset], name);
        name.is_empty()
    }

    /// Counts a file whose name was not found.
    pub fn leave_unnamed(&self) {
        self.head().unnamed.fetch_add(1, Relaxed);
    }

    /// Forgets places that are about to be written anew: those that are not in a half that was retired.
    pub fn flush(&mut self, arenas: &[Arena]) {
        self.marked_calls.clear();
        self.trace_starts.retain(|&at| arenas.iter().any(|arena| arena.retired.contains(at)));
    }
}

/// Whether code may count at a place by an instruction that changes flags: none is needed there, and no debugger
/// looks.
pub fn are_flags_free(bytes: &[u8], address: u64) -> bool {
    let live = || live_at_entry((bytes, address), address, Convention::Unknown, LOOK_AHEAD);
    !observers::is_debugged() && live().flags & !FlagSet::DF == FlagSet::NONE
}

/// The same where the program's code is elsewhere.
pub fn are_flags_free_at(address: u64) -> bool {
    // Where it cannot be read, or ends before that, no flag counts as free.
    let words: Option<[u64; BYTES_AHEAD / 8]> = program::read(address);
    words.is_some_and(|words| are_flags_free(words.map(u64::to_le_bytes).as_flattened(), address))
}
