//! Blocks: what was translated, and what is kept of it.

use crate::clone::cache::links::{Arrivals, Link};
use crate::clone::cache::sequences::Lead;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A place of the program that got code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    pub address: u64,
    /// Where its code is.
    pub body: u64,
    /// Where indirect branches enter it; 0 if they cannot.
    pub entry: u64,
    /// What counts those; 0 if nothing does.
    pub counter: u32,
    /// How long the call is right behind which it is entered, and which returns to it; 0 if there is none.
    pub call_length: u8,
}

impl Start {
    pub fn new(address: u64, body: u64) -> Self {
        Self { address, body, ..Self::default() }
    }
}

/// What was translated.
#[derive(Debug, Default)]
pub struct Block {
    pub start: u64,
    pub end: u64,
    pub code: u64,
    /// Two bytes each: kind and length of the original; length of the copy.
    pub records: Vec<u8>,
    pub starts: Vec<Start>,
    /// Branches that were linked to other blocks when they were written.
    pub links: Vec<Link>,
    /// Branches that were linked to this one.
    pub loops: Vec<Link>,
    /// Jumps to calls of other blocks, by where those return to.
    pub joins: Vec<(Link, u64)>,
    /// What may be descriptors of restartable sequences.
    pub leads: Vec<Lead>,
    /// Branches that are linked by who keeps the block in a file, when it is known where all blocks are.
    pub open: Vec<Link>,
    /// Whether it has an address in it that is another in each process.
    pub is_absolute: bool,
}

/// A block that was translated.
#[derive(Debug)]
pub struct BlockInfo {
    pub start: u64,
    pub code: u64,
    pub records: Box<[u8]>,
    /// Where in the program it ends.
    pub end: u64,
    /// Whether it is reached from within the function that begins there.
    pub is_inner: bool,
    /// What was translated, if that has to be checked each time.
    pub original: Box<[u8]>,
    /// Addresses by which it is known.
    pub starts: Vec<u64>,
    pub arrivals: Arrivals,
    pub is_valid: bool,
}

/// What is known of a block wherever it is kept.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    pub start: u64,
    pub end: u64,
    pub code: u64,
    pub records: &'a [u8],
    pub is_inner: bool,
    pub is_valid: bool,
}

impl<'a> From<&'a BlockInfo> for BlockView<'a> {
    fn from(block: &'a BlockInfo) -> Self {
        let BlockInfo { start, end, code, is_inner, is_valid, .. } = *block;
        Self { start, end, code, records: &block.records, is_inner, is_valid }
    }
}

impl BlockInfo {
    pub fn overlaps(&self, place: &Range<u64>) -> bool {
        self.start < place.end && place.start < self.end
    }
}
