//! Snippets in the clone: what the host wants woven where, and the code for it.
//!
//! A snippet is written right before the copy of the instruction that it belongs to, right behind it, or
//! between its jump and the target. What it does to registers in between is known to it alone, so a thread that is
//! interrupted in it is led out first: `kernel/signals/leading_out.rs`.

use crate::clone::base::clock::is_counter_forbidden;
use crate::clone::base::instructions::SYSTEM_CALL_LENGTH;
use crate::clone::base::{observers, system};
use crate::clone::cache::arena::Arena;
use crate::clone::cache::branch_tables::FirstTable;
use crate::clone::cache::emit;
use crate::clone::cache::pieces::Cold;
use crate::clone::thread::record::{MEMORIES, Thread, at};
use crate::clone::tools::system_calls::Calling;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use weft_abi::weaving::{self, FIELDS};
use weft_code::{Access, Convention, Direction, FlagSet, Live, RegisterSet, live_at_entry};
use weft_snippet::layout::{Place, Region, header, salt};
use weft_snippet::{
    Clock, Compiled, Env, OwnStack, Part, PointKind, Site, Source, Weave, compile_all, interpret,
    runtime,
};

/// How many instructions are looked at for registers that are free.
const LOOK_AHEAD: usize = 24;

/// Memory that probes measure into.
#[derive(Clone, Copy, Debug)]
struct Memory {
    base: u64,
    env: Env,
}

#[derive(Debug)]
struct Probe {
    weave: Weave,
    memory: usize,
}

/// A probe at a point.
#[derive(Debug)]
pub struct Strand {
    probe: u64,
    kind: PointKind,
    convention: Convention,
    /// Which of the instruction's loads or stores it is.
    access: u8,
    /// The address that the snippet sees as its own.
    address: u64,
    /// The function that it belongs to.
    function: Range<u64>,
    places: Box<[Place]>,
}

/// All that is woven.
#[derive(Debug, Default)]
pub struct Weaving {
    /// The process whose memory this is: a vforked child measures for its parent.
    pid: u32,
    memories: Vec<Memory>,
    probes: BTreeMap<u64, Probe>,
    /// By the instruction that they belong to, and [where](weaving::BEFORE) that is.
    strands: BTreeMap<(u64, u8), Vec<Strand>>,
    /// What is done at system calls, by their number, before and after.
    calls: BTreeMap<(u64, PointKind), Vec<Strand>>,
    /// Registers that snippets read by their names.
    named: RegisterSet,
    /// The code around what is being translated, as far as it can be looked at.
    pub seen: Range<u64>,
    /// Where unwind rules are, if snippets take stacks.
    unwind: Option<u64>,
    /// The routines of snippets, by arena and memory. They are flushed with everything else.
    routines: BTreeMap<(usize, usize), Env>,
}

impl Weaving {
    /// Whether a jump from one address to another must not execute a snippet at its target: a jump from within a
    /// function does not enter it, and a jump is not the return of a call.
    pub fn is_passed(&self, target: u64, source: u64) -> bool {
        let mut strands = self.strands.get(&(target, weaving::BEFORE)).into_iter().flatten();
        strands.any(|strand| match strand.kind {
            PointKind::Entry => (target..strand.function.end).contains(&source),
            kind => is_for_some(kind),
        })
    }

    /// Whether something is woven before an instruction, behind it, or at its jump.
    pub fn is_at(&self, address: u64, way: u8) -> bool {
        self.strands.contains_key(&(address, way))
    }

    /// Whether nothing is woven.
    pub fn is_empty(&self) -> bool {
        self.strands.is_empty()
    }

    /// The code that is different because something is woven.
    pub fn woven(&self) -> impl Iterator<Item = Range<u64>> {
        let strands = self.strands.iter();
        strands.flat_map(|(&(at, _), all)| all.iter().map(move |strand| strand.concerns(at)))
    }

    /// Whether anything that is woven reads the time stamp counter.
    pub fn reads_counter(&self) -> bool {
        self.probes.values().any(|probe| probe.weave.reads_counter())
    }

    /// Whether anything that is woven makes system calls.
    pub fn makes_calls(&self) -> bool {
        self.probes.values().any(|probe| !probe.weave.system_calls(true).is_empty())
    }

