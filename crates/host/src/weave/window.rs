//! What plans are made of: places, instructions, windows, and what the planner has to know of the code. Pure.

pub use crate::arch::instructions::{HOP, JUMP};
use std::collections::BTreeSet;
use std::ops::Range;
use weft_code::{Branch, BranchKind, Width};

/// A place where code can be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Spot {
    /// Where a function is entered; a jump back to its start from within is no entry.
    Entry(u64),
    /// Before an instruction, however control comes to it.
    Before(u64),
    /// Where a call returns to; jumps to the instruction there are no returns.
    Returned(u64),
    /// After an instruction, when control goes on to the next.
    After(u64),
    /// On the way of a taken jump.
    Taken(u64),
}

impl Spot {
    /// The instruction that it belongs to.
    pub fn instruction(self) -> u64 {
        let (Self::Entry(at)
        | Self::Before(at)
        | Self::Returned(at)
        | Self::After(at)
        | Self::Taken(at)) = self;
        at
    }

    /// Whether jumps to its instruction from within the function pass it by.
    pub fn is_passed_by_jumps(self) -> bool {
        matches!(self, Self::Entry(_) | Self::Returned(_))
    }
}

/// What the planner has to know of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its address.
    pub at: u64,
    /// Its length.
    pub length: u64,
    /// Whether control can go on to the next instruction.
    pub falls_through: bool,
    /// Whether it is one that compilers fill gaps with, and does nothing.
    pub fills: bool,
    /// Whether control comes back to the next instruction from elsewhere: a call, a system call.
    pub returns: bool,
    /// Whether it runs where it is: its copy only leads there.
    pub stays: bool,
}

impl Step {
    /// The address after it.
    pub fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// A direct jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Its address.
    pub source: u64,
    /// Its length.
    pub length: u8,
    /// Where it goes.
    pub target: u64,
    /// Whether its distance has 32 bits, not 8.
    pub is_long: bool,
    /// Whether it can be lengthened in place of being re-aimed: `jrcxz` and `loop` cannot.
    pub is_plain: bool,
}

impl From<&Branch> for Jump {
    fn from(branch: &Branch) -> Self {
        Self {
            source: branch.source,
            length: branch.length,
            target: branch.target,
            is_long: branch.width == Width::Rel32,
            is_plain: branch.kind != BranchKind::Loop,
        }
    }
}

/// What the planner has to know of the code around.
pub trait Terrain {
    /// The instruction at an address; `None` where there is none.
    fn step(&self, at: u64) -> Option<Step>;
    /// The start of the instruction that control falls through from to this address.
    fn before(&self, at: u64) -> Option<u64>;
    /// The direct jumps into a range.
    fn jumps_into(&self, range: Range<u64>) -> Vec<Jump>;
    /// Whether something comes to this address that cannot be re-aimed: a jump table, an exception, a
    /// call.
    fn is_fixed(&self, at: u64) -> bool;
    /// Whether a goroutine may wait before the instruction at this address, and it cannot be told: the
    /// runtime interrupts them anywhere.
    fn is_waited_at(&self, at: u64) -> bool;
    /// Whether goroutines are interrupted at this address. One that waits at a jump of weft's that only
    /// others of weft's lead to could not go on when that is gone.
    fn is_preempted_at(&self, at: u64) -> bool;
    /// Whether all jumps within the function are known.
    fn is_certain(&self) -> bool;
    /// Whether an address belongs to the function.
    fn contains(&self, at: u64) -> bool;
    /// How many bytes of padding begin here.
    fn padding(&self, at: u64) -> u64;
    /// Padding of [`JUMP`] bytes that begins in this range and is outside of all that are `taken`.
    fn hole(&self, within: Range<u64>, taken: &[Range<u64>]) -> Option<u64>;
    /// Whether another function has changed something there for its own probes.
    fn is_foreign(&self, range: Range<u64>) -> bool;
    /// All of the function, or why it cannot be laid out anew.
    fn body(&self) -> Result<Body, &'static str>;
}

