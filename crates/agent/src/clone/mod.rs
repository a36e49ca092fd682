//! The clone engine: the program runs from a clone of its code that is made as it goes, and cannot
//! tell. See `docs/explanation/clone-engine.md`.
//!
//! [`switch`] is how threads come and go, [`translate`] what they find, [`state`] the way back from any
//! place in the clone to the program's own state. The rest keeps the program's view of the kernel what
//! it would be: [`calls`], [`processes`], [`signals`], [`pages`].

mod base;
mod cache;
mod failure;
mod kernel;
mod leave;
mod switch;
mod thread;
mod tools;
mod translate;

#[cfg(weft_freestanding)]
use base::heap;
use base::{clock, program, system};
use cache::{
    address_map as map, arena, branch_tables as tables, emit, integrity as sound, pages, pieces,
    program_state as state, regions,
};
use failure::{give_up, report};
use kernel::{
    call_points, calls, coprocessor, filters, limits, memory_files as maps, processes, sequences,
    signals, vsyscall,
};
use thread::{record, vectors};
use tools::{halt, recording, tracing, weaving};

use alloc::boxed::Box;
use alloc::vec::Vec;
use arena::Arena;
use core::cell::UnsafeCell;
use core::mem;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use halt::Halts;
use map::{Map, Place};
use pages::Pages;
use record::{Thread, left};
use recording::Recorder;
use regions::Regions;
use sequences::Sequences;
use tables::Tables;
use translate::{Cold, Extent, Inserts, Known, Link, Source, stub, translate};
use weaving::Weaving;
use weft_abi::{COUNTER_FORBIDDEN, CloneControl, CloneStep, CloneThread, CloneVisit, option, turn};

pub(crate) use give_up::fail;
#[cfg(weft_freestanding)]
pub(crate) use give_up::fail_with;

#[cfg(weft_freestanding)]
#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// A block that was translated.
#[derive(Debug)]
pub struct BlockInfo {
    pub start: u64,
    pub code: u64,
    pub records: Box<[u8]>,
    /// Where in the program it ends.
    end: u64,
    /// Whether it is reached from within the function that begins there.
    is_inner: bool,
    /// What was translated, if that has to be checked each time.
    original: Box<[u8]>,
    /// Addresses by which it is known.
    starts: Vec<u64>,
    /// Branches that are tied to it.
    incoming: Vec<Link>,
    is_valid: bool,
}

impl BlockInfo {
    fn overlaps(&self, place: &Range<u64>) -> bool {
        self.start < place.end && place.start < self.end
    }
}

/// Everything that all threads share.
#[derive(Debug)]
pub struct Engine {
    pub arenas: Vec<Arena>,
    pub blocks: Vec<BlockInfo>,
    map: Map,
    regions: Regions,
    pages: Pages,
    sequences: Sequences,
    tables: Tables,
    weaving: Weaving,
    recorder: Option<Recorder>,
    halts: Halts,
    /// Blocks of the clone that was thrown away last.
    retired: Vec<BlockInfo>,
    /// Whether the clone has to be thrown away before more is added.
    is_full: bool,
    /// Whether the kernel tells the engine of signals.
    has_begun: bool,
    /// Whether the kernel may not do what the engine asks for.
    is_sealed: bool,
    /// Whether it also tells of traps, because threads are led out of snippets.
    has_trap: bool,
    /// The list of all threads that ever were; those that have ended can be used again.
    threads: u64,
    epoch: u64,
    cache_size: u64,
    options: u64,
    control: &'static CloneControl,
}

struct Shared {
    /// The id of the thread that has the engine, or [`VISITOR`]; with [`WAITING`] if others wait for it. So whoever
    /// finds that the thread is dead knows that it died with the engine.
    lock: AtomicU32,
    engine: UnsafeCell<Option<Engine>>,
}

/// In a lock: others wait.
const WAITING: u32 = 1 << 31;
/// In a lock: a thread has it that is here for the host. No thread has this id.
const VISITOR: u32 = WAITING - 1;

// SAFETY: the engine is reached only through the lock.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { lock: AtomicU32::new(0), engine: UnsafeCell::new(None) };

/// The engine, for as long as this lives.
pub struct Guard(&'static mut Engine);

impl core::ops::Deref for Guard {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0
    }
}

impl core::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        unlock();
    }
}

/// Waits for the engine, and for it to have room. Whoever comes here must be out of the clone: see
/// [`Thread::epoch`].
pub fn engine() -> Guard {
    loop {
        let mut engine = locked();
        engine.follow_halts();
        if !engine.is_full {
            return engine;
        }
        if engine.is_drained() {
            engine.flush();
            return engine;
        }
        // Somebody is still in the half that comes next, but not for long.
        drop(engine);
        // SAFETY: gives others a turn.
        unsafe { system::call3(system::SCHED_YIELD, 0, 0, 0) };
    }
}

