//! Standing still for a debugger.
//!
//! A halt is a signal to the debugger. Whatever brings a thread to one, be it a breakpoint, a step that is over,
//! a signal for the program or the debugger's own wish, takes the way that signals take: it waits until the
//! thread is about to go back to the clone, and finds all that the program has in a context as the kernel lays
//! it out. There the debugger reads it, through the kernel, and may change it.

mod condition;
mod watch;

use crate::clone::record::{Thread, at};
use crate::clone::regions::Region;
use crate::clone::signals::{self, Actions, Context, SIGSEGV, SIGTRAP};
use crate::clone::state::{RAX, RCX, RSP, block_at, kind_and_length};
use crate::clone::switch;
use crate::clone::translate::{self, Block, Extent, Kind, LONGEST_INSTRUCTION};
use crate::clone::{
    Engine, Exit, Guard, calls, emit, engine, left, locked, program, recording, system,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use condition::World;
use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use watch::{Look, Watches};
use weft_abi::CloneControl;
use weft_abi::addresses;
use weft_abi::halt::{
    BREAKPOINT_COUNT, CloneDebug, EARLY, HALT_MAGIC, WATCH_COUNT, catches, motion, reason,
};

/// How the kernel marks a signal that a process has queued.
const SI_QUEUE: i32 = -1;
const SIGNALS: u64 = 64;

/// What no version is.
const UNKNOWN: u32 = 0;

/// Whether this process is debugged.
static IS_DEBUGGED: AtomicU32 = AtomicU32::new(0);

/// Whether this process is debugged.
pub fn is_debugged() -> bool {
    IS_DEBUGGED.load(Relaxed) != 0
}

/// Whether somebody sees what nobody has written below the stack: a debugger, or who traces what is read.
pub fn is_stack_seen() -> bool {
    is_debugged() || recording::are_values_traced()
}

/// Where the clone stops for a debugger.
#[derive(Debug, Default)]
pub struct Halts {
    addresses: Vec<u64>,
    /// Where the conditions of those are that have any, in the memory that the debugger shares.
    conditions: BTreeMap<u64, u32>,
    watches: Watches,
    version: u32,
    /// Code for single instructions that will not change: by their addresses, with what counts who comes there.
    steps: BTreeMap<u64, (u64, u32)>,
    /// Where calls return to that were made by a step, or whose code is not there any more.
    returns: BTreeSet<u64>,
}

impl Halts {
    /// Whether an address is one of them.
    pub fn contains(&self, address: u64) -> bool {
        !self.addresses.is_empty() && self.addresses.binary_search(&address).is_ok()
    }

    /// Writes a look at what an instruction stores, if memory is watched: see [`Watches::look`].
    #[inline(always)]
    pub fn look(&self, out: &mut emit::Out, instruction: &Instruction) -> Option<Look> {
        if self.watches.is_empty() { None } else { self.watches.look(out, instruction) }
    }

    /// Whether an address is behind a call that was made elsewhere.
    pub fn is_return(&self, address: u64) -> bool {
        self.returns.contains(&address)
    }

    /// Forgets what was written to the clone.
    pub fn flush(&mut self) {
        self.steps.clear();
    }

    /// Forgets what was made of a range of the program's addresses.
    pub fn forget(&mut self, start: u64, end: u64) {
        if !self.steps.is_empty() {
            let longest = LONGEST_INSTRUCTION as u64;
            self.steps.retain(|&at, _| at.saturating_add(longest) <= start || at >= end);
        }
    }
}

/// Tells a debugger what it has to know of the engine.
pub fn introduce(control: &CloneControl, table: Range<u64>) {
    let debug = &control.debug;
    let place = |label: &u8| core::ptr::from_ref(label) as u64;
    // SAFETY: labels, whose addresses alone count.
    unsafe {
        debug.trap.store(place(&switch::weft_halted), Relaxed);
        debug.call.store(place(&switch::weft_call_instruction), Relaxed);
        debug.call_abandoned.store(place(&switch::weft_call_abandoned), Relaxed);
    }
    debug.halt.store(at!(halt) as u64, Relaxed);
    debug.table[0].store(table.start, Relaxed);
    debug.table[1].store(table.end, Relaxed);
    debug.aside.store(addresses::ENGINE.0, Relaxed);
    for (place, offset) in
        debug.record.iter().zip([at!(general), at!(pc), at!(flags), at!(vectors)])
    {
        place.store(offset as u64, Relaxed);
    }
    let is_debugged = debug.pid.load(Relaxed) as usize == system::pid();
    IS_DEBUGGED.store(u32::from(is_debugged), Relaxed);
}

impl Engine {
    /// Learns of breakpoints that have come and gone, if they have.
    #[inline(always)]
    pub fn follow_halts(&mut self) {
        let version = self.control.debug.version.load(Acquire);
        if version != self.halts.version {
            self.change_halts(version);
        }
    }

    #[cold]
    fn change_halts(&mut self, version: u32) {
        // A vforked child is not here for itself.
        if Thread::current().is_vforked.get() != 0 {
            return;
        }
        let debug = &self.control.debug;
        // Who forks shares this with its children; they are nobody's business.
        let is_debugged = debug.pid.load(Relaxed) as usize == system::pid();
        let was_debugged = IS_DEBUGGED.swap(u32::from(is_debugged), Relaxed) != 0;
        if is_debugged && !was_debugged {
            // What is there was made for nobody who looks.
            self.is_full |= !self.blocks.is_empty();
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
            self.forget_at(core::slice::from_ref(&(start..end)));
            // What the debugger has written is not news to it.
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
        self.forget_at(&changed);
    }

    /// Watches what is to be watched. Every store is another then, or none.
    fn set_watches(&mut self, is_debugged: bool) {
        let debug = &self.control.debug;
        let count = if is_debugged { debug.watch_count.load(Relaxed) as usize } else { 0 };
        let places = debug.watches[..count.min(WATCH_COUNT)].iter();
        let wanted = places.map(|watch| watch.each_ref().map(|word| word.load(Relaxed)));
        if self.halts.watches.are(wanted.clone()) {
            return;
        }
        self.halts.watches = Watches::new(wanted);
        self.is_full = true;
    }

    /// Nobody debugs this process: it was forked, or the debugger is gone. Unless it has come along.
    pub fn forget_halts(&mut self) {
        IS_DEBUGGED.store(0, Relaxed);
        self.set_halts(Vec::new());
        self.set_watches(false);
        self.halts.version = UNKNOWN;
    }

    /// A thread that goes on in another process has left behind what it did for the debugger, unless that has come along.
    pub fn stop_stepping(&self, thread: &Thread) {
        if self.control.debug.pid.load(Relaxed) as usize != system::pid() {
            thread.halt.motion.set(motion::GO);
            thread.errand.set(errand::NONE);
        }
    }

    /// Whether a breakpoint is one for the debugger: none of its conditions says otherwise.
    fn is_met(&self, thread: &Thread) -> bool {
        let Some(&place) = self.halts.conditions.get(&thread.pc.get()) else { return true };
        let texts = &self.control.debug.texts;
        let Some(text) = texts.get(place as usize..) else { return true };
        // SAFETY: bytes that the debugger changes only while all threads stand still.
        let text = unsafe { core::slice::from_raw_parts(text.as_ptr().cast::<u8>(), text.len()) };
        condition::holds(text, &Standing(thread))
    }

    /// A thread has left the clone for the debugger, in the middle of what is recorded.
    fn stop_at(&mut self, thread: &Thread, address: u64) {
        let place = thread.exit.get() - emit::LEAVE as u64;
        self.cut(place, address);
        self.trace_cut(thread, place, (address, &thread.general()));
    }

    /// Makes code that is a breakpoint and nothing else, for a thread that the kernel sends there.
    pub fn stop_before(&mut self, thread: &Thread, pc: u64) -> u64 {
        let Some(arena) = self.arena_for(pc) else { return pc };
        self.check_room(arena);
        let gate = self.arenas[arena].gates().halt;
        let mut out = self.arenas[arena].hot();
        let code = out.here();
        emit::leave_with(&mut out, gate, pc);
        self.arenas[arena].take_hot(out.length);
        let records = alloc::vec![Kind::SystemCall as u8, out.length as u8];
        let block = Block { start: pc, end: pc, code, records, ..Block::default() };
        self.add_unfound(arena, block);
        thread.epoch.store(self.epoch, Relaxed);
        code
    }

    /// Whether a place in the clone is a breakpoint and nothing else.
    pub fn is_stop(&self, place: u64) -> bool {
        block_at(self, place).is_some_and(|block| block.start == block.end)
    }

    /// Where a thread goes on that has stood still, or has not.
    pub fn set_out(&mut self, thread: &Thread, context: &mut Context) -> u64 {
        let pc = context.rip;
        if thread.halt.motion.get() == motion::STEP && instruction_at(pc).is_some_and(is_repeated) {
            // Natively it is stopped each time around.
            context.trap();
        }
        thread.set_general(&context.general());
        thread.flags.set(context.rflags);
        if !thread.is_stepping() {
            return self.go(thread, pc);
        }
        let code = self.step(thread, pc);
        context.set_general(&thread.general());
        code
    }

    /// Has a thread execute one instruction, with all that is woven at it and told of it.
    fn step(&mut self, thread: &Thread, pc: u64) -> u64 {
        thread.pc.set(pc);
        self.halts.watches.divide(thread);
        thread.touched.set(self.halts.watches.touched(thread));
        let (code, counter) = match self.halts.steps.get(&pc) {
            Some(&step) => step,
            None => self.make_step(pc),
        };
        if counter != 0 {
            thread.count(counter);
        }
        thread.target.set(code);
        thread.epoch.store(self.epoch, Relaxed);
        code
    }

    fn make_step(&mut self, pc: u64) -> (u64, u32) {
        let Some(code) = self.make_single(pc, Extent::Step) else {
            return (self.without_code(pc), 0);
        };
        if let Some(block) = self.blocks.last()
            && block.records.chunks_exact(2).any(|it| kind_and_length(it).0 == Kind::Entry)
        {
            self.halts.returns.insert(block.end);
        }
        let recorder = self.recorder.as_ref().filter(|it| !it.is_for_trace());
        let counter = recorder.map_or(0, |recorder| recorder.entries_counter(pc));
        let is_fixed = |region: &Region| !region.is_writable() && !region.is_shared;
        if self.regions.at(pc).is_some_and(is_fixed) {
            self.halts.steps.insert(pc, (code, counter));
        }
        (code, counter)
    }
}

impl Thread {
    /// Whether it is to stand still after an instruction.
    pub fn is_stepping(&self) -> bool {
        self.halt.motion.get() >= motion::STEP
    }

    /// Whether it steps on from where it is, without standing still.
    fn goes_on(&self) -> bool {
        let [start, end] = self.halt.range.each_ref().map(Cell::get);
        self.halt.motion.get() == motion::STEP_WITHIN && (start..end).contains(&self.pc.get())
    }
}

/// A thread as the conditions of a breakpoint see it.
struct Standing<'a>(&'a Thread);

impl World for Standing<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        /// Which register of the machine each of GDB's first is.
        const ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
        match number {
            0..16 => Some(self.0.general[ORDER[usize::from(number)]].get()),
            16 => Some(self.0.pc.get()),
            17 => Some(self.0.flags.get()),
            _ => None,
        }
    }

    fn memory(&self, address: u64, length: usize) -> Option<u64> {
        match length {
            1 => program::read::<u8>(address).map(u64::from),
            2 => program::read::<u16>(address).map(u64::from),
            4 => program::read::<u32>(address).map(u64::from),
            _ => program::read::<u64>(address),
        }
    }
}

