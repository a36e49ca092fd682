//! What there is of probes: snippets, the functions that they are woven into, and their trampolines.

use super::functions::Known;
use super::plan::Plan;
use super::points::Point;
use super::text::ModuleText;
use super::trampoline::Contents;
use super::values::Room;
use super::window::Spot;
use crate::TargetAddr;
use crate::arch::Registers;
use crate::process::edit::Edit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weft_code::{Convention, Moved, RegisterSet};
use weft_snippet::layout::Place;
use weft_snippet::{Datum, Weave};

/// Names a probe of a [`super::Weaver`].
pub type ProbeId = u64;

/// Why a probe is not at one of its points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The point.
    pub point: Point,
    /// The reason.
    pub why: String,
}

/// A snippet at its points.
#[derive(Debug)]
pub struct Probe {
    pub(super) weave: Arc<Weave>,
    pub(super) points: Vec<Point>,
    /// Which of the weaver's values it measures into.
    pub(super) values: usize,
    /// The places of its data; those of a counter of each point are in `own`.
    pub(super) places: Vec<Place>,
    /// The places of each point's own counters, point by point.
    pub(super) own: Vec<Place>,
    /// What holds them: its own room, and that of probes whose data it uses.
    pub(super) rooms: Vec<Arc<Room>>,
    pub(super) refused: Vec<Refusal>,
    pub(super) tactics: BTreeMap<&'static str, usize>,
    /// Where the functions start that its points are in.
    pub(super) functions: BTreeSet<u64>,
    pub(super) enabled: bool,
}

impl Probe {
    /// Registers of the program that its snippet reads at one of its points.
    pub(super) fn registers_read(
        &self,
        point: usize,
        text: &ModuleText,
        convention: Convention,
    ) -> RegisterSet {
        let point = &self.points[point];
        self.weave.registers_read(point.kind, convention, point.access(text).as_ref())
    }

    /// Its points, the refused ones included.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Where it could not be woven.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// How many of its points were woven in which way.
    pub fn tactics(&self) -> &BTreeMap<&'static str, usize> {
        &self.tactics
    }

    /// What it measures into.
    pub fn data(&self) -> &[Datum] {
        &self.weave.data
    }

    /// Where one of its data is, for one of its points.
    pub fn place(&self, datum: usize, point: usize) -> Place {
        if !self.weave.data[datum].is_per_point() {
            return self.places[datum];
        }
        let rank = self.weave.data[..datum].iter().filter(|d| d.is_per_point()).count();
        self.own[point * Self::own_data(&self.weave).count() + rank]
    }

    /// All places of all its data.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&Datum, Place)> {
        self.weave.data.iter().enumerate().flat_map(move |(index, datum)| {
            let places = if datum.is_per_point() { self.points.len() } else { 1 };
            (0..places).map(move |point| (datum, self.place(index, point)))
        })
    }

    /// Notes that it cannot be at one of its points.
    pub(super) fn refuse(&mut self, point: usize, why: &str) {
        self.refused.push(Refusal { point: self.points[point], why: why.into() });
    }

    /// The data that every point has for itself.
    pub(super) fn own_data(weave: &Weave) -> impl Iterator<Item = &Datum> {
        weave.data.iter().filter(|d| d.is_per_point())
    }

    /// The places of all data for one of the points.
    pub(super) fn places_of(&self, point: usize) -> Vec<Place> {
        (0..self.weave.data.len()).map(|datum| self.place(datum, point)).collect()
    }
}

/// The room of a discarded probe.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) rooms: Vec<Arc<Room>>,
    /// Trampolines that threads may still be in: where each is.
    pub(super) waits: Vec<TargetAddr>,
}

/// One probe at one point of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strand {
    pub(super) probe: ProbeId,
    pub(super) point: usize,
}

/// A function with probes.
#[derive(Debug)]
pub(super) struct Woven {
    pub(super) text: usize,
    pub(super) known: Known,
    pub(super) strands: BTreeMap<Spot, Vec<Strand>>,
    pub(super) plan: Plan,
    /// Whether it was found that it cannot be laid out anew as a whole.
    pub(super) is_immovable: bool,
    pub(super) active: Active,
}

/// What is in the target for a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Active {
    /// The changes to its code.
    pub(super) edits: Vec<Edit>,
    /// Where each of them is noted.
    pub(super) notes: Vec<u32>,
    pub(super) pieces: Vec<Piece>,
    /// The probes that it has.
    pub(super) strands: BTreeMap<Spot, Vec<Strand>>,
}

/// A trampoline in the target.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) arena: usize,
    pub(super) at: TargetAddr,
    pub(super) length: usize,
    /// The function, and the instructions that were copied.
    pub(super) function: u64,
    pub(super) window: Range<u64>,
    /// The runs of these instructions: several where a whole function was copied.
    pub(super) runs: Vec<Range<u64>>,
    /// Where jumps to it stand in the program.
    pub(super) entered_at: Vec<u64>,
    /// Instructions that run where they are.
    pub(super) stays: Vec<Range<u64>>,
    /// By their original addresses.
    pub(super) moved: Vec<Moved>,
    pub(super) contents: Contents,
}

impl Piece {
    pub(super) fn contains(&self, at: TargetAddr) -> bool {
        self.at <= at && at < self.at + self.length as u64
    }

    /// Where the instruction at an address went; `None` if it is still run there.
    pub(super) fn copied(&self, at: u64) -> Option<&Moved> {
        let index = self.moved.binary_search_by_key(&at, |moved| moved.original).ok()?;
        let stays = self.stays.binary_search_by_key(&at, |stay| stay.start).is_ok();
        (!stays).then(|| &self.moved[index])
    }

    /// Where a thread has to go on that stands at an address of the program which nothing runs any more.
    pub(super) fn successor(&self, at: u64) -> Option<&Moved> {
        self.copied(at).filter(|_| self.entered_at.binary_search(&at).is_err())
    }

    /// Whether a thread that sleeps in a system call, and will go on at this address, or make the call
    /// again, would find something else there.
    pub(super) fn disturbs_sleeper(&self, at: u64) -> bool {
        let ends_here = |range: &Range<u64>| range.end == at;
        let is_behind = self.runs.iter().any(|run| run.start < at && at <= run.end);
        is_behind && !self.stays.iter().any(ends_here) || self.successor(at).is_some()
    }

    /// The instruction whose copy begins at an address.
    pub(super) fn original_of(&self, at: u64) -> Option<u64> {
        self.moved.iter().find(|moved| moved.copy == at).map(|moved| moved.original)
    }

    /// The instruction whose copy has made the system call that a thread is in.
    pub(super) fn call_of(&self, registers: &Registers) -> Option<u64> {
        self.original_of(registers.call()?)
    }

    /// The registers of a thread as they would be without the trampoline; `None` if it is in a snippet.
    pub(super) fn home_of(&self, registers: &Registers) -> Option<Registers> {
        if let Some(call) = self.call_of(registers) {
            return Some(registers.called_from(call));
        }
        let mut home = *registers;
        home.set_instruction(self.original_of(registers.instruction().0)?);
        Some(home)
    }
}
