//! What there is of probes: snippets, the functions that they are woven into, and their trampolines.

use super::edit::Edit;
use super::plan::{Plan, Spot};
use super::points::Point;
use super::text::{Known, ModuleText};
use super::trampoline::Contents;
use super::values::Room;
use crate::TargetAddr;
use crate::arch::Registers;
use std::collections::BTreeMap;
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
    pub(super) moved: Vec<Moved>,
    pub(super) contents: Contents,
}

impl Piece {
    pub(super) fn contains(&self, at: TargetAddr) -> bool {
        self.at <= at && at < self.at + self.length as u64
    }

    /// The instruction whose copy begins at an address.
    pub(super) fn original_of(&self, at: u64) -> Option<u64> {
        self.moved.iter().find(|moved| moved.copy == at).map(|moved| moved.original)
    }

    /// The instruction whose copy has made the system call that a thread is in.
    pub(super) fn call_of(&self, registers: &Registers) -> Option<u64> {
        self.original_of(registers.call()?)
    }

    /// The registers of a thread as they would be without the trampoline; nothing if it is in a snippet.
    pub(super) fn home_of(&self, registers: &Registers) -> Option<Registers> {
        if let Some(call) = self.call_of(registers) {
            return Some(registers.called_from(call));
        }
        let mut home = *registers;
        home.0.rip = self.original_of(registers.0.rip)?;
        Some(home)
    }
}