/// What a thread does for the debugger, that the program knows nothing of.
pub mod errand {
    pub const NONE: u32 = 0;
    /// It executes one instruction by itself, since that may change memory that is watched.
    pub const STORE: u32 = 1;
    /// It has told of the system call that it is about to make.
    pub const CALL: u32 = 2;
    /// It is on its way to an instruction after which it traps, and traps when it gets there, too.
    pub const WAY: u32 = 3;
}

impl Thread {
    /// Whether it executes one instruction, and comes back.
    pub fn is_single(&self) -> bool {
        self.is_stepping() || self.errand.get() == errand::STORE
    }
}

/// A thread has come to a breakpoint: it stands before the instruction.
pub fn at_breakpoint(thread: &Thread, exit: &Exit) {
    let mut engine = engine();
    let pc = thread.pc.get();
    if !is_debugged() {
        engine.forget_halts();
        engine.go(thread, pc);
    } else if thread.is_vforked.get() != 0 {
        // The debugger has its parent.
        thread.target.set(engine.single(thread, pc));
    } else if !thread.is_stepping() && !engine.is_met(thread) && exit.epoch == engine.epoch {
        thread.target.set(thread.exit.get() + 8);
        thread.epoch.store(engine.epoch, Relaxed);
    } else {
        engine.stop_at(thread, pc);
        drop(engine);
        let reason = if thread.is_stepping() { reason::STEPPED } else { reason::BREAKPOINT };
        soon(thread, reason, 0);
    }
}

