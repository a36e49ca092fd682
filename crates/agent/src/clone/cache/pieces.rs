//! What the clone is made of, as far as finding the program's state depends on it: see [`super::program_state`].

/// The most instructions of a block.
pub const LONGEST_BLOCK: usize = 96;
/// The most bytes that an instruction takes in the clone, and in its cold part.
pub const MOST_HOT: usize = 128;
pub const MOST_COLD: usize = 128;
/// The most bytes that a block takes.
pub const MOST: usize = LONGEST_BLOCK * MOST_HOT;
/// The most bytes that are woven before one instruction, in the clone and in its cold part.
pub const MOST_WOVEN: usize = MOST / 2;

pub use weft_abi::pieces::{Cold, Kind, slot_stub, stub, thunk};
