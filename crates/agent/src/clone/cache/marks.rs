//! What stubs are marked with.

use weft_abi::recording::COUNTERS;

/// One of the two exits of a branch, of which only one is counted: the one that is taken last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub counter: u32,
    /// Whether it is that to what follows.
    pub is_fall: bool,
}

impl Choice {
    /// No address has this bit, and no counter.
    const TAG: u64 = 1 << 62;
    const FALL: u64 = 1 << 61;

    /// What its stub is marked with.
    pub fn mark(self) -> u64 {
        u64::from(self.counter) | Self::TAG | if self.is_fall { Self::FALL } else { 0 }
    }

    /// What a stub is marked with, if it is that.
    pub fn of_mark(mark: u64) -> Option<Self> {
        let is_choice = mark & !(Self::TAG | Self::FALL) < COUNTERS && mark & Self::TAG != 0;
        is_choice.then_some(Self { counter: mark as u32, is_fall: mark & Self::FALL != 0 })
    }
}