    /// Whether anything is done at system calls.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Executes the snippets at a system call. Returns its result if they decide that it is not made.
    pub fn at_call(&self, thread: &Thread, number: u64, kind: PointKind) -> Option<i64> {
        for strand in self.calls.get(&(number, kind)).into_iter().flatten() {
            let Some(probe) = self.probes.get(&strand.probe) else { continue };
            let Memory { env, .. } = &self.memories[probe.memory];
            let slab = (thread.slabs[probe.memory].get(), env.region.stride());
            let site = Site {
                kind,
                convention: Convention::Unknown,
                dead: RegisterSet::NONE,
                live_flags: FlagSet::ALL,
                red_zone: true,
                address: thread.pc.get() - SYSTEM_CALL_LENGTH,
                stack_shift: 0,
                access: None,
            };
            let body = probe.weave.body(kind).unwrap_or_default();
            let mut world = Calling { thread, number, slab };
            let places = &strand.places;
            let data = &probe.weave.data;
            let returned = interpret(data, body, &site, &env.clock, places, &mut world);
            if returned.is_some() {
                return returned;
            }
        }
        None
    }

    /// Weaves nothing any more.
    pub fn clear(&mut self) {
        self.strands.clear();
        self.calls.clear();
    }

    /// Forgets what was written to the clone.
    pub fn flush(&mut self) {
        self.routines.clear();
    }

    /// The code of what is woven there at an instruction. `bytes` are those that follow. If it is
    /// reached from within a function that begins there, that is no entry.
    pub fn code(
        &mut self,
        (address, way): (u64, u8),
        bytes: (u64, &[u8]),
        is_inner: bool,
        (number, arena, table): (usize, &mut Arena, FirstTable),
    ) -> Vec<Compiled> {
        let Self { memories, probes, strands, routines, named, seen, unwind, .. } = self;
        let strands = strands.get(&(address, way)).map(Vec::as_slice).unwrap_or_default();
        // A register that another snippet reads is not free, even where the program does not need its value.
        let read = strands.iter().filter_map(|strand| {
            let weave = &probes.get(&strand.probe)?.weave;
            let access = strand.access(bytes);
            Some(weave.registers_read(strand.kind, strand.convention, access.as_ref()))
        });
        let read = read.fold(*named, |all, some| all | some);
        let strands = strands.iter().filter(|s| !(is_inner && is_for_some(s.kind)));
        let strands = strands.filter_map(|strand| Some((strand, probes.get(&strand.probe)?)));
        let strands: Vec<(&Strand, &Probe)> = strands.collect();
        let mut code = Vec::new();
        // Snippets with the same site are compiled together, so that what they have in common is done once.
        for alike in strands.chunk_by(|one, other| is_alike(*one, *other)) {
            let (strand, Probe { memory, .. }) = alike[0];
            let env = routines.entry((number, *memory)).or_insert_with(|| {
                let env = Env { unwind: *unwind, ..memories[*memory].env };
                write_routines(arena, env, table)
            });
            let site = strand.site(bytes, code_at(seen), read);
            let parts: Vec<Part<'_>> = alike.iter().map(|(strand, p)| strand.part(p)).collect();
            // The host has verified them for points of this kind: it cannot fail.
            code.extend(compile_all(&parts, &site, env));
        }
        code
    }

    /// Gives a thread a slab in each memory where it has none.
    pub fn claim_slabs(&self, thread: &Thread) {
        for (memory, slab) in self.memories.iter().zip(&thread.slabs) {
            if slab.get() == 0 {
                slab.set(memory.claim(thread.this, self.pid, thread.tid.get()));
            }
        }
    }

    /// Updates which process this is.
    pub fn begin_process(&mut self) {
        self.pid = system::pid() as u32;
    }

    /// Does what the host requests. Returns the places where it changes something; `None` if it cannot: under a
    /// filter, snippets make no system calls.
    pub fn follow(
        &mut self,
        message: &mut Words<'_>,
        is_filtered: bool,
    ) -> Option<Vec<Range<u64>>> {
        let mut changed = Vec::new();
        while let Some(command) = message.next() {
            match command {
                weaving::MEMORY => self.add_memory(message.take(FIELDS)?)?,
                weaving::INSERT => self.insert(message, is_filtered, &mut changed)?,
                weaving::RULES => {
                    self.unwind = message.next();
                    // They are written anew, with this address.
                    self.routines.clear();
                }
                weaving::REMOVE => self.remove(message.next()?, &mut changed),
                _ => return None,
            }
        }
        Some(changed)
    }

    fn add_memory(&mut self, fields: &[u64]) -> Option<()> {
        let &[base, shape, multiplier, shift, offset, bmi2] = fields else { return None };
        let [count_log2, stride_log2, key_shift, ..] = shape.to_le_bytes();
        let region = Region { count_log2, stride_log2, key_shift, state_end: (shape >> 32) as u32 };
        let index = self.memories.len();
        if index == MEMORIES {
            return None;
        }
        let env = Env {
            base: 0,
            salt: 0,
            region,
            routines: weft_snippet::Routines::default(),
            thread_pointer: false,
            thread_id: None,
            unwind: None,
            engine: Some(weft_snippet::Engine {
                slab: (at!(slabs) + index * 8) as u32,
                gs_base: at!(gs_base) as u32,
                returns: 0,
                stack: None,
            }),
            bmi2: bmi2 != 0,
            clock: Clock { source: Source::Processor, multiplier, shift: shift as u8, offset },
            // Snippets that call the program are not woven here.
            xsave_mask: 0,
            xsave_size: 0,
        };
        self.memories.push(Memory { base, env });
        self.begin_process();
        Some(())
    }

