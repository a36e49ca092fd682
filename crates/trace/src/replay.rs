//! What a trace says in full: every access, branch, call and system call, computed again.

use std::sync::Arc;

use weft_code::accesses::{Captured, REGISTERS, Segment, Value};
use weft_code::iced_x86::FlowControl;

use crate::blocks::{Block, Blocks, number_in_trace};
use crate::decode::decode;
use crate::file::Trace;
use crate::record::{Item, event, take};
use crate::{Detail, Error, Result};

/// Goes through a trace, part by part.
#[derive(Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    /// Which threads; all if there are none.
    threads: Vec<u32>,
    part: usize,
    current: Option<Current>,
    sources: Vec<u64>,
}

/// A part that is being gone through.
#[derive(Debug)]
struct Current {
    program: u32,
    thread: u32,
    words: Vec<u64>,
    at: usize,
    bases: [u64; 2],
    instructions: u64,
    /// The block that comes after the part; 0 if none does.
    next: u64,
    /// Times that are known: after how many instructions, and when.
    times: Vec<(u64, u64)>,
}

/// Something that a thread has done.
#[derive(Debug)]
pub struct Step<'a> {
    /// The thread.
    pub thread: u32,
    /// How many instructions it had executed before.
    pub instructions: u64,
    /// What.
    pub what: What<'a>,
    times: &'a [(u64, u64)],
}

/// What a thread has done.
#[derive(Debug)]
pub enum What<'a> {
    /// It has executed a block.
    Block {
        /// Its number in the whole trace.
        number: u32,
        /// The block.
        block: &'a Block,
        /// How many of its instructions were executed: all but if it was interrupted.
        executed: usize,
        /// What its forms speak of.
        sources: &'a [u64],
        /// The bases of `fs` and `gs`.
        bases: [u64; 2],
        /// Where it went on; `None` if that is not known.
        next: Option<u64>,
        /// The instruction before which it was left, if nothing was captured there.
        missed: Option<u16>,
        /// Whether the instruction before which it was left has faulted: it has begun to touch memory.
        has_faulted: bool,
    },
    /// Something else.
    Event {
        /// What: see [`crate::record::event`].
        kind: u32,
        /// What there is to say of it.
        words: &'a [u64],
        /// The time then, if the event has none of its own the one before.
        time: u64,
    },
}

impl Step<'_> {
    /// About when it was, in nanoseconds: between known times by the number of instructions.
    pub fn time(&self) -> u64 {
        let after = self.times.partition_point(|&(count, _)| count <= self.instructions);
        let Some(&(from, start)) = after.checked_sub(1).and_then(|before| self.times.get(before))
        else {
            return self.times.first().map_or(0, |&(_, time)| time);
        };
        let Some(&(to, end)) = self.times.get(after) else {
            // About one instruction in a nanosecond.
            return start + (self.instructions - from);
        };
        let (gone, all) = (self.instructions - from, to - from);
        let share =
            u128::from(end.saturating_sub(start)) * u128::from(gone) / u128::from(all.max(1));
        start + share as u64
    }
}

impl Replay {
    /// From the beginning, of these threads, or of all.
    pub fn new(trace: Arc<Trace>, threads: &[u32]) -> Self {
        let threads = threads.to_vec();
        Self { trace, threads, part: 0, current: None, sources: Vec::new() }
    }

    /// How detailed the trace is.
    pub fn detail(&self) -> Detail {
        self.trace.detail
    }

