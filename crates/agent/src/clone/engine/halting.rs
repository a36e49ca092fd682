//! Breakpoints, watched memory and single steps in the clone.

use crate::clone::base::context::Context;
use crate::clone::base::instructions::{instruction_at, is_repeated};
use crate::clone::base::{observers, system};
use crate::clone::cache::blocks::Block;
use crate::clone::cache::emit;
use crate::clone::cache::pieces::Kind;
use crate::clone::cache::program_state::{block_at, kind_and_length};
use crate::clone::cache::regions::Region;
use crate::clone::engine::Engine;
use crate::clone::thread::actions::Actions;
use crate::clone::thread::record::{Thread, task};
use crate::clone::tools::conditions;
use crate::clone::tools::halts::{HaltedThread, UNKNOWN};
use crate::clone::tools::watches::Watches;
use crate::clone::translate::translator::Extent;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::halt::{BREAKPOINT_COUNT, WATCH_COUNT, motion};

impl Engine {
    /// Follows changes of the breakpoints, if there are any.
    #[inline(always)]
    pub fn follow_halts(&mut self) {
        let version = self.control.debug.version.load(Acquire);
        if version != self.halts.version {
            self.change_halts(version);
        }
    }

    #[cold]
    fn change_halts(&mut self, version: u32) {
        // A vforked child uses its parent's engine, and is not debugged.
        if Thread::current().is_vforked.get() != 0 {
            return;
        }
        let debug = &self.control.debug;
        // A process shares this with its forked children, which are not debugged.
        let is_debugged = debug.pid.load(Relaxed) as usize == system::pid();
        let was_debugged = observers::set_debugged(is_debugged);
        if is_debugged && !was_debugged {
            // What is there was translated for a program without an observer.
            self.cache.is_full |= !self.cache.blocks.is_empty() || !self.cache.store.is_empty();
            if self.has_begun {
                Actions::take_over(Thread::current());
            }
        }
        let count = (debug.count.load(Relaxed) as usize).min(BREAKPOINT_COUNT);
        let count = if is_debugged { count } else { 0 };
        let wanted = debug.breakpoints[..count].iter().map(|address| address.load(Relaxed));
        let wanted: Vec<u64> = wanted.collect();
        let conditions = debug.conditions[..count].iter().map(|place| place.load(Relaxed));
        let conditions = wanted.iter().copied().zip(conditions).filter(|&(_, place)| place != 0);
        self.halts.conditions = conditions.collect();
        self.set_halts(wanted);
        self.set_watches(is_debugged);
        let [start, end] = debug.written.each_ref().map(|edge| edge.load(Relaxed));
        if is_debugged && start < end {
            self.cache.forget_at(core::slice::from_ref(&(start..end)));
            // What the debugger itself has written is not reported to it.
            self.halts.watches.changed();
        }
        self.halts.version = version;
    }

    fn set_halts(&mut self, wanted: Vec<u64>) {
        let before = core::mem::replace(&mut self.halts.addresses, wanted);
        let gone = before.iter().filter(|&&address| !self.halts.contains(address));
        let come =
            self.halts.addresses.iter().filter(|address| before.binary_search(address).is_err());
        let changed = gone.chain(come).map(|&address| address..address + 1);
        let changed: Vec<Range<u64>> = changed.collect();
        self.cache.forget_at(&changed);
    }

    /// Updates what is watched. That changes the code of every store, so the cache is flushed.
    fn set_watches(&mut self, is_debugged: bool) {
        let debug = &self.control.debug;
        let count = if is_debugged { debug.watch_count.load(Relaxed) as usize } else { 0 };
        let places = debug.watches[..count.min(WATCH_COUNT)].iter();
        let wanted = places.map(|watch| watch.each_ref().map(|word| word.load(Relaxed)));
        if self.halts.watches.are(wanted.clone()) {
            return;
        }
        self.halts.watches = Watches::new(wanted);
        self.cache.is_full = true;
    }

    /// Removes all breakpoints: this process was forked, or the debugger is gone. If it has followed the fork, they
    /// are set again.
    pub fn forget_halts(&mut self) {
        observers::set_debugged(false);
        self.set_halts(Vec::new());
        self.set_watches(false);
        self.halts.version = UNKNOWN;
    }

