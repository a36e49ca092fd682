//! The engine: what all threads share, and what they do with it.

pub mod branches;
pub mod continuing;
pub mod exit;
pub mod halting;
pub mod lock;
pub mod making;

use crate::clone::base::fail::fail;
use crate::clone::base::instructions::LONGEST_INSTRUCTION;
use crate::clone::base::{clock, program, system};
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::cache::regions::Regions;
use crate::clone::cache::stored::Stored;
use crate::clone::thread::alternate_stack::SS_DISABLE;
use crate::clone::thread::record::{Thread, stripe};
use crate::clone::tools::halts::Halts;
use crate::clone::tools::recorder::Recorder;
use crate::clone::tools::weaving::Weaving;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::{COUNTER_FORBIDDEN, CloneControl, CloneStart, option};

/// Why a program leaves its clone that forbids itself the counter that snippets read.
const FORBIDS_COUNTER: &str = "the program is about to forbid itself to read the time stamp counter, which times are measured by";

/// Everything that all threads share.
#[derive(Debug)]
pub struct Engine {
    pub cache: CodeCache,
    pub weaving: Weaving,
    pub recorder: Option<Recorder>,
    pub halts: Halts,
    /// Whether the engine's handlers of signals are installed.
    pub has_begun: bool,
    /// Whether the program's system calls are filtered, and with them the engine's own. The host has a copy of it,
    /// for all processes that share the control block: [`CloneControl::is_filtered`].
    pub is_filtered: bool,
    /// Whether the one for traps is installed, because threads are led out of snippets.
    pub has_trap: bool,
    /// The list of all threads that ever were; those that have ended can be used again.
    threads: u64,
    cache_size: u64,
    pub options: u64,
    pub control: &'static CloneControl,
}

impl Engine {
    /// An engine with no threads, as the host wants it.
    pub fn new(start: &CloneStart, mut cache: CodeCache, control: &'static CloneControl) -> Self {
        let recorder = Recorder::new(start.recording, start.mode);
        let is_blind = start.options & option::BLIND != 0;
        (cache.is_blind, cache.is_recorded) = (is_blind, recorder.is_some());
        Self {
            cache,
            weaving: Weaving::default(),
            recorder,
            halts: Halts::default(),
            has_begun: false,
            is_filtered: false,
            has_trap: false,
            threads: 0,
            cache_size: start.cache_size,
            options: start.options,
            control,
        }
    }

    /// Maps what there is in files of the program's clone, if that may be used.
    pub fn begin_store(&mut self) {
        let is_plain = self.recorder.is_none() && !self.is_in_step();
        if is_plain {
            let control = self.control;
            self.cache.use_store(&control.learnt, control.engine.load(Relaxed));
            self.count_files();
        }
    }

    /// Counts what was mapped from files.
    pub fn count_files(&self) {
        let all = &self.cache.store.all;
        let stats = &self.control.stats;
        let blocks = all.iter().map(Stored::block_count).sum();
        stats.files.store(all.len() as u64, Relaxed);
        stats.file_blocks.store(blocks, Relaxed);
    }

    /// Stops reading the time stamp counter, here and in snippets.
    pub fn leave_counter_alone(&mut self) {
        if self.weaving.reads_counter() {
            fail(FORBIDS_COUNTER);
        }
        clock::forbid_counter();
        self.control.counter_mode.store(COUNTER_FORBIDDEN, Relaxed);
    }

    /// A record for a new thread: that of a thread that has ended, or a new one; `None` if there is no memory.
    pub fn thread(&mut self) -> Option<&'static Thread> {
        let is_free =
            |thread: &&Thread| thread.is_used.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if let Some(thread) = self.threads().find(is_free) {
            thread.clear_pending();
            thread.kept_signals.store(0, Relaxed);
            thread.native_pc.set(0);
            thread.hidden_mask.set(0);
            thread.altstack.set([0, SS_DISABLE, 0]);
            thread.epoch.store(u64::MAX, Relaxed);
            thread.unregister();
            thread.forget_halt();
            self.give_stripe(thread);
            return Some(thread);
        }
        let tables = (self.cache.tables.mask, self.cache.tables.second());
        let thread = Thread::map(self.recorder.is_some(), tables, self.threads)?;
        self.give_stripe(thread);
        thread.is_used.store(1, Relaxed);
        thread.epoch.store(u64::MAX, Relaxed);
        self.threads = thread.this;
        Some(thread)
    }

    /// All threads that ever were.
    pub fn threads(&self) -> impl Iterator<Item = &'static Thread> + use<> {
        let mut next = self.threads;
        core::iter::from_fn(move || {
            // SAFETY: the list holds threads that were mapped and stay so; the engine is held.
            let thread = unsafe { (next as *const Thread).as_ref()? };
            next = thread.next_thread;
            Some(thread)
        })
    }

    /// Whether the program waits for the host after each block: then every branch leaves the clone.
    pub fn is_in_step(&self) -> bool {
        self.options & option::IN_STEP != 0
    }

    /// Whether the code at an address can be executed but not read: its first instruction, which cannot be
    /// translated.
    pub fn is_execute_only(&self, pc: u64) -> bool {
        // The kernel's page for old programs cannot be read either.
        if pc >= 1 << 47 {
            return false;
        }
        let read = Regions::read();
        let regions = read.as_ref().unwrap_or(&self.cache.regions);
        let next = (pc | (system::PAGE - 1)) + 1;
        let pages = [pc, next].into_iter().filter(|&page| page < pc + LONGEST_INSTRUCTION as u64);
        for page in pages {
            let Some(region) = regions.at(page).filter(|region| region.is_code()) else {
                return false;
            };
            if program::read::<u8>(page).is_none() {
                // What is beyond the end of a file is not there for the kernel either. No system call is made where
                // a filter may forbid it.
                let is_readable = region.protection & system::PROT_READ != 0;
                return !is_readable || self.is_filtered || system::may_kernel_read(page);
            }
        }
        false
    }

    /// Marks the cache as full when there is room only for what is being done.
    pub fn check_room(&mut self, arena: usize) {
        let is_too_large = self.cache.used() > self.cache_size && !self.is_filtered;
        if !self.cache.arenas[arena].has_room() || is_too_large {
            self.cache.is_full = true;
        }
    }

    /// The program is about to have its system calls filtered, and with them the engine's: maps what memory
    /// it will need, and flushes nothing any more as long as there is room.
    pub fn seal(&mut self) {
        self.control.is_filtered.store(1, Relaxed);
        self.is_filtered = true;
        self.cache.is_sealed = true;
        self.cache.store.turn_off();
        clock::seal();
        #[cfg(weft_freestanding)]
        crate::clone::base::heap::seal();
    }

    /// Whether no thread is in what was flushed last.
    pub fn is_drained(&self) -> bool {
        self.threads().all(|thread| {
            let epoch = thread.epoch.load(Relaxed);
            thread.is_used.load(Relaxed) == 0 || epoch == u64::MAX || epoch == self.cache.epoch
        })
    }

    /// Flushes the code cache, and what depends on it.
    fn flush(&mut self) {
        self.cache.flush();
        self.weaving.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush(&self.cache.arenas);
        }
        self.control.stats.flushes.fetch_add(1, Relaxed);
    }

    /// Gives a thread counters of its own, if it has none and needs some.
    pub fn give_stripe(&self, thread: &Thread) {
        let is_shared = thread.has_stripe.get() == stripe::SHARED;
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !is_shared) {
            recorder.claim_stripe(thread);
        }
    }
}