/// Waits for the engine.
pub fn locked() -> Guard {
    let lock = &SHARED.lock;
    let own = Thread::current().tid.get();
    if lock.compare_exchange(0, own, Acquire, Relaxed).is_ok() {
        return held();
    }
    loop {
        let seen = lock.load(Relaxed);
        if seen == 0 {
            // There may be others who wait.
            if lock.compare_exchange(0, own | WAITING, Acquire, Relaxed).is_ok() {
                return held();
            }
        } else if seen & WAITING != 0
            || lock.compare_exchange(seen, seen | WAITING, Relaxed, Relaxed).is_ok()
        {
            system::futex_wait(lock, seen | WAITING);
        }
    }
}

/// Whether a thread has the engine.
fn is_held_by(thread: &Thread) -> bool {
    thread.tid.get() != 0 && SHARED.lock.load(Relaxed) & !WAITING == thread.tid.get()
}

/// Takes the engine over from a thread that was killed while it had it, if it was.
fn inherit(dead: &Thread, heir: &Thread) -> bool {
    let is_left = is_held_by(dead);
    if is_left {
        SHARED.lock.store(heir.tid.get() | WAITING, Relaxed);
    }
    is_left
}

/// The engine, if nobody has it.
fn free() -> Option<Guard> {
    SHARED.lock.compare_exchange(0, VISITOR, Acquire, Relaxed).is_ok().then(held)
}

fn held() -> Guard {
    // SAFETY: the lock is the caller's.
    match unsafe { &mut *SHARED.engine.get() } {
        Some(engine) => Guard(engine),
        None => fail("the engine is not there yet"),
    }
}

/// Takes a thread out of the clone that has found its way out of it, and makes sure of room.
pub fn out_of_clone(engine: Guard, thread: &Thread) -> Guard {
    thread.epoch.store(u64::MAX, Release);
    if !engine.is_full {
        return engine;
    }
    drop(engine);
    crate::clone::engine()
}

fn unlock() {
    if SHARED.lock.swap(0, Release) & WAITING != 0 {
        system::futex_wake(&SHARED.lock);
    }
}

static IMAGE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Where the engine's own code and data are.
pub fn image() -> Range<u64> {
    IMAGE[0].load(Relaxed)..IMAGE[1].load(Relaxed)
}

/// The threads that the host tells of in a visit.
fn visitors(visit: &mut CloneVisit) -> &mut [CloneThread] {
    let count = visit.threads as usize;
    // SAFETY: the host has put them right behind it.
    unsafe {
        let first = core::ptr::from_mut(visit).add(1).cast();
        core::slice::from_raw_parts_mut(first, count)
    }
}

/// What the host says behind the threads in a visit. It stays as long as the visit, which nobody else sees.
fn message<'a>(visit: &CloneVisit) -> &'a [u64] {
    // SAFETY: the host has put both there, one behind the other.
    unsafe {
        let first = core::ptr::from_ref(visit).add(1).cast::<CloneThread>();
        let end = first.add(visit.threads as usize).cast::<u64>();
        core::slice::from_raw_parts(end, visit.message as usize)
    }
}

/// Builds the engine for threads that will [`processes::join`] it. Until then nothing of the process has
/// changed but that it has more memory.
extern "C" fn start(visit: &mut CloneVisit) {
    let start = visit.start;
    // SAFETY: the host has mapped the control block, and leaves it there.
    let control = unsafe { &*(start.control as *const CloneControl) };
    let place = (start.tables as usize, start.reserved as usize);
    let Some(tables) = Tables::map(place.0, place.1) else { return };
    let table = tables.range();
    let mut engine = Engine {
        arenas: Vec::new(),
        blocks: Vec::new(),
        map: Map::new(),
        regions: Regions::told(message(visit)),
        pages: Pages::default(),
        sequences: Sequences::default(),
        tables,
        weaving: Weaving::default(),
        recorder: Recorder::new(start.recording, start.mode),
        halts: Halts::default(),
        retired: Vec::new(),
        is_full: false,
        has_begun: false,
        is_sealed: false,
        has_trap: false,
        threads: 0,
        epoch: 1,
        cache_size: start.cache_size,
        options: start.options,
        control,
    };
    for (kept, end) in IMAGE.iter().zip(start.image) {
        kept.store(end, Relaxed);
    }
    let actions = signals::Actions::read();
    for visitor in visitors(visit) {
        let Some(thread) = engine.thread() else { return };
        thread.actions.store(actions, Relaxed);
        thread.be(visitor);
        engine.sequences.add_signature(visitor.signature as u32);
        visitor.record = thread.this;
    }
    if control.counter_mode.load(Relaxed) == COUNTER_FORBIDDEN {
        engine.leave_counter_alone();
    }
    // SAFETY: nobody else is here yet.
    unsafe { *SHARED.engine.get() = Some(engine) };
    report::write_to(control);
    halt::introduce(control, table);
    visit.is_done = 1;
}

