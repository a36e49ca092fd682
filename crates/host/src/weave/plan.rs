//! Where in a function the jumps to its probes go. Pure: instructions in, windows out.
//!
//! A *window* is a run of whole instructions that is copied to a trampoline; its first bytes become a
//! jump there. Nothing may come to the overwritten bytes but through that jump: whatever jumps to an
//! instruction among them is re-aimed at the instruction's copy. The ways to find a window, the first
//! that fits is taken:
//!
//! 1. `jump`: five bytes from the point on, padding behind the function included.
//! 2. `neighbours`: five bytes that begin with instructions before the point.
//! 3. `hop`: two bytes, for a short jump into padding nearby that holds the long one.
//! 4. `relocated`: the function as a whole, see [`super::relocated`].
//!
//! A place where none of them fits is refused, with the reason.

use super::window::{JUMP, Jump, Spot, Terrain, Window, overlap};
use std::collections::BTreeMap;
use std::ops::Range;

/// A jump that shall go to the copy of the instruction that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaim {
    /// The jump.
    pub jump: Jump,
    /// The padding that holds a long jump, when this is a short one.
    pub hole: Option<u64>,
}

/// Why nothing can be woven at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The place.
    pub spot: Spot,
    /// The reason.
    pub why: &'static str,
}

/// How a function is woven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The windows, by their start.
    pub windows: BTreeMap<u64, Window>,
    /// The jumps to re-aim.
    pub reaims: Vec<Reaim>,
    /// What could not be done.
    pub refused: Vec<Refused>,
}

impl Plan {
    /// The window that an instruction is copied to.
    pub fn window_of(&self, at: u64) -> Option<&Window> {
        self.windows.range(..=at).next_back().map(|(_, w)| w).filter(|w| w.has(at))
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let holes = self.holes().into_iter().map(|hole| hole..hole + JUMP);
        let windows = self.windows.values().flat_map(Window::claims);
        windows.chain(holes).any(|taken| overlap(&taken, range))
    }

    /// All bytes that it changes.
    pub fn claims(&self) -> Vec<Range<u64>> {
        let windows = self.windows.values().flat_map(Window::claims);
        let jumps =
            self.reaims.iter().map(|r| r.jump.source..r.jump.source + u64::from(r.jump.length));
        let holes = self.holes().into_iter().map(|hole| hole..hole + JUMP);
        windows.chain(jumps).chain(holes).collect()
    }

    /// The padding that it uses.
    fn holes(&self) -> Vec<u64> {
        let windows = self.windows.values().filter_map(|w| w.hole);
        windows.chain(self.reaims.iter().filter_map(|r| self.padding_of(r))).collect()
    }

    /// Where jumps stand that only weft's own jumps lead to.
    pub fn stepping_stones(&self) -> Vec<u64> {
        let second = self.windows.values().filter(|w| w.second.is_some()).map(|w| w.start + JUMP);
        let reentries = self.windows.values().flat_map(|w| &w.reentries);
        let inside = reentries.filter_map(|reentry| reentry.hole);
        self.holes().into_iter().chain(second).chain(inside).collect()
    }

    /// The padding that a re-aimed jump goes through; `None` if it goes through a window.
    pub fn padding_of(&self, reaim: &Reaim) -> Option<u64> {
        let is_second = |hole: &u64| {
            self.windows.values().any(|w| w.second.is_some() && w.start + JUMP == *hole)
        };
        reaim.hole.filter(|hole| !is_second(hole))
    }
}

impl Plan {
    /// Whether the function is laid out anew as a whole.
    pub fn is_relocated(&self) -> bool {
        self.windows.values().any(Window::is_relocated)
    }

    /// This plan with only the windows that these places need, and those that jumps into them moved to.
    #[must_use]
    pub fn reduced(&self, terrain: &impl Terrain, spots: &[Spot]) -> Self {
        if self.is_relocated() {
            return if spots.is_empty() { Self::default() } else { self.clone() };
        }
        let mut needed: Vec<u64> = self
            .windows
            .values()
            .filter(|w| spots.iter().any(|spot| w.has(spot.instruction())))
            .map(|w| w.start)
            .collect();
        let mut next = 0;
        while let Some(window) = needed.get(next).map(|start| &self.windows[start]) {
            next += 1;
            for jump in terrain.jumps_into(window.start..window.end()) {
                if let Some(source) = self.window_of(jump.source)
                    && !needed.contains(&source.start)
                {
                    needed.push(source.start);
                }
            }
        }
        let mut plan = self.clone();
        plan.refused.clear();
        plan.windows.retain(|start, _| needed.contains(start));
        let is_needed = |reaim: &&Reaim| plan.window_of(reaim.jump.target).is_some();
        plan.reaims = self.reaims.iter().filter(is_needed).copied().collect();
        plan
    }
}
