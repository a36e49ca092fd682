//! Memory that is watched: every store of the program looks whether it may be the one, and every load if that is of
//! interest.
//!
//! The look is rough, and changes no flag: a range is taken for one whose length is a power of two. A thread that
//! may have met it executes the instruction by itself, and compares what is watched with what it was. A repeated
//! one is executed in pieces, each of which ends where the processor's own watchpoints would have it stop.

use crate::clone::base::instructions::{instruction_at, is_repeated};
use crate::clone::base::{program, system};
use crate::clone::cache::emit::{Out, RAX, RCX};
use crate::clone::thread::record::{Thread, at};
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{
    Code, Encoder, Instruction, InstructionInfoFactory, MemoryOperand, OpAccess, Register,
    UsedMemory,
};
use weft_abi::halt::motion;

const RDX: u8 = 2;
/// How many ranges a store looks at: as many as a short jump reaches over. If there are more, some that are close
/// together are one.
const MOST_RANGES: usize = 3;
/// What the processor's own watchpoints can cover together: a repeated instruction stops each time around within as
/// much, and behind what is larger.
const FINE: u64 = 32;
const BACKWARDS: u64 = 0x400;

/// Memory that is watched, with what it held when it was last looked at.
#[derive(Debug)]
struct Watch {
    start: u64,
    held: Vec<u8>,
    /// Whether being touched is enough.
    is_any: bool,
}

impl Watch {
    fn end(&self) -> u64 {
        self.start + self.held.len() as u64
    }

    /// How many times a repeated instruction, of which the first touches `first`, goes around until it has touched
    /// this; all of this if it is large. Any number if it never does.
    fn times_until(&self, first: Range<u64>, is_backwards: bool) -> u64 {
        let size = (first.end - first.start).max(1);
        let is_behind =
            if is_backwards { self.start >= first.end } else { self.end() <= first.start };
        if is_behind {
            return u64::MAX;
        }
        let is_large = self.held.len() as u64 > FINE;
        let before = match (is_backwards, is_large) {
            (false, false) => self.start.saturating_sub(first.start) / size,
            (false, true) => (self.end() - 1 - first.start) / size,
            (true, false) => (first.end - 1).saturating_sub(self.end() - 1) / size,
            (true, true) => (first.end - 1 - self.start) / size,
        };
        before + 1
    }

    /// What it holds now; zeros where it is not there.
    fn now(&self) -> Vec<u8> {
        let byte = |at: u64| program::read::<u8>(at).unwrap_or(0);
        match self.held.len() {
            8 => program::read::<[u8; 8]>(self.start).unwrap_or_default().to_vec(),
            4 => program::read::<[u8; 4]>(self.start).unwrap_or_default().to_vec(),
            _ => (self.start..self.end()).map(byte).collect(),
        }
    }
}

/// All memory that is watched.
#[derive(Debug, Default)]
pub struct Watches {
    all: Vec<Watch>,
    ranges: Vec<Range<u64>>,
}