/// What a thread does that has left the clone: see [`left`].
extern "C" fn dispatch(thread: &Thread) {
    let began = cycles();
    let kind = thread.left.get();
    let epoch = thread.epoch.load(Relaxed);
    // SAFETY: a way out, as `translate` writes it; it stays until this thread says that it is out.
    let exit = unsafe {
        match kind {
            left::EXIT => {
                let stub = thread.exit.get() - emit::LEAVE as u64;
                let word = |offset: u64| *((stub + offset) as *const u64);
                let (target, site, mark) = (word(stub::TARGET), word(stub::SITE), word(stub::FAR));
                Exit { target, site, stub, epoch, mark }
            }
            left::INDIRECT => Exit { target: thread.next.get(), site: 0, stub: 0, epoch, mark: 0 },
            _ => {
                let target = *(thread.exit.get() as *const u64);
                Exit { target, site: 0, stub: 0, epoch, mark: 0 }
            }
        }
    };
    thread.epoch.store(u64::MAX, Release);
    if kind == left::INDIRECT && halt::is_stack_seen() {
        halt::clean_below(thread);
    }
    thread.way_out.set(give_up::way_out(kind, exit.target));
    let is_aborted;
    let step = {
        let mut engine = engine();
        engine.control.stats.agent_entries.fetch_add(1, Relaxed);
        match kind {
            left::EXIT | left::INDIRECT if thread.is_single() => {
                halt::rejoin_in_agent(thread, translate::real(exit.target));
            }
            left::EXIT => engine.exit(thread, &exit),
            left::INDIRECT => engine.indirect(thread, exit.target),
            left::CHECK => engine.check(thread, &exit),
            left::SEQUENCE => engine.sequence(thread, &exit),
            left::ABORT => engine.abort(thread, exit.target),
            left::SAVED => engine.saved(thread, &exit),
            left::SYSTEM_CALL => {
                engine.control.stats.system_calls.fetch_add(1, Relaxed);
                thread.pc.set(exit.target);
            }
            left::HALT | left::WATCH => thread.pc.set(exit.target),
            _ => thread.pc.set(exit.target),
        }
        is_aborted = engine.leave_sequence(thread);
        engine.control.stats.agent_cycles.fetch_add(cycles().saturating_sub(began), Relaxed);
        let is_over = matches!(kind, left::EXIT | left::INDIRECT | left::SYSTEM_CALL);
        (engine.is_in_step() && is_over).then_some(&engine.control.step)
    };
    if kind == left::REFUSED {
        refused(thread, exit.target);
    }
    if kind == left::SYSTEM_CALL && !is_aborted && !halt::at_call(thread) {
        calls::system_call(thread);
        let pc = thread.pc.get();
        engine().go(thread, pc);
    }
    match kind {
        left::HALT => halt::at_breakpoint(thread, &exit),
        left::WATCH => halt::at_store(thread),
        left::EXIT | left::INDIRECT | left::SYSTEM_CALL if halt::is_debugged() => {
            halt::arrived(thread, kind, exit.target);
        }
        _ => {}
    }
    thread.way_out.set(0);
    if let Some(step) = step {
        wait_in_step(thread, step, exit.mark != 0);
    }
}

/// A thread has come to what cannot be translated: comes back if it goes on all the same.
fn refused(thread: &Thread, pc: u64) {
    if vsyscall::is_at(pc) {
        if vsyscall::call(thread) {
            return;
        }
    } else if engine().is_hidden(pc) {
        // Where the process cannot leave, the thread does.
        give_up::hidden(thread);
    } else {
        give_up::refused(thread);
    }
    thread.target.set(pc);
    thread.epoch.store(engine().epoch, Relaxed);
}

/// Says where the program is, and waits until the host has seen it.
fn wait_in_step(thread: &Thread, step: &CloneStep, is_onward: bool) {
    let registers = thread.general.iter().chain([&thread.pc, &thread.flags]);
    for (place, value) in step.registers.iter().zip(registers) {
        place.store(value.get(), Relaxed);
    }
    step.is_onward.store(u32::from(is_onward), Relaxed);
    step.turn.store(turn::HOST, Release);
    system::futex_wake(&step.turn);
    while step.turn.load(Acquire) == turn::HOST {
        system::futex_wait(&step.turn, turn::HOST);
    }
}