/// A run of instructions that moves to a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it starts.
    pub start: u64,
    /// Its instructions, by their addresses.
    pub steps: Vec<Step>,
    /// Where jumps to it stand, if it is a whole function; otherwise there is one, at its start.
    pub reentries: Vec<Reentry>,
    /// The padding that holds the jump, when only a short one fits here.
    pub hole: Option<u64>,
    /// Where a second jump goes that stands behind the first: to the copy of this instruction. Short
    /// jumps that are to be re-aimed go through it where no padding is in their reach.
    pub second: Option<u64>,
    /// The way that it was found.
    pub tactic: &'static str,
}

impl Window {
    /// Whether it is a whole function.
    pub fn is_relocated(&self) -> bool {
        !self.reentries.is_empty()
    }

    /// The runs of instructions that it consists of.
    pub fn runs(&self) -> Vec<Range<u64>> {
        merged(self.steps.iter().map(|step| step.at..step.end()).collect())
    }

    /// Where control comes to it.
    pub fn entered_at(&self) -> Vec<u64> {
        match self.is_relocated() {
            true => self.reentries.iter().map(|reentry| reentry.at).collect(),
            false => vec![self.start],
        }
    }

    /// The bytes that are overwritten at the start of a run of instructions.
    pub fn overwritten(&self) -> Range<u64> {
        let length = match (self.hole, self.second) {
            (Some(_), _) => HOP,
            (None, Some(_)) => 2 * JUMP,
            (None, None) => JUMP,
        };
        self.start..self.start + length
    }

    /// The address after the last instruction.
    pub fn end(&self) -> u64 {
        self.steps.last().map_or(self.start, Step::end)
    }

    /// All bytes that nothing else may use: its instructions, and padding behind them that it needs.
    pub fn claim(&self) -> Range<u64> {
        self.start..self.end().max(self.overwritten().end)
    }

    /// The same of a window of any kind.
    pub fn claims(&self) -> Vec<Range<u64>> {
        if !self.is_relocated() {
            return vec![self.claim()];
        }
        let jumps = self.reentries.iter().flat_map(Reentry::overwritten);
        merged(self.runs().into_iter().chain(jumps).collect())
    }

    /// The instruction at an address.
    pub fn step(&self, at: u64) -> Option<&Step> {
        self.steps.binary_search_by_key(&at, |step| step.at).ok().map(|index| &self.steps[index])
    }

    /// Whether a call of its own returns to this address.
    pub fn is_returned_to(&self, at: u64) -> bool {
        let index = self.steps.partition_point(|step| step.at < at);
        let before = index.checked_sub(1).map(|index| &self.steps[index]);
        before.is_some_and(|step| step.returns && step.end() == at)
    }

    /// Whether an instruction begins at this address.
    pub fn has(&self, at: u64) -> bool {
        self.step(at).is_some()
    }
}

/// Ranges by their starts, with those together that overlap or touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Whether two ranges have an address in common.
pub fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A function as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// All of its instructions, by their addresses. Those that stay where they are are marked.
    pub steps: Vec<Step>,
    /// Where control comes to it other than by a jump of its own.
    pub reentries: BTreeSet<u64>,
    /// Those of its instructions that stay but could be copied: calls.
    pub calls: BTreeSet<u64>,
    /// Bytes between its instructions that nothing runs or reads.
    pub unused: Vec<Range<u64>>,
}

/// A place of a relocated function that control still comes to: a jump to the copy stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentry {
    /// Where.
    pub at: u64,
    /// Where the long jump stands that a short one leads to, when only that fits.
    pub hole: Option<u64>,
}

impl Reentry {
    /// The bytes that are overwritten for it.
    pub fn overwritten(&self) -> impl Iterator<Item = Range<u64>> {
        let length = if self.hole.is_some() { HOP } else { JUMP };
        let long = self.hole.map(|hole| hole..hole + JUMP);
        std::iter::once(self.at..self.at + length).chain(long)
    }
}