    /// Ends what a thread did for the debugger, which has forked, unless the debugger has followed it.
    pub fn stop_stepping(&self, thread: &Thread) {
        if self.control.debug.pid.load(Relaxed) as usize != system::pid() {
            thread.halt.motion.set(motion::GO);
            thread.task.set(task::NONE);
        }
    }

    /// Whether a breakpoint stops the thread: it has no condition, or one that holds.
    pub fn is_met(&self, thread: &Thread) -> bool {
        let Some(&place) = self.halts.conditions.get(&thread.pc.get()) else { return true };
        let texts = &self.control.debug.texts;
        let Some(text) = texts.get(place as usize..) else { return true };
        // SAFETY: bytes that the debugger changes only while all threads stand still.
        let text = unsafe { core::slice::from_raw_parts(text.as_ptr().cast::<u8>(), text.len()) };
        conditions::holds(text, &HaltedThread(thread))
    }

    /// Notes in the recording that a thread has left the clone for the debugger.
    pub fn stop_at(&mut self, thread: &Thread, address: u64) {
        let place = thread.exit.get() - emit::LEAVE as u64;
        self.cut(place, address);
        self.trace_cut(thread, place, (address, &thread.general()));
    }

    /// Makes code that is a breakpoint and nothing else, for a thread that the kernel sends there.
    pub fn stop_before(&mut self, thread: &Thread, pc: u64) -> u64 {
        let Some(arena) = self.cache.arena_for(pc) else { return pc };
        self.check_room(arena);
        let gate = self.cache.arenas[arena].gates().halt;
        let mut out = self.cache.arenas[arena].hot();
        let code = out.here();
        emit::leave_with(&mut out, gate, pc);
        self.cache.arenas[arena].take_hot(out.length);
        let records = alloc::vec![Kind::SystemCall as u8, out.length as u8];
        let block = Block { start: pc, end: pc, code, records, ..Block::default() };
        self.cache.add_unfound(arena, block);
        thread.epoch.store(self.cache.epoch, Relaxed);
        code
    }

    /// Whether a place in the clone is a breakpoint and nothing else.
    pub fn is_stop(&self, place: u64) -> bool {
        block_at(&self.cache, place).is_some_and(|block| block.start == block.end)
    }

    /// Continues a thread from a context: one instruction if it is stepped. Returns where in the clone.
    pub fn set_out(&mut self, thread: &Thread, context: &mut Context) -> u64 {
        let pc = context.rip;
        if thread.halt.motion.get() == motion::STEP && instruction_at(pc).is_some_and(is_repeated) {
            // Natively a step ends after each iteration.
            context.trap();
        }
        thread.set_general(&context.general());
        thread.flags.set(context.rflags);
        if !thread.is_stepping() {
            return self.continue_at(thread, pc);
        }
        let code = self.step(thread, pc);
        context.set_general(&thread.general());
        code
    }

    /// Sends a thread to one instruction by itself, with what is woven at it and recorded of it.
    pub fn step(&mut self, thread: &Thread, pc: u64) -> u64 {
        thread.pc.set(pc);
        self.halts.watches.divide(thread);
        thread.touched.set(self.halts.watches.touched(thread));
        let (code, counter) = match self.cache.steps.get(&pc) {
            Some(&step) => step,
            None => self.make_step(pc),
        };
        if counter != 0 {
            thread.count(counter);
        }
        thread.target.set(code);
        thread.epoch.store(self.cache.epoch, Relaxed);
        code
    }

    fn make_step(&mut self, pc: u64) -> (u64, u32) {
        let Some(code) = self.make_single(pc, Extent::Step) else {
            return (self.without_code(pc), 0);
        };
        if let Some(block) = self.cache.blocks.last()
            && block.records.chunks_exact(2).any(|it| kind_and_length(it).0 == Kind::Entry)
        {
            self.halts.returns.insert(block.end);
        }
        let recorder = self.recorder.as_ref().filter(|it| !it.is_for_trace());
        let counter = recorder.map_or(0, |recorder| recorder.entries_counter(pc));
        let is_fixed = |region: &Region| !region.is_writable() && !region.is_shared;
        if self.cache.regions.at(pc).is_some_and(is_fixed) {
            self.cache.steps.insert(pc, (code, counter));
        }
        (code, counter)
    }
}