/// By what a thread has left the clone.
pub struct Exit {
    /// Where the program goes on.
    target: u64,
    /// The branch that it left by, if that can be tied to its target; and its stub.
    site: u64,
    stub: u64,
    /// Which clone that was.
    epoch: u64,
    /// What the stub is marked with: the counter of its branch, if that counts once; where nothing is tied,
    /// whether it is the end of a block, not a branch.
    mark: u64,
}

/// Whether the program has forbidden itself to read the time stamp counter.
static IS_COUNTER_FORBIDDEN: AtomicU32 = AtomicU32::new(0);

/// Said where snippets read the counter that a program is about to forbid itself.
const FORBIDS_COUNTER: &str = "the program is about to forbid itself to read the time stamp counter, which times are measured by";

fn is_counter_forbidden() -> bool {
    IS_COUNTER_FORBIDDEN.load(Relaxed) != 0
}

fn cycles() -> u64 {
    if is_counter_forbidden() {
        return 0;
    }
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Engine {
    /// Reads the time stamp counter no more, neither here nor in snippets.
    pub fn leave_counter_alone(&mut self) {
        if self.weaving.reads_counter() {
            fail(FORBIDS_COUNTER);
        }
        IS_COUNTER_FORBIDDEN.store(1, Relaxed);
        self.control.counter_mode.store(COUNTER_FORBIDDEN, Relaxed);
    }

    /// A thread's memory: that of one that has ended, or new.
    pub fn thread(&mut self) -> Option<&'static Thread> {
        let is_free =
            |thread: &&Thread| thread.is_used.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if let Some(thread) = self.threads().find(is_free) {
            thread.clear_pending();
            thread.later.store(0, Relaxed);
            thread.way_out.set(0);
            thread.hidden_mask.set(0);
            thread.altstack.set([0, signals::SS_DISABLE, 0]);
            thread.epoch.store(u64::MAX, Relaxed);
            thread.unregister();
            thread.forget_halt();
            self.give_stripe(thread);
            return Some(thread);
        }
        let thread = Thread::map(self.recorder.is_some(), self.tables.second(), self.threads)?;
        self.give_stripe(thread);
        thread.is_used.store(1, Relaxed);
        thread.epoch.store(u64::MAX, Relaxed);
        self.threads = thread.this;
        Some(thread)
    }

    /// Learns that this is another process, of which this is the only thread.
    pub fn be_process(&mut self, thread: &Thread) {
        self.forget_halts();
        self.stop_stepping(thread);
        self.weaving.be_process();
        self.weaving.equip(thread);
        if let Some(recorder) = &mut self.recorder {
            recorder.be_process();
            recorder.equip(thread);
        }
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

    /// Has a thread go on at an address of the program; returns where that is in the clone.
    pub fn go(&mut self, thread: &Thread, pc: u64) -> u64 {
        if translate::is_inner(pc) {
            // There can be nothing.
            thread.pc.set(pc);
            thread.target.set(pc);
            return pc;
        }
        let place = self.go_as(thread, pc);
        self.entered(thread, pc);
        place
    }

    /// The same for an address that may be the start of a function as it is reached from within.
    pub fn go_as(&mut self, thread: &Thread, key: u64) -> u64 {
        let pc = translate::real(key);
        thread.pc.set(pc);
        let body = self.find(key).map(|place| place.body);
        thread.target.set(body.unwrap_or_else(|| self.without_code(pc)));
        thread.epoch.store(self.epoch, Relaxed);
        thread.target.get()
    }

    /// The arena that holds a place in the clone.
    fn arena_of(&self, address: u64) -> Option<&Arena> {
        self.arenas.iter().find(|arena| arena.contains(address))
    }

    fn arena_of_mut(&mut self, address: u64) -> Option<&mut Arena> {
        self.arenas.iter_mut().find(|arena| arena.contains(address))
    }

    /// A direct branch that is not tied to its target: ties it.
    fn exit(&mut self, thread: &Thread, exit: &Exit) {
        if self.has_passed(thread, exit) {
            return;
        }
        self.go_as(thread, exit.target);
        if exit.site == 0 {
            // From a single instruction, which is not told of.
            return self.entered(thread, exit.target);
        }
        // What is thrown away is not to be changed: somebody may find his way by it.
        if exit.site & translate::ONE_SHOT != 0 || exit.epoch != self.epoch {
            return;
        }
        self.tie_to(exit.target, exit.site, exit.stub);
    }

    /// Has a branch lead to the block of an address, if that has one.
    fn tie_to(&mut self, target: u64, site: u64, stub: u64) {
        let Some(&Place { body, block, .. }) = self.map.get(target) else { return };
        self.tie(site, body, stub);
        self.blocks[block as usize].incoming.push(Link { site, target });
        self.control.stats.links.fetch_add(1, Relaxed);
    }

    /// Has a branch lead to a block, by its distance or through its stub.
    fn tie(&mut self, site: u64, body: u64, stub: u64) {
        if translate::in_reach(site + 4, body) {
            self.write_distance(site, body);
        } else if let Some(arena) = self.arena_of(stub) {
            // SAFETY: a stub, aligned to sixteen. Its first eight bytes are written at once; whoever has
            // executed the first instruction finds the rest as it was.
            unsafe {
                *arena.writable(stub + stub::FAR).cast::<u64>() = body;
                let jump = [0xff, 0x25, stub::FAR as u8 - 6, 0, 0, 0, 0xcc, 0xcc];
                let first = arena.writable(stub).cast::<u64>();
                core::ptr::write_volatile(first, u64::from_le_bytes(jump));
            }
        }
    }

    fn write_distance(&self, site: u64, to: u64) {
        if let Some(arena) = self.arena_of(site) {
            let distance = to.wrapping_sub(site + 4) as u32;
            // SAFETY: the four bytes lie within one line of the cache, so that others see all or none.
            unsafe { core::ptr::write_volatile(arena.writable(site).cast::<u32>(), distance) };
        }
    }

    /// An indirect branch that the table does not know.
    fn indirect(&mut self, thread: &Thread, target: u64) {
        self.go(thread, target);
        if self.is_in_step() {
            return;
        }
        if let Some(entry) = self.entry(target) {
            self.tables.set(target, entry);
        }
    }

    /// Whether the program waits for the host after each block: then every branch leaves the clone.
    fn is_in_step(&self) -> bool {
        self.options & option::IN_STEP != 0
    }

    /// The start of a block whose original may have changed.
    fn check(&mut self, thread: &Thread, exit: &Exit) {
        let address = exit.target;
        let is_current = exit.epoch == self.epoch;
        let known = self.map.get(address).filter(|_| is_current).map(|place| place.block);
        if let Some(number) = known {
            let original = &self.blocks[number as usize].original;
            // SAFETY: the program's own code; it was there when it was translated.
            let now = unsafe { core::slice::from_raw_parts(address as *const u8, original.len()) };
            if !original.is_empty() && self.pages.is_readable(address) && now == &original[..] {
                thread.pc.set(address);
                thread.target.set(thread.exit.get() + 8);
                thread.epoch.store(self.epoch, Relaxed);
                return;
            }
            self.forget_block(number);
        }
        // It has been there before.
        self.go_as(thread, address);
    }

    /// Where indirect branches enter the code of an address, which must be translated.
    fn entry(&mut self, address: u64) -> Option<u64> {
        let place = *self.map.get(address)?;
        if place.entry != 0 {
            return Some(place.entry);
        }
        let is_return = self.halts.is_return(address);
        let arena = self.arena_of_mut(place.body)?;
        let wrong = arena.gates().wrong;
        let most = emit::ENTRY + emit::ADDRESS_BELOW + emit::COUNT + 5;
        let mut out = arena.cold(most, Cold::Entry);
        emit::entry(&mut out, address, wrong);
        if is_return {
            emit::address_below(&mut out, address);
        }
        let counter = self.recorder.as_ref().map_or(0, |it| it.count_entry(&place, &mut out));
        out.jump(place.body);
        let place = self.map.get_mut(address)?;
        (place.entry, place.counter) = (out.rx, counter);
        Some(out.rx)
    }

    /// Makes code for one instruction that is not kept, and says where it is.
    pub fn single(&mut self, thread: &Thread, pc: u64) -> u64 {
        thread.pc.set(pc);
        let made = self.make_single(pc, Extent::Single);
        thread.epoch.store(self.epoch, Relaxed);
        made.unwrap_or_else(|| self.without_code(pc))
    }

    /// Where a thread goes on for an address of which nothing can be translated: there, for the fault that the program
    /// has natively; or, where there is none, out of the clone.
    fn without_code(&mut self, pc: u64) -> u64 {
        let is_call =
            vsyscall::is_at(pc) && self.regions.at(pc).is_some_and(regions::Region::is_code);
        if !is_call && !self.is_hidden(pc) {
            return pc;
        }
        // It reaches nothing that would have to be near.
        let arena = if self.arenas.is_empty() { self.arena_for(pc) } else { Some(0) };
        let Some(arena) = arena else { return pc };
        self.check_room(arena);
        let block = translate::refusal(pc, &mut self.arenas[arena]);
        let code = block.code;
        self.add_unfound(arena, block);
        code
    }

    /// Whether the code at an address can be executed but not read: its first instruction, which cannot be translated.
    fn is_hidden(&self, pc: u64) -> bool {
        // The kernel's page for old programs cannot be read either.
        if pc >= 1 << 47 {
            return false;
        }
        let read = Regions::read();
        let regions = read.as_ref().unwrap_or(&self.regions);
        let next = (pc | (system::PAGE - 1)) + 1;
        let pages = [pc, next]
            .into_iter()
            .filter(|&page| page < pc + translate::LONGEST_INSTRUCTION as u64);
        for page in pages {
            let Some(region) = regions.at(page).filter(|region| region.is_code()) else {
                return false;
            };
            if program::read::<u8>(page).is_none() {
                // What is beyond the end of a file is not there for the kernel either. It is not asked where a
                // filter may not like that.
                let is_readable = region.protection & system::PROT_READ != 0;
                return !is_readable || self.is_sealed || system::may_kernel_read(page);
            }
        }
        false
    }

    fn make_single(&mut self, pc: u64, extent: Extent) -> Option<u64> {
        let end = self.code_end(pc)?;
        let arena = self.arena_for(pc)?;
        self.check_room(arena);
        let block = self.translate(&Source::at(pc, end), pc, arena, extent)?;
        let code = block.code;
        self.add_unfound(arena, block);
        Some(code)
    }

    /// Keeps a block that nobody finds but the thread that is sent there.
    fn add_unfound(&mut self, arena: usize, block: translate::Block) {
        let number = self.add(arena, block, Box::default());
        let added = &mut self.blocks[number as usize];
        (added.is_valid, added.starts) = (false, Vec::new());
    }

    fn translate(
        &mut self,
        source: &Source,
        key: u64,
        arena: usize,
        extent: Extent,
    ) -> Option<translate::Block> {
        let ties = !self.is_in_step();
        // The page that it begins in can be read. What may change is not looked at beyond what is translated.
        let may_change = |region: &regions::Region| region.is_writable() || region.is_shared;
        let begins = match self.regions.at(source.address).is_none_or(may_change) {
            true => source.address,
            false => source.address & !(system::PAGE - 1),
        };
        self.weaving.seen = begins..source.address + source.bytes.len() as u64;
        let table = self.tables.first();
        let known = Known { map: &self.map, sequences: &self.sequences, table };
        let place = (arena, &mut self.arenas[arena]);
        let inserts = Inserts {
            weaving: &mut self.weaving,
            recorder: self.recorder.as_mut(),
            halts: &self.halts,
        };
        translate(source, key, known, place, inserts, extent, ties)
    }

    /// Finds the code of an address, or makes it; nothing if there can be none.
    fn find(&mut self, key: u64) -> Option<Place> {
        self.control.stats.lookups.fetch_add(1, Relaxed);
        if let Some(place) = self.map.get(key) {
            return Some(*place);
        }
        self.control.stats.misses.fetch_add(1, Relaxed);
        self.make(key)
    }

    fn make(&mut self, key: u64) -> Option<Place> {
        // What is in a restartable sequence is translated with all of it, if it can be found so.
        if let Some(range) = self.sequences.around(translate::real(key)) {
            self.make_block(range.start, Some(range.end));
            if let Some(place) = self.map.get(key) {
                return Some(*place);
            }
        }
        self.make_block(key, None)?;
        self.map.get(key).copied()
    }

    /// Makes the code of an address, or of sequences up to an end; nothing if there can be none.
    fn make_block(&mut self, key: u64, sequences_end: Option<u64>) -> Option<()> {
        let address = translate::real(key);
        let mut end = self.code_end(address)?;
        let Some(arena) = self.arena_for(address) else {
            fail("there is no room for a clone near the code");
        };
        self.check_room(arena);
        let is_seeing = self.options & option::BLIND == 0;
        let region = self.regions.at(address).copied();
        let is_checked = is_seeing
            && region.is_some_and(|region| region.is_shared || self.pages.is_restless(address));
        let is_guarded =
            is_seeing && !is_checked && region.is_some_and(|region| region.is_writable());
        let extent = match sequences_end {
            Some(end) => Extent::Sequences { end, is_checked },
            None if is_checked => Extent::Checked,
            None => Extent::Block,
        };
        if is_guarded {
            self.pages.guard(&self.regions, address);
            match sequences_end {
                Some(last) => self.pages.guard(&self.regions, last - 1),
                // A block stays in its page, so that no page is guarded in vain.
                None => end = end.min((address | (system::PAGE - 1)) + 1),
            }
        }
        let before = self.arenas[arena].used();
        let mut source = Source::at(address, end);
        let copy: Box<[u8]>;
        if is_checked {
            // Read once: others may write to it now, and what is kept must be what was translated.
            copy = source.bytes.into();
            source.bytes = &copy;
        }
        let block = match self.translate(&source, key, arena, extent) {
            None if is_guarded => {
                // Its first instruction goes beyond the page.
                self.pages.guard(&self.regions, address + 15);
                let end = self.code_end(address)?;
                self.translate(&Source::at(address, end), key, arena, extent)?
            }
            block => block?,
        };
        // What has just been translated may be part of one.
        if block.leads.iter().fold(false, |news, &lead| self.learn(lead) | news) {
            return self.make(key).map(drop);
        }
        let original = match is_checked {
            true => source.bytes[..(block.end - block.start) as usize].into(),
            false => Box::default(),
        };
        let stats = &self.control.stats;
        stats.blocks.fetch_add(1, Relaxed);
        stats.bytes.fetch_add(self.arenas[arena].used() - before, Relaxed);
        stats.record_bytes.fetch_add(block.records.len() as u64, Relaxed);
        self.keep(block, arena, original);
        Some(())
    }

    /// Remembers where a block is and how it came about; returns its number.
    fn add(&mut self, arena: usize, block: translate::Block, original: Box<[u8]>) -> u32 {
        let number = self.blocks.len() as u32;
        self.arenas[arena].half.blocks.push(number);
        self.blocks.push(BlockInfo {
            start: block.start,
            end: block.end,
            is_inner: block.starts.first().is_some_and(|start| start.address != block.start),
            code: block.code,
            records: block.records.into_boxed_slice(),
            original,
            starts: block.starts.iter().map(|start| start.address).collect(),
            incoming: Vec::new(),
            is_valid: true,
        });
        number
    }

    /// Keeps a block that was translated for its first address.
    fn keep(&mut self, mut block: translate::Block, arena: usize, original: Box<[u8]>) {
        let number = self.blocks.len() as u32;
        let (links, loops) = (mem::take(&mut block.links), mem::take(&mut block.loops));
        self.control.stats.links.fetch_add((links.len() + loops.len()) as u64, Relaxed);
        // As long as the map says what they were tied to.
        for link in links {
            if let Some(&Place { block, .. }) = self.map.get(link.target) {
                self.blocks[block as usize].incoming.push(link);
            }
        }
        let key = block.starts[0].address;
        for start in &block.starts {
            // The first is what was asked for. Others may be known already; where calls return to, the place
            // right behind the call is the best.
            let known = self.map.get(start.address);
            let is_better = known.is_none_or(|known| known.entry == 0 && start.entry != 0);
            if is_better || start.address == key {
                self.map.insert(Place {
                    address: start.address,
                    body: start.body,
                    entry: start.entry,
                    block: number,
                    counter: start.counter,
                });
            }
        }
        if self.options & option::BLIND == 0 {
            self.pages.add(block.start, block.end, number);
        }
        self.add(arena, block, original);
        self.blocks[number as usize].incoming = loops;
    }

    fn used(&self) -> u64 {
        self.arenas.iter().map(Arena::used).sum()
    }

    /// The arena for code at an address: one that is near enough to reach its data, too.
    fn arena_for(&mut self, address: u64) -> Option<usize> {
        const NEAR: u64 = 3 << 29;
        let is_near = |arena: &Arena| arena.rx.abs_diff(address) < NEAR;
        if let Some(index) = self.arenas.iter().position(is_near) {
            return Some(index);
        }
        let exits: [extern "C" fn(); arena::EXITS] = [
            switch::gate_exit,
            switch::gate_system_call,
            switch::gate_wrong,
            switch::gate_check,
            switch::gate_sequence,
            switch::gate_abort,
            switch::gate_saved,
            switch::gate_refused,
            switch::gate_halt,
            switch::gate_watch,
            switch::gate_unknown,
        ];
        let exits = exits.map(|exit| exit as *const () as u64);
        // What is the engine's own is in the way, too; the kernel cannot be asked without a descriptor.
        let known = Regions::read().unwrap_or_else(|| self.regions.clone());
        let arena = Arena::map(address, exits, self.epoch & 1, known)?;
        let rx = arena.rx;
        self.regions.insert(regions::Region {
            start: rx,
            end: rx + arena::SIZE,
            protection: system::PROT_NONE,
            is_shared: true,
        });
        self.arenas.push(arena);
        Some(self.arenas.len() - 1)
    }

    /// What can be executed from an address on without a gap, and can be read: its end. At most two pages.
    fn code_end(&mut self, address: u64) -> Option<u64> {
        let end = self.regions.code_end(address).or_else(|| {
            // A stack may have grown.
            let region = *Regions::read()?.at(address).filter(|region| region.is_code())?;
            self.regions.insert(region);
            Some(region.end)
        })?;
        // A file may be shorter than what is mapped of it.
        let next = (address | (system::PAGE - 1)) + 1;
        if !self.pages.is_readable(address) {
            return None;
        }
        let is_longer = end > next && self.pages.is_readable(next);
        Some(if is_longer { end.min(next + system::PAGE) } else { end.min(next) })
    }

    /// Remembers when there is no more room than for what is being done.
    fn check_room(&mut self, arena: usize) {
        let is_too_large = self.used() > self.cache_size && !self.is_sealed;
        if !self.arenas[arena].has_room() || is_too_large {
            self.is_full = true;
        }
    }

    /// The program is about to have its system calls filtered, and with them the engine's: takes what memory
    /// it will need, and throws nothing away any more as long as there is room.
    pub fn seal(&mut self) {
        self.weaving.is_filtered = true;
        self.control.is_filtered.store(1, Relaxed);
        self.is_sealed = true;
        clock::seal();
        #[cfg(weft_freestanding)]
        HEAP.seal();
    }

    /// Whether nobody is in what was thrown away last.
    fn is_drained(&self) -> bool {
        self.threads().all(|thread| {
            let epoch = thread.epoch.load(Relaxed);
            thread.is_used.load(Relaxed) == 0 || epoch == u64::MAX || epoch == self.epoch
        })
    }

    /// Throws the clone away.
    fn flush(&mut self) {
        self.epoch += 1;
        for arena in &mut self.arenas {
            arena.retire(self.epoch & 1);
        }
        self.retired = mem::take(&mut self.blocks);
        self.map.clear();
        self.pages.forget_blocks();
        self.weaving.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush(&self.arenas);
        }
        self.halts.flush();
        self.tables.clear();
        self.is_full = false;
        self.control.stats.flushes.fetch_add(1, Relaxed);
    }

    /// Lets what was thrown away be executed, for threads that have to come out of a snippet there, or no
    /// longer.
    fn let_retired_run(&self, may_run: bool) {
        self.arenas.iter().for_each(|arena| arena.let_retired_run(may_run));
    }

    /// Whether a place is in what is not thrown away.
    pub fn is_current(&self, address: u64) -> bool {
        self.arenas.iter().any(|arena| arena.half.contains(address))
    }

    /// Whether the program may write to an address, and the kernel lets it.
    pub fn is_writable(&self, address: u64) -> bool {
        let is_writable =
            |regions: &Regions| regions.at(address).is_some_and(regions::Region::is_writable);
        is_writable(&self.regions)
            && Regions::read().map_or_else(|| system::may_write(address), |now| is_writable(&now))
    }

    /// Whether a place is on the way from the clone to the agent.
    pub fn is_gate(&self, address: u64) -> bool {
        self.arenas.iter().any(|arena| arena.is_gate(address))
    }

    /// The half of an arena that holds a place in the clone, and its blocks.
    pub fn half_of(&self, address: u64) -> Option<(&arena::Half, &[BlockInfo])> {
        let arena = self.arena_of(address)?;
        if arena.half.contains(address) {
            Some((&arena.half, &self.blocks))
        } else {
            Some((&arena.retired, &self.retired))
        }
    }

    /// Forgets a range of the program's addresses that is not mapped any more, or newly.
    pub fn unmapped(&mut self, start: u64, end: u64) {
        self.forget(start, end);
        self.pages.remove(start, end);
        self.regions.remove(start, end);
        self.sequences.remove(start, end);
    }

    /// Forgets the blocks of a range of the program's addresses.
    pub fn forget(&mut self, start: u64, end: u64) {
        self.halts.forget(start, end);
        for number in self.pages.take(start, end) {
            self.forget_block(number);
        }
    }

    fn forget_block(&mut self, number: u32) {
        let index = number as usize;
        if !mem::replace(&mut self.blocks[index].is_valid, false) {
            return;
        }
        for address in mem::take(&mut self.blocks[index].starts) {
            let Some(&place) = self.map.get(address) else { continue };
            if place.block != number {
                continue;
            }
            self.map.remove(address);
            self.tables.forget(address);
        }
        for link in mem::take(&mut self.blocks[index].incoming) {
            let Some(arena) = self.arena_of_mut(link.site) else { continue };
            let stub = translate::stub_for(arena, link.target, link.site);
            self.write_distance(link.site, stub);
        }
    }
}