    fn insert(
        &mut self,
        message: &mut Words<'_>,
        is_filtered: bool,
        changed: &mut Vec<Range<u64>>,
    ) -> Option<()> {
        let &[id, memory, length, points] = message.take(4)? else { return None };
        let text = message.take((length as usize).div_ceil(8))?;
        // SAFETY: as many bytes of words that were just taken.
        let text = unsafe { core::slice::from_raw_parts(text.as_ptr().cast(), length as usize) };
        let weave = Weave::parse(core::str::from_utf8(text).ok()?).ok()?;
        // The host has checked, but the program may have forbidden it since.
        let makes_calls = !weave.system_calls(true).is_empty();
        if weave.reads_counter() && is_counter_forbidden() || makes_calls && is_filtered {
            return None;
        }
        for _ in 0..points {
            let &[at, address, how, start, end] = message.take(5)? else { return None };
            let [kind, convention, way, access, is_first, ..] = how.to_le_bytes();
            let places = message.take(weave.data.len())?.iter();
            let places = places.map(|&p| Place { state: p as u32, sums: (p >> 32) as u32 });
            let strand = Strand {
                probe: id,
                kind: *PointKind::ALL.get(usize::from(kind))?,
                convention: match convention {
                    weaving::SYSTEM_V => Convention::SystemV,
                    weaving::GO => Convention::Go,
                    _ => Convention::Unknown,
                },
                access,
                address,
                function: start..end,
                places: places.collect(),
            };
            let strands = if strand.kind.is_of_kernel() {
                self.calls.entry((at, strand.kind)).or_default()
            } else {
                changed.push(strand.concerns(at));
                self.strands.entry((at, way)).or_default()
            };
            // Those of one probe stay in their order.
            let own = strands.iter().take_while(|strand| strand.probe == id).count();
            let index = if is_first != 0 { own } else { strands.len() };
            strands.insert(index, strand);
        }
        if !(weave.named_registers() & !self.named).is_empty() {
            // Code that is there may use them as free registers.
            self.named = self.named | weave.named_registers();
            changed.extend(self.woven());
        }
        self.probes.insert(id, Probe { weave, memory: memory as usize });
        Some(())
    }

    fn remove(&mut self, id: u64, changed: &mut Vec<Range<u64>>) {
        self.probes.remove(&id);
        self.calls.retain(|_, strands| {
            strands.retain(|strand| strand.probe != id);
            !strands.is_empty()
        });
        self.strands.retain(|&(address, _), strands| {
            let gone = strands.extract_if(.., |strand| strand.probe == id);
            changed.extend(gone.map(|strand| strand.concerns(address)));
            !strands.is_empty()
        });
    }

    /// Whether a message requests that nothing be woven any more: the memory for measurements is about to be
    /// unmapped.
    pub fn is_leaving(message: &[u64]) -> bool {
        message == [weaving::LEAVE]
    }
}

impl Strand {
    /// The code that is different because of it: a jump to a function's start from within is led past
    /// it, and so is a jump to where a call returns to.
    fn concerns(&self, at: u64) -> Range<u64> {
        match self.kind {
            PointKind::Entry => at..self.function.end.max(at + 1),
            PointKind::CallAfter => self.function.clone(),
            _ => at..at + 1,
        }
    }

    /// The memory access that it is about, if it is about one. `bytes` begin with the instruction.
    fn access(&self, (at, bytes): (u64, &[u8])) -> Option<Access> {
        let direction = match self.kind {
            PointKind::Load => Direction::Load,
            PointKind::Store => Direction::Store,
            _ => return None,
        };
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        let all = Access::all(&instruction, direction, &mut InstructionInfoFactory::new());
        all.into_iter().nth(self.access.into()).flatten()
    }

    /// What it is to be compiled from.
    fn part<'a>(&'a self, probe: &'a Probe) -> Part<'a> {
        let body = probe.weave.body(self.kind).unwrap_or_default();
        Part { data: &probe.weave.data, body, places: &self.places }
    }

