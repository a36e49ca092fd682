//! Restartable sequences (`rseq`): code that the kernel sends elsewhere when it is interrupted.
//!
//! The program announces to the kernel by a *descriptor* where such code is and where to go from it. The kernel
//! looks there whenever it has interrupted a thread, but what it finds are addresses of the program, and
//! what runs is the clone. So a sequence is translated in one piece, with a descriptor of its own, and
//! where it begins the clone announces that one in place of the program's. All of it happens as
//! it would natively then, except that what the kernel goes to leads to the agent first.

use crate::clone::base::program;
use crate::clone::base::system::PROT_READ;
use crate::clone::cache::regions::{Region, Regions};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// What glibc and all others have before the code that a sequence is aborted to.
const USUAL_SIGNATURE: u32 = 0x5305_3053;
/// How descriptors are aligned.
pub const ALIGNMENT: u64 = 32;
/// The longest sequence that is seen as one.
const LONGEST: u64 = 2048;
/// What may be set in a descriptor's flags.
const FLAGS: u64 = 7 << 32;

/// What the kernel reads of a sequence's clone, and the engine behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub kind: u64,
    pub start: u64,
    pub length: u64,
    pub abort: u64,
    /// Of the program.
    pub original: [u64; 3],
}

/// A sequence of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// What the program announces it by.
    pub descriptor: u64,
    pub start: u64,
    pub end: u64,
    /// Where the program goes on when it was interrupted.
    pub abort: u64,
    /// What stands before that.
    pub signature: u32,
}

/// All sequences that are known.
#[derive(Debug)]
pub struct Sequences {
    known: Vec<Sequence>,
    /// What threads have registered with.
    signatures: Vec<u32>,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { known: Vec::new(), signatures: vec![USUAL_SIGNATURE] }
    }
}

impl Sequences {
    /// Whether an address is in a sequence.
    pub fn holds(&self, address: u64) -> bool {
        self.known.iter().any(|one| (one.start..one.end).contains(&address))
    }

    /// The sequence that holds an address, with all that it overlaps.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let first = self.known.iter().find(|one| (one.start..one.end).contains(&address))?;
        let mut range = first.start..first.end;
        while let Some(other) = self.known.iter().find(|one| {
            let overlaps = one.start < range.end && range.start < one.end;
            overlaps && (one.start < range.start || one.end > range.end)
        }) {
            range = range.start.min(other.start)..range.end.max(other.end);
        }
        Some(range)
    }

    /// The sequences that begin at an address.
    pub fn starting_at(&self, address: u64) -> impl Iterator<Item = Sequence> + '_ {
        self.known.iter().filter(move |one| one.start == address).copied()
    }

    /// Whether a signature is new.
    pub fn add_signature(&mut self, signature: u32) -> bool {
        let is_new = !self.signatures.contains(&signature);
        if is_new {
            self.signatures.push(signature);
        }
        is_new
    }

    /// Forgets what is not mapped any more.
    pub fn remove(&mut self, start: u64, end: u64) {
        let range = start..end;
        self.known.retain(|one| {
            let overlaps = one.start < end && start < one.end;
            !overlaps && !range.contains(&one.descriptor) && !range.contains(&one.abort)
        });
    }

    /// Looks whether words from an address are a descriptor. Returns where its sequence is, if that is new.
    pub fn learn(&mut self, at: u64, words: [u64; 4], regions: &Regions) -> Option<Range<u64>> {
        let [kind, start, length, abort] = words;
        let end = start.checked_add(length)?;
        let can_be = kind & !FLAGS == 0
            && (1..=LONGEST).contains(&length)
            && abort.wrapping_sub(start) >= length
            && regions.code_end(start).is_some_and(|code_end| code_end >= end)
            && regions.code_end(abort).is_some();
        if !can_be {
            return None;
        }
        let signature = program::read::<u32>(abort - 4)?;
        let found = Sequence { descriptor: at, start, end, abort, signature };
        if !self.signatures.contains(&signature) || self.known.contains(&found) {
            return None;
        }
        self.known.retain(|one| one.descriptor != at);
        self.known.push(found);
        Some(start..end)
    }
}

/// Reads memory of the program that is mapped, as far as is known. What is shared may be a device's, which
/// is not to be read without need.
pub fn read_plain<T: Copy + Default>(regions: &Regions, at: u64) -> Option<T> {
    let is_plain = |region: &&Region| !region.is_shared && region.protection & PROT_READ != 0;
    regions.at(at).filter(is_plain)?;
    program::read(at)
}

/// What may be the address of a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Lead {
    Address(u64),
    /// Where the address is.
    Pointer(u64),
    /// What a thread's area names, which the kernel reads as well.
    Named(u64),
}
