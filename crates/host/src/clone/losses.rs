//! What is missing from what is known of a program.

use weft_abi::recording::lost;

/// What is missing from what was recorded of a program, and of those that came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Programs that ran natively: weft could not follow an `execve`.
    pub native: u64,
    /// Processes that have left their clone, and gone on natively, because the engine could not go on.
    pub left: u64,
    /// Processes that still ran when the first one had ended, and nobody waited for them.
    pub outlived: u64,
    /// Threads and processes of which nothing is recorded.
    pub unrecorded: u64,
    /// Files whose code is recorded without their names.
    pub unnamed: u64,
    /// How often what was recorded made no sense: the program has written to it.
    pub garbled: u64,
    /// Bits of [`weft_abi::recording::lost`].
    pub bits: u64,
}

impl Losses {
    /// Adds others. The numbers are from memory that the program can write.
    pub fn add(&mut self, other: &Self) {
        let Self { native, left, outlived, unrecorded, unnamed, garbled, bits } = self;
        for (sum, more) in [
            (native, other.native),
            (left, other.left),
            (outlived, other.outlived),
            (unrecorded, other.unrecorded),
            (unnamed, other.unnamed),
            (garbled, other.garbled),
        ] {
            *sum = sum.saturating_add(more);
        }
        *bits |= other.bits;
    }

    /// What there is of it, each with its name and how often.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("native", self.native),
            ("left", self.left),
            ("outlived", self.outlived),
            ("unrecorded", self.unrecorded),
            ("unnamed", self.unnamed),
            ("garbled", self.garbled),
            ("log", u64::from(self.bits & lost::LOG != 0)),
            ("counters", u64::from(self.bits & lost::COUNTERS != 0)),
        ];
        all.into_iter().filter(|&(_, count)| count != 0).collect()
    }
}