impl Watches {
    /// Watches these: where they begin, how long they are, and whether being touched is enough.
    pub fn new(wanted: impl Iterator<Item = [u64; 3]>) -> Self {
        let mut all = Vec::new();
        for [start, length, is_any] in wanted {
            let held = alloc::vec![0; length as usize];
            let mut watch = Watch { start, held, is_any: is_any != 0 };
            watch.held = watch.now();
            all.push(watch);
        }
        let mut ranges: Vec<Range<u64>> =
            all.iter().map(|watch| watch.start..watch.end()).collect();
        ranges.sort_by_key(|range| range.start);
        while ranges.len() > MOST_RANGES {
            let gap = |index: &usize| ranges[index + 1].start.saturating_sub(ranges[*index].end);
            let closest = (0..ranges.len() - 1).min_by_key(gap).unwrap_or(0);
            let next = ranges.remove(closest + 1);
            ranges[closest].end = ranges[closest].end.max(next.end);
        }
        Self { all, ranges }
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether these are what is watched already.
    pub fn are(&self, wanted: impl Iterator<Item = [u64; 3]>) -> bool {
        let words = |watch: &Watch| [watch.start, watch.held.len() as u64, watch.is_any.into()];
        wanted.eq(self.all.iter().map(words))
    }

    /// Whether loads are of interest.
    fn has_any(&self) -> bool {
        self.all.iter().any(|watch| watch.is_any)
    }

    /// Which memory that is watched for that a thread is about to touch, by the instruction that it stands before;
    /// 0 if none.
    pub fn touched(&self, thread: &Thread) -> u64 {
        if !self.has_any() {
            return 0;
        }
        let Some(instruction) = instruction_at(thread.pc.get()) else { return 0 };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        let touched = info.used_memory().iter().filter(|memory| touches(memory.access()));
        let places = touched.filter_map(|memory| place(&instruction, memory, thread));
        for (start, end) in places {
            let is_it = |watch: &&Watch| watch.is_any && watch.start < end && start < watch.end();
            if let Some(watch) = self.all.iter().find(is_it) {
                return start.max(watch.start);
            }
        }
        0
    }

    /// Limits a repeated instruction, which a thread stands before, to the piece that ends with what is watched, or
    /// to once if the thread is stepped. The thread keeps how often is left.
    pub fn divide(&self, thread: &Thread) {
        if self.is_empty() {
            return;
        }
        let pc = thread.pc.get();
        let Some(instruction) = instruction_at(pc).filter(|it| is_repeated(*it)) else { return };
        let count = thread.general[usize::from(RCX)].get();
        let mut piece = if thread.halt.motion.get() == motion::STEP { 1 } else { count };
        let mut factory = InstructionInfoFactory::new();
        for memory in factory.info(&instruction).used_memory() {
            if !memory.base().is_gpr64() {
                // It counts in half a register.
                return;
            }
            let Some((start, end)) = element(&instruction, memory, thread) else { return };
            let is_backwards = thread.flags.get() & BACKWARDS != 0;
            let is_of_interest = |watch: &&Watch| match watch.is_any {
                true => touches(memory.access()),
                false => writes(memory.access()),
            };
            for watch in self.all.iter().filter(is_of_interest) {
                piece = piece.min(watch.times_until(start..end, is_backwards));
            }
        }
        let piece = piece.min(count);
        thread.general[usize::from(RCX)].set(piece);
        thread.rest.set([pc, count - piece]);
    }

    /// Where something has changed since the last call.
    pub fn changed(&mut self) -> Option<u64> {
        let mut found = None;
        for watch in &mut self.all {
            let now = watch.now();
            let first = now.iter().zip(&watch.held).position(|(now, held)| now != held);
            if let Some(first) = first {
                watch.held = now;
                found = found.or(Some(watch.start + first as u64));
            }
        }
        found
    }

    /// Writes a look at what an instruction is about to write, if it writes anything: behind it comes what leaves
    /// the clone, over which a thread jumps that has not met the memory. Returns where the distance of that jump
    /// is.
    pub fn write_check(&self, out: &mut Out, instruction: &Instruction) -> Option<WatchCheck> {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let is_any = self.has_any();
        let is_one = |memory: &&UsedMemory| match is_any {
            true => touches(memory.access()),
            false => writes(memory.access()),
        };
        let mut stores = info.used_memory().iter().filter(is_one);
        let first = *stores.next()?;
        let operand = addressing(instruction, &first).filter(|_| stores.next().is_none());
        let Some((operand, size)) = operand else {
            // Where it writes is not easily said.
            return Some(WatchCheck { over: None });
        };
        out.save(RCX, at!(rcx));
        out.save(RAX, at!(rax));
        out.save(RDX, at!(far));
        match operand {
            Operand::Fixed(address) => out.constant(RCX, address),
            Operand::Computed(bytes) => out.bytes(&bytes),
        }
        let mut hits = Vec::new();
        for range in &self.ranges {
            let reach = range.end - range.start + size - 1;
            out.constant(RAX, (size - 1).wrapping_sub(range.start));
            out.bytes(&[0x48, 0x8d, 0x04, 0x08]); // lea rax, [rax + rcx]
            out.byte(0xba); // mov edx, constant
            out.u32(reach.next_power_of_two().ilog2());
            out.bytes(&[0xc4, 0xe2, 0xeb, 0xf7, 0xc0]); // shrx rax, rax, rdx
            out.bytes(&[0x48, 0x91]); // xchg rcx, rax
            out.bytes(&[0xe3, 0]); // jrcxz hit
            hits.push(out.length);
            out.bytes(&[0x48, 0x89, 0xc1]); // mov rcx, rax
        }
        give_back(out);
        out.byte(0xe9);
        let over = out.length;
        out.u32(0);
        let here = out.length;
        for hit in hits {
            // SAFETY: the distance that was just left open, which is short.
            unsafe { *out.rw.add(hit - 1) = (here - hit) as u8 };
        }
        give_back(out);
        Some(WatchCheck { over: Some(over) })
    }
}

/// What was written to look at a store.
pub struct WatchCheck {
    over: Option<usize>,
}

impl WatchCheck {
    /// Ends the jump of threads that have not met the memory here.
    pub fn end(self, out: &Out) {
        if let Some(at) = self.over {
            let distance = (out.length - at - 4) as u32;
            // SAFETY: the distance that was left open.
            unsafe { out.rw.add(at).cast::<u32>().write_unaligned(distance) };
        }
    }
}

fn give_back(out: &mut Out) {
    out.load(RDX, at!(far));
    out.load(RAX, at!(rax));
    out.load(RCX, at!(rcx));
}

enum Operand {
    Fixed(u64),
    /// Code that has the address in `rcx`.
    Computed(Vec<u8>),
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn touches(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::NoMemAccess)
}

/// The memory that a thread is about to touch, the first time around if it does that repeatedly: from where to
/// where.
fn element(instruction: &Instruction, memory: &UsedMemory, thread: &Thread) -> Option<(u64, u64)> {
    let value = |register: Register| match register {
        // Of one relative to `rip` the displacement is the address.
        Register::None | Register::RIP => Some(0),
        _ if register.is_gpr64() => Some(thread.general[register.number()].get()),
        _ if register.is_gpr32() => Some(thread.general[register.number()].get() & 0xffff_ffff),
        _ => None,
    };
    let segment = match memory.segment() {
        Register::FS => system::fs_base(),
        Register::GS => thread.gs_base.get(),
        _ => 0,
    };
    let start = value(memory.base())?
        .wrapping_add(value(memory.index())?.wrapping_mul(memory.scale().into()))
        .wrapping_add(memory.displacement())
        .wrapping_add(segment);
    // Of what is repeated, the size is not said with the place.
    let size = match is_repeated(*instruction) {
        true => instruction.memory_size(),
        false => memory.memory_size(),
    };
    Some((start, start.checked_add(size.size() as u64)?))
}

/// The memory that a thread is about to touch: from where to where.
fn place(instruction: &Instruction, memory: &UsedMemory, thread: &Thread) -> Option<(u64, u64)> {
    let (start, end) = element(instruction, memory, thread)?;
    let size = end - start;
    let count = match is_repeated(*instruction) {
        true => thread.general[usize::from(RCX)].get(),
        false => 1,
    };
    let length = size.wrapping_mul(count);
    Some(match count > 1 && thread.flags.get() & BACKWARDS != 0 {
        true => (start.wrapping_sub(length - size), end),
        false => (start, start.wrapping_add(length)),
    })
}

/// Where an instruction writes and how much, if code can compute that before it is executed.
fn addressing(instruction: &Instruction, memory: &UsedMemory) -> Option<(Operand, u64)> {
    let size = memory.memory_size().size() as u64;
    let is_by_segment = matches!(memory.segment(), Register::FS | Register::GS);
    let is_plain = |register: Register| register == Register::None || register.is_gpr64();
    if size == 0 || is_by_segment || is_repeated(*instruction) || !is_plain(memory.index()) {
        return None;
    }
    if memory.base() == Register::RIP || instruction.is_ip_rel_memory_operand() {
        let is_it = memory.displacement() == instruction.ip_rel_memory_address();
        return is_it.then(|| (Operand::Fixed(memory.displacement()), size));
    }
    if !is_plain(memory.base()) {
        return None;
    }
    let displacement = memory.displacement() as i64;
    if memory.base() == Register::None && memory.index() == Register::None {
        return Some((Operand::Fixed(displacement as u64), size));
    }
    let operand = MemoryOperand::new(
        memory.base(),
        memory.index(),
        memory.scale(),
        displacement,
        if displacement == 0 { 0 } else { 8 },
        false,
        Register::None,
    );
    let lea = Instruction::with2(Code::Lea_r64_m, Register::RCX, operand).ok()?;
    let mut encoder = Encoder::new(64);
    encoder.encode(&lea, 0).ok()?;
    Some((Operand::Computed(encoder.take_buffer()), size))
}