/// Gives a thread back what is left of a repeated instruction of which it has executed a piece, if it has: `general` are
/// its registers when it was at `pc`. Says where it is then.
pub fn rejoin(thread: &Thread, pc: u64, general: &mut [u64; 16], flags: u64) -> u64 {
    const ZERO: u64 = 0x40;
    let [start, rest] = thread.rest.take();
    if start == 0 {
        return pc;
    }
    let left = &mut general[RCX];
    if pc == start || *left != 0 {
        // It has not come to what ends the piece.
        thread.touched.set(0);
    }
    // One that compares may have found what it looks for.
    let is_found = instruction_at(start)
        .is_some_and(|it| compares(it) && (flags & ZERO != 0) == it.has_repne_prefix());
    let is_over = pc != start && (rest == 0 || *left != 0 || is_found);
    *left = left.wrapping_add(rest);
    if is_over { pc } else { start }
}

/// Does the same for a thread that is in the agent.
pub fn rejoin_in_agent(thread: &Thread, pc: u64) {
    let mut general = thread.general();
    thread.pc.set(rejoin(thread, pc, &mut general, thread.flags.get()));
    thread.set_general(&general);
}

/// A thread has come to a store that may change memory that is watched: it stands before the instruction.
pub fn at_store(thread: &Thread) {
    let mut engine = engine();
    let pc = thread.pc.get();
    engine.stop_at(thread, pc);
    thread.errand.set(errand::STORE);
    engine.step(thread, pc);
}