    /// Shows what comes next until `visit` says that it is enough; says whether there is more.
    pub fn walk(&mut self, mut visit: impl FnMut(&Step<'_>) -> bool) -> Result<bool> {
        loop {
            if self.current.is_none() && !self.load()? {
                return Ok(false);
            }
            let Some(current) = &mut self.current else { return Ok(false) };
            while current.at < current.words.len() {
                let blocks = self.trace.blocks(current.program);
                if current.step(blocks, &mut self.sources, &mut visit)? {
                    return Ok(true);
                }
            }
            self.current = None;
        }
    }

    fn load(&mut self) -> Result<bool> {
        let is_wanted = |thread| self.threads.is_empty() || self.threads.contains(&thread);
        let rest = &self.trace.parts[self.part.min(self.trace.parts.len())..];
        let Some(skipped) = rest.iter().position(|part| is_wanted(part.thread)) else {
            return Ok(false);
        };
        let part = rest[skipped];
        self.part += skipped + 1;
        let chunk = self.trace.chunk(&part)?;
        let blocks = self.trace.blocks(part.program);
        let words = decode(blocks, &chunk)?;
        let start = chunk.start;
        let times = times(blocks, &words, (start.instructions, start.time));
        self.current = Some(Current {
            program: part.program,
            thread: part.thread,
            words,
            at: 0,
            bases: start.bases,
            instructions: start.instructions,
            next: start.next,
            times,
        });
        Ok(true)
    }
}

/// The times that are known, and after how many instructions.
fn times(blocks: &Blocks, mut words: &[u64], start: (u64, u64)) -> Vec<(u64, u64)> {
    let mut instructions = start.0;
    let mut times = Vec::new();
    if start.1 != 0 {
        times.push(start);
    }
    while let Some((item, rest)) = take(words, |number| blocks.captures(number)) {
        words = rest;
        match item {
            Item::Block { number, .. } => {
                let block = blocks.get(number);
                instructions += block.map_or(0, |block| u64::from(block.plan.instructions));
            }
            Item::Event { kind, words } => {
                times.extend(time_of(kind, words).map(|time| (instructions, time)));
            }
        }
    }
    times
}

/// The time that an event says.
fn time_of(kind: u32, words: &[u64]) -> Option<u64> {
    match kind {
        event::THREAD
        | event::SYSTEM_CALL
        | event::RESULT
        | event::TIME
        | event::SIGNAL
        | event::END => words.last().copied(),
        _ => None,
    }
}

/// Where a block was left.
struct Cut {
    address: u64,
    is_captured: bool,
    registers: [u64; REGISTERS],
}

impl Current {
    /// Shows one thing; says whether that is enough.
    fn step(
        &mut self,
        blocks: &Blocks,
        sources: &mut Vec<u64>,
        visit: &mut impl FnMut(&Step<'_>) -> bool,
    ) -> Result<bool> {
        let bad = || Error::bad("a part of the trace has something that is no record");
        let (item, rest) =
            take(&self.words[self.at..], |number| blocks.captures(number)).ok_or_else(bad)?;
        let taken = self.words.len() - self.at - rest.len();
        let instructions = self.instructions;
        let mut bases = self.bases;
        let what = match item {
            Item::Event { kind, words } => {
                match (kind, words) {
                    (event::THREAD, &[_, _, fs, gs, _]) | (event::BASES, &[fs, gs]) => {
                        bases = [fs, gs];
                    }
                    _ => {}
                }
                let before = self.times.partition_point(|&(count, _)| count <= instructions);
                let before = before.checked_sub(1).map_or(0, |before| self.times[before].1);
                What::Event { kind, words, time: time_of(kind, words).unwrap_or(before) }
            }
            Item::Block { number, captures } => {
                let block = blocks.get(number).ok_or_else(bad)?;
                block.sources(captures, sources);
                let following = take(rest, |number| blocks.captures(number));
                let mut executed = block.plan.instructions as usize;
                let mut missed = None;
                let mut has_faulted = false;
                let mut next = match following {
                    Some((Item::Block { number, .. }, _)) => {
                        blocks.get(number).map(|block| block.address)
                    }
                    // What happens in between may lead elsewhere.
                    Some(_) => block_after(blocks, rest),
                    None => (self.next != 0).then_some(self.next),
                };
                if let Some((Item::Event { kind: event::INTERRUPTED, words }, after)) = following
                    && let Some(cut) = cut(words)
                {
                    has_faulted = begins_with_fault(after);
                    match block.instructions[..executed].binary_search(&cut.address) {
                        Ok(index) => {
                            executed = index;
                            next = None;
                            missed = (!cut.is_captured).then_some(index as u16);
                            cut.fill(block, index as u16, sources);
                        }
                        // It was through.
                        Err(_) => next = Some(cut.address),
                    }
                }
                self.instructions += u64::from(block.plan.instructions);
                for base in &block.plan.bases {
                    if usize::from(base.instruction) < executed {
                        let which = matches!(base.segment, Segment::Gs) as usize;
                        self.bases[which] = base.value(sources);
                    }
                }
                let number = number_in_trace(self.program, number);
                What::Block { number, block, executed, sources, bases, next, missed, has_faulted }
            }
        };
        if let What::Event { .. } = what {
            self.bases = bases;
        }
        let step = Step { thread: self.thread, instructions, what, times: &self.times };
        let is_enough = visit(&step);
        self.at += taken;
        Ok(is_enough)
    }
}

/// The block that comes next, if only events that lead nowhere else are in between.
fn block_after(blocks: &Blocks, mut words: &[u64]) -> Option<u64> {
    while let Some((item, rest)) = take(words, |number| blocks.captures(number)) {
        match item {
            Item::Block { number, .. } => {
                return blocks.get(number).map(|block| block.address);
            }
            Item::Event { kind: event::INTERRUPTED | event::SIGNAL | event::LOST, .. } => {
                return None;
            }
            Item::Event { .. } => words = rest,
        }
    }
    None
}

/// Whether the first of some items is a signal because of an access that could not be made.
fn begins_with_fault(words: &[u64]) -> bool {
    /// `SIGBUS` and `SIGSEGV`.
    const ACCESS: [u64; 2] = [7, 11];
    // No block comes between the two.
    let first = take(words, |_| None);
    matches!(
        first,
        Some((Item::Event { kind: event::SIGNAL, words: &[signal, 1, _] }, _)) if ACCESS.contains(&signal)
    )
}

fn cut(words: &[u64]) -> Option<Cut> {
    let (&[address, is_captured], registers) = words.split_first_chunk()?;
    Some(Cut { address, is_captured: is_captured != 0, registers: registers.try_into().ok()? })
}

impl Cut {
    /// Puts in what would have been captured where the block was left.
    fn fill(&self, block: &Block, index: u16, sources: &mut [u64]) {
        for (capture, value) in block.plan.captures.iter().zip(&mut sources[REGISTERS..]) {
            let is_here = capture.before == index && !self.is_captured;
            if let Captured::Register(register) = capture.place
                && (is_here || capture.before == index + 1)
            {
                *value = self.registers[register.0 as usize];
            }
        }
    }
}

/// Accesses, as columns.
#[derive(Debug, Default)]
pub struct Accesses {
    /// Which thread.
    pub thread: Vec<u32>,
    /// In which block.
    pub block: Vec<u32>,
    /// The instruction.
    pub instruction: Vec<u64>,
    /// What it does: 1 reads, 2 writes, 3 both.
    pub kind: Vec<u8>,
    /// How many bytes; 0 if that is not known.
    pub size: Vec<u32>,
    /// Where; 0 if that is not known.
    pub address: Vec<u64>,
    /// Which addresses are not known: their rows.
    pub unknown: Vec<usize>,
    /// What is read or written, where that is known: none at all of a trace without values.
    pub value: Vec<Option<u64>>,
}

impl Accesses {
    /// The next accesses of a trace, about so many; none at its end.
    pub fn next(replay: &mut Replay, rows: usize) -> Result<Self> {
        let mut found = Self::default();
        let detail = replay.detail();
        replay.walk(|step| {
            found.add(step, detail);
            found.thread.len() >= rows
        })?;
        Ok(found)
    }

