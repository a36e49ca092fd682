//! What the analyses ask about the program that the code belongs to.

use alloc::vec::Vec;
use core::ops::Range;

use crate::Convention;

/// A program, or a part of one, as far as its code can be seen.
pub trait Program {
    /// All contiguous mapped bytes from an address on, code and read-only data; empty if there are none.
    fn bytes(&self, address: u64) -> &[u8];

    /// Whether an address lies in executable memory.
    fn is_code(&self, address: u64) -> bool;

    /// What is known of the function or linkage stub that starts at an address; `None` if none is known to.
    fn callee(&self, address: u64) -> Option<Callee>;

    /// What is known of the function whose address is stored at `slot`, for calls through a global offset table.
    fn callee_through(&self, slot: u64) -> Option<Callee> {
        let _ = slot;
        None
    }

    /// Where the unwinder may enter a function.
    fn landing_pads(&self, function: &Function) -> Vec<u64> {
        let _ = function;
        Vec::new()
    }
}

/// What a caller may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    /// Whether it ever comes back.
    pub returns: bool,
    /// How it gets its arguments and what it may change.
    pub convention: Convention,
    /// Whether it is compiled apart from its caller: in another module, or called through a linkage stub. Compilers let
    /// callers rely on what a callee that they can see does not change, beyond what the convention says.
    pub external: bool,
}

/// A function: where its code is and how it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its code. The first range begins with the entry, the others are parts that were placed elsewhere.
    pub ranges: Vec<Range<u64>>,
    /// How it is called.
    pub convention: Convention,
    /// Where else it is entered, if not only at its start.
    pub extra_entries: Vec<u64>,
}

impl Function {
    /// A function in one piece.
    pub fn new(range: Range<u64>, convention: Convention) -> Self {
        Self { ranges: alloc::vec![range], convention, extra_entries: Vec::new() }
    }

    /// Where it is entered first.
    pub fn entry(&self) -> u64 {
        self.ranges.first().map_or(0, |range| range.start)
    }

    /// Whether an address is inside of it.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}