/// Puts the address that a thread returns to below its stack, if a return that did not find its way has left one of the
/// engine's there.
pub fn clean_below(thread: &Thread) {
    let below = thread.general[RSP].get().wrapping_sub(8);
    let mut engine = locked();
    let is_own = |left: u64| {
        left == switch::gate_missing as *const () as u64 || engine.half_of(left).is_some()
    };
    if program::read::<u64>(below).is_some_and(is_own) {
        program::write(below, thread.next.get());
        // From now on, it finds its way.
        engine.halts.returns.insert(thread.next.get());
    }
}

/// A thread is about to make a system call. Says whether it tells of it first, and comes again.
pub fn at_call(thread: &Thread) -> bool {
    if !is_debugged() || thread.is_vforked.get() != 0 {
        return false;
    }
    let number = thread.general[RAX].get();
    let has_told = thread.errand.get() == errand::CALL;
    thread.errand.set(errand::NONE);
    thread.number.set(number + 1);
    thread.is_caught.set(has_told);
    // Natively, a call that is stepped over is not told of.
    if has_told || thread.is_stepping() || !is_caught(&engine().control.debug, number) {
        return false;
    }
    thread.errand.set(errand::CALL);
    thread.pc.set(thread.pc.get() - calls::LENGTH);
    soon(thread, reason::CALL, number);
    true
}

fn is_caught(debug: &CloneDebug, number: u64) -> bool {
    match debug.catches.load(Relaxed) {
        catches::NONE => false,
        catches::ALL => true,
        _ => debug
            .calls
            .get(number as usize / 64)
            .is_some_and(|calls| calls.load(Relaxed) >> (number % 64) & 1 != 0),
    }
}