    fn add(&mut self, step: &Step<'_>, detail: Detail) {
        let What::Block { number, block, executed, sources, bases, next, missed, has_faulted } =
            &step.what
        else {
            return;
        };
        let mut bases = *bases;
        let mut changes = block.plan.bases.iter().peekable();
        for access in &block.plan.accesses {
            let index = usize::from(access.instruction);
            // One that repeats itself may have been left on the way.
            let is_begun = *has_faulted || access.moved.is_some();
            if index > *executed || index == *executed && !is_begun {
                break;
            }
            while let Some(base) = changes.next_if(|base| base.instruction < access.instruction) {
                bases[matches!(base.segment, Segment::Gs) as usize] = base.value(sources);
            }
            let Some((address, size)) = access.place(sources, bases) else { continue };
            if address.is_none() {
                self.unknown.push(self.address.len());
            }
            self.thread.push(step.thread);
            self.block.push(*number);
            self.instruction.push(block.instructions[index]);
            self.kind.push(access.kind as u8);
            self.size.push(u32::try_from(size).unwrap_or(u32::MAX));
            self.address.push(address.unwrap_or(0));
            if detail == Detail::Values {
                let is_missed = matches!(access.value, Some(Value::Memory(_)))
                    && *missed == Some(access.instruction + 1);
                // What faults reads and writes nothing.
                let is_made = index != *executed || access.moved.is_some();
                self.value.push(access.value(sources, *next).filter(|_| is_made && !is_missed));
            }
        }
    }
}

/// How a block ends that does not just go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BranchKind {
    /// Jumps, or does not.
    Conditional = 1,
    /// Jumps to where it says.
    Jump = 2,
    /// Jumps to where a register or memory says.
    IndirectJump = 3,
    /// Calls what it says.
    Call = 4,
    /// Calls what a register or memory says.
    IndirectCall = 5,
    /// Returns.
    Return = 6,
}

impl BranchKind {
    /// How a block ends, if it is by a branch.
    pub fn of(block: &Block) -> Option<Self> {
        match block.flow {
            FlowControl::ConditionalBranch => Some(Self::Conditional),
            FlowControl::UnconditionalBranch => Some(Self::Jump),
            FlowControl::IndirectBranch => Some(Self::IndirectJump),
            // The decoder counts entries into the kernel as calls.
            FlowControl::Call if block.bytes.ends_with(&[0x0f, 0x05]) => None,
            FlowControl::Call => Some(Self::Call),
            FlowControl::IndirectCall => Some(Self::IndirectCall),
            FlowControl::Return => Some(Self::Return),
            _ => None,
        }
    }
}