    /// Its site, as far as the code around shows that; `read` are registers that other snippets read.
    fn site(&self, (at, bytes): (u64, &[u8]), seen: (&[u8], u64), read: RegisterSet) -> Site {
        let is_entry = self.kind == PointKind::Entry;
        // A calling convention says which registers are free at a function's entry, and only there.
        let convention = if is_entry { self.convention } else { Convention::Unknown };
        let live = match observers::is_debugged() {
            // A debugger shows dead registers, too.
            true => Live::ALL,
            false => live_at_entry(seen, at, convention, LOOK_AHEAD),
        };
        let is_at_edge = matches!(self.kind, PointKind::Entry | PointKind::Exit);
        Site {
            kind: self.kind,
            convention: self.convention,
            dead: !live.registers & !read,
            live_flags: live.flags,
            red_zone: !is_at_edge && self.convention != Convention::Go,
            address: self.address,
            stack_shift: 0,
            access: self.access((at, bytes)),
        }
    }
}

/// Code of the program's, and where it begins.
fn code_at(seen: &Range<u64>) -> (&[u8], u64) {
    let length = (seen.end - seen.start) as usize;
    // SAFETY: what can be executed and read, as long as the engine is held.
    let bytes = unsafe { core::slice::from_raw_parts(seen.start as *const u8, length) };
    (bytes, seen.start)
}

/// Whether a point is only for some arrivals at its instruction: for calls, or for returns.
fn is_for_some(kind: PointKind) -> bool {
    matches!(kind, PointKind::Entry | PointKind::CallAfter)
}

/// Whether two snippets have the same site and measure into the same memory.
fn is_alike((one, probe): (&Strand, &Probe), (other, others): (&Strand, &Probe)) -> bool {
    let found = |strand: &Strand| (strand.kind, strand.convention, strand.access, strand.address);
    probe.memory == others.memory && found(one) == found(other)
}

/// Writes the routines of snippets to an arena.
fn write_routines(arena: &mut Arena, mut env: Env, table: FirstTable) -> Env {
    let mut returns = arena.cold(emit::RETURN, Cold::Snippet);
    emit::ret(&mut returns, table, 0);
    if let Some(engine) = &mut env.engine {
        engine.returns = returns.rx;
        // What a snippet leaves below the stack would be seen in what a function has not initialised yet.
        engine.stack = observers::is_debugged().then_some(OwnStack {
            // The agent's, which is not used by a thread in the clone.
            top: at!(stack) as u32,
            program: at!(program_stack) as u32,
        });
    }
    let length = runtime(&env, arena.rx).code.len();
    let mut out = arena.cold(length, Cold::Snippet);
    let runtime = runtime(&env, out.rx);
    out.bytes(&runtime.code);
    env.routines = runtime.routines;
    env
}

impl Memory {
    fn word(&self, slab: usize, offset: u32) -> &AtomicU64 {
        let at = self.base + (slab << self.env.region.stride_log2) as u64 + u64::from(offset);
        // SAFETY: memory that the host has mapped for probes, and leaves there.
        unsafe { &*(at as *const AtomicU64) }
    }

    /// Takes a slab for a thread of this process: the one that it has, or a free one. Where few are left, it goes on
    /// with that of a thread which has ended and had the same record before.
    fn claim(&self, record: u64, pid: u32, tid: u32) -> u64 {
        let region = &self.env.region;
        let owner = record ^ salt(pid);
        let last = region.count() - 1;
        let home = region.home(owner);
        let order = (0..=last).map(|step| (home + step) & last).filter(|&n| n != 0 && n != last);
        let is_scarce = self.word(0, header::CLAIMS).load(Relaxed) >= region.count() as u64 / 2;
        let is_own =
            |slab: usize| is_scarce || self.word(slab, header::TID).load(Relaxed) as u32 == tid;
        let mut slab = last;
        for number in order {
            let word = self.word(number, header::OWNER);
            let found = word.load(Acquire);
            let is_free = matches!(found, 0 | header::RETIRED);
            if found == owner && is_own(number)
                || is_free && word.compare_exchange(found, owner, Release, Relaxed).is_ok()
            {
                slab = number;
                break;
            }
        }
        if slab == last {
            let flags = self.word(last, header::FLAGS);
            flags.fetch_or(header::OVERFLOWED.into(), Relaxed);
        } else {
            let id = u64::from(tid) | u64::from(pid) << 32;
            self.word(slab, header::TID).store(id, Relaxed);
            self.word(0, header::CLAIMS).fetch_add(1, Relaxed);
        }
        self.base + (slab << region.stride_log2) as u64
    }
}

/// The host's message, word by word.
pub struct Words<'a>(pub &'a [u64]);

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u64]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn next(&mut self) -> Option<u64> {
        self.take(1).map(|word| word[0])
    }
}