/// A thread has executed an instruction by itself, or made a system call, behind which the program goes on at `next`.
pub fn arrived(thread: &Thread, kind: u32, next: u64) {
    if thread.has_pending() && thread.errand.get() == errand::CALL {
        // It stands before the call.
        return;
    }
    let is_call = kind == left::SYSTEM_CALL;
    // The kernel tells of a step that a call has ended before it tells of the signals that the call has brought; but
    // where one was told of in the call, the step is to the handler.
    let has_called = is_call && thread.pc.get() == next;
    let is_news = || thread.halt.told.get() != u64::from(thread.pending_info.get()[0] as u32);
    let is_over = thread.is_stepping() && !thread.goes_on();
    let is_step_first = || has_called && is_over && is_news();
    if thread.has_pending() && thread.is_single() && !is_step_first() {
        // A signal comes first, and is delivered where the thread is now.
        thread.errand.set(errand::NONE);
        thread.target.set(thread.pc.get());
        return;
    }
    if thread.halt.motion.get() == motion::STEP {
        thread.flags.set(thread.flags.get() & !signals::TRAP_FLAG);
    }
    let was_store = thread.errand.get() == errand::STORE;
    if was_store {
        thread.errand.set(errand::NONE);
    }
    // In the middle of a repeated instruction.
    let is_single = was_store || thread.is_stepping();
    let is_amid = is_single && !is_call && thread.pc.get() != translate::real(next);
    let is_caught = thread.is_caught.take();
    let has_heard = thread.halt.heard.take() != 0;
    // One that was given up for a signal is made again.
    let is_told = has_called && is_caught && !thread.is_stepping() && !has_heard;
    if is_told && (!thread.has_pending() || is_news()) {
        return soon(thread, reason::RETURN, thread.number.get() - 1);
    }
    let mut engine = engine();
    let touched = thread.touched.take();
    if is_call || was_store || thread.is_stepping() {
        let changed = engine.halts.watches.changed();
        if let Some(address) = changed.or((touched != 0).then_some(touched)) {
            drop(engine);
            return soon(thread, reason::WATCHED, address);
        }
    }
    if !thread.is_stepping() {
        let pc = thread.pc.get();
        if is_amid {
            thread.errand.set(errand::STORE);
            engine.step(thread, pc);
        } else if was_store {
            engine.go(thread, pc);
        }
        return;
    }
    let (pc, goes_on) = (thread.pc.get(), thread.goes_on());
    let is_at_breakpoint = !is_amid && engine.halts.contains(pc);
    if goes_on && !is_at_breakpoint && !thread.has_pending() {
        engine.step(thread, pc);
        return;
    }
    drop(engine);
    match goes_on && is_at_breakpoint {
        true => soon(thread, reason::BREAKPOINT, 0),
        false => soon(thread, reason::STEPPED, if is_call { thread.number.get() } else { 0 }),
    }
}

/// Has a thread, which is in the agent, stand still before it goes back to the clone.
pub fn soon(thread: &Thread, reason: u64, about: u64) {
    thread.is_masked.store(true, Relaxed);
    let mask = signals::block();
    signals::keep_mask(thread, mask);
    // What it leaves is not the clone any more.
    thread.target.set(thread.pc.get());
    thread.pending_info.set(asking(reason, about));
    thread.set_pending();
}

/// A signal that asks a thread to stand still.
pub fn asking(reason: u64, about: u64) -> [u64; 16] {
    let mut info = [0; 16];
    let words = [SIGSEGV as u64, u64::from(SI_QUEUE as u32), 0, HALT_MAGIC, reason, about];
    info[..words.len()].copy_from_slice(&words);
    info
}

/// Why a signal asks a thread to stand still, if it is one that does.
pub fn asked(info: &[u64; 16]) -> Option<u64> {
    let is_asking =
        info[0] as u32 as usize == SIGSEGV && info[1] as i32 == SI_QUEUE && info[3] == HALT_MAGIC;
    is_asking.then(|| if info[4] == reason::NONE { reason::ASKED } else { info[4] })
}

