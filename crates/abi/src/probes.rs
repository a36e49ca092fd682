//! The memory that holds a weft's probes in a target: what is needed to take them out again.
//!
//! It is kept in the target so that whoever attaches after a weft was killed can restore every byte of
//! code that it had changed.

use crate::Owner;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first eight bytes of a [`ProbesHead`].
pub const PROBES_MAGIC: u64 = u64::from_le_bytes(*b"weft-prb");

/// The version of this layout; the rules of [`crate::VERSION`] hold for it.
pub const PROBES_VERSION: u32 = 2;

/// The name of the memory with code, as [`crate::MEMORY_NAME`].
pub const PROBES_NAME: &str = "weft-probes";

/// The name of the memory with values.
pub const VALUES_NAME: &str = "weft-values";

/// The most bytes of code that one [`Change`] covers: an instruction.
pub const CHANGE_SIZE: usize = 15;

/// The most pieces of memory with values.
pub const VALUES_COUNT: usize = 64;

/// How many [`Change`]s there is room for.
pub const CHANGE_COUNT: usize = 1 << 18;

/// A change that was made, or is about to be made, to the program's code. While it is noted, the function is
/// its owner's: other wefts leave it alone. One that changes nothing claims a function that is not changed at
/// the moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub at: u64,
    /// What stood there.
    pub original: [u8; CHANGE_SIZE],
    /// How many bytes are concerned; 0 for an entry that is not in use.
    pub length: u8,
    /// What stands there now.
    pub woven: [u8; CHANGE_SIZE],
    reserved: u8,
}

impl Change {
    /// The change of `original` to `woven`, which are of one length. Nothing if that is too long.
    pub fn new(at: u64, original: &[u8], woven: &[u8]) -> Option<Self> {
        let mut change = Self { at, length: original.len() as u8, ..Self::default() };
        change.original.get_mut(..original.len())?.copy_from_slice(original);
        change.woven.get_mut(..woven.len())?.copy_from_slice(woven);
        (original.len() == woven.len()).then_some(change)
    }

    /// A change of nothing: the claim to the function that an address belongs to.
    pub fn claim(at: u64) -> Self {
        Self { at, length: 1, ..Self::default() }
    }
}

/// A piece of the target's memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Piece {
    /// Where it starts; 0 for none.
    pub start: AtomicU64,
    /// How long it is.
    pub length: AtomicU64,
}

/// The head of the memory that holds probes. [`CHANGE_COUNT`] entries of [`Change`] follow it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ProbesHead {
    /// [`PROBES_MAGIC`]; written when everything else is.
    pub magic: AtomicU64,
    /// [`PROBES_VERSION`].
    pub version: AtomicU32,
    /// `size_of::<ProbesHead>()`.
    pub size: AtomicU32,
    /// Who brought it.
    pub owner: Owner,
    /// How many of the changes have ever been in use.
    pub changes_end: AtomicU64,
    /// All that is mapped for the probes' code, this head included.
    pub all: Piece,
    /// The code.
    pub code: Piece,
    /// The memory with values that goes with it.
    pub values: [Piece; VALUES_COUNT],
}

/// Where the changes begin, counted from the head.
pub const CHANGES_OFFSET: usize = size_of::<ProbesHead>();

const _: () = assert!(size_of::<Change>() == 40);
const _: () = assert!(CHANGES_OFFSET.is_multiple_of(64));