/// Tells the debugger of a signal, if it is to know, or of a halt. Says whether the program gets a signal: that one,
/// or another that it is now.
pub fn consult(
    mut engine: Guard,
    thread: &Thread,
    info: &mut [u64; 16],
    context: &mut Context,
) -> (Guard, bool) {
    engine.follow_halts();
    let asked = asked(info);
    if !is_debugged() || thread.is_vforked.get() != 0 {
        return (engine, asked.is_none());
    }
    let signal = u64::from(info[0] as u32);
    let is_step = signal == SIGTRAP as u64 && info[1] as i32 == signals::TRAP_TRACE;
    let asked = match is_step && thread.halt.motion.get() == motion::STEP {
        true => {
            context.rflags &= !signals::TRAP_FLAG;
            *info = asking(reason::STEPPED, 0);
            Some(reason::STEPPED)
        }
        false => asked,
    };
    let passed = engine.control.debug.passed.load(Relaxed);
    let reason = match asked {
        Some(reason) => reason,
        None if thread.halt.told.take() == signal => return (engine, true),
        // A debugger that steps has to know.
        None if passed >> (signal - 1) & 1 != 0 && !thread.is_stepping() => return (engine, true),
        None => reason::SIGNAL,
    };
    drop(engine);
    thread.halt.told.set(0);
    let early = if thread.is_pending_early.swap(false, Relaxed) { EARLY } else { 0 };
    let about = if asked.is_some() { info[5] } else { signal | early };
    if asked.is_some() {
        *info = [0; 16];
    }
    stand_still(thread, (reason, about), info, context);
    let wanted = thread.halt.signal.get();
    // The debugger may have said more of it.
    if u64::from(info[0] as u32) != wanted {
        *info = [0; 16];
        info[0] = wanted;
    }
    if !(1..=SIGNALS).contains(&wanted) {
        return (crate::clone::engine(), false);
    }
    // One that the debugger has thought of, and that is blocked, waits as any other.
    let is_given = asked.is_some() || wanted != signal;
    let is_blocked = (context.mask | thread.hidden_mask.get()) >> (wanted - 1) & 1 != 0;
    if is_given && is_blocked {
        signals::send_again(info);
    }
    (crate::clone::engine(), !(is_given && is_blocked))
}

/// Stands still until the debugger says how to go on.
fn stand_still(
    thread: &Thread,
    (reason, about): (u64, u64),
    info: &mut [u64; 16],
    context: &mut Context,
) {
    // It does as it was asked to.
    signals::later::forget_asked(thread);
    let halt = &thread.halt;
    halt.about.set(about);
    halt.context.set(core::ptr::from_mut(context) as u64);
    halt.info.set(core::ptr::from_mut(info) as u64);
    halt.gs_base.set(thread.gs_base.get());
    halt.motion.set(motion::NONE);
    halt.signal.set(0);
    halt.reason.set(reason);
    // A trap that is blocked would be the last that the engine hears of.
    signals::let_traps_in();
    switch::halt(halt);
    halt.reason.set(reason::NONE);
    thread.gs_base.set(halt.gs_base.get());
    if halt.motion.get() == motion::NONE {
        // The debugger is gone, and has not said so to anybody.
        let mut engine = engine();
        engine.control.debug.pid.store(0, Relaxed);
        engine.forget_halts();
    }
}

/// The instruction of the program's at an address, if there is one.
fn instruction_at(pc: u64) -> Option<Instruction> {
    let bytes = program::read::<[u8; 16]>(pc)?;
    Some(Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode())
}

/// Whether an instruction does the same again and again, and can be interrupted meanwhile.
fn is_repeated(instruction: Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Whether a repeated instruction looks at what it has compared before it goes around again.
fn compares(instruction: Instruction) -> bool {
    use iced_x86::Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    matches!(instruction.mnemonic(), Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq)
}

/// Whether a signal is the one by which a thread stands still, where nobody has caught it.
pub fn is_own_trap(pc: u64) -> bool {
    // SAFETY: a label, whose address alone counts.
    pc == unsafe { core::ptr::from_ref(&switch::weft_halted) as u64 }
}
