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

/// What became of an instruction. The numbers leave four bits for the length of one of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The same bytes, or the same but for a distance: Tdb's *identity*.
    Copied = 0x00,
    /// Reaches far memory through a register: *insert*, identity and *move*.
    Far = 0x10,
    /// A direct branch, with padding before it.
    Branch = 0x20,
    /// `loop`, `jrcxz` and their like.
    Loop = 0x30,
    Call = 0x40,
    CallIndirect = 0x50,
    Jump = 0x60,
    Return = 0x70,
    SystemCall = 0x80,
    /// Reaches memory by the program's own `gs`, through two registers: *insert*, identity and *move*.
    Segment = 0x90,
    /// The same for an indirect jump and an indirect call, which use both registers anyway.
    JumpSegment = 0xa0,
    CallSegment = 0xb0,
    /// Cannot be translated: the program goes on natively.
    Refused = 0xc0,
    /// Not of the program's: what indirect branches come in by. *Insert*.
    Entry = 0xf0,
    /// Not of the program's: goes on elsewhere. *Insert*.
    Onward = 0xf1,
    /// Not of the program's: the beginning of a restartable sequence. *Insert*.
    Arm = 0xf2,
    /// Not of the program's: a snippet, or a part of one. *Insert*.
    Snippet = 0xf3,
    /// Not of the program's: the way that a branch takes, where that is counted right behind the branch. *Insert*.
    Way = 0xf4,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Copied,
        Self::Far,
        Self::Branch,
        Self::Loop,
        Self::Call,
        Self::CallIndirect,
        Self::Jump,
        Self::Return,
        Self::SystemCall,
        Self::Segment,
        Self::JumpSegment,
        Self::CallSegment,
        Self::Refused,
        Self::Entry,
        Self::Onward,
        Self::Arm,
        Self::Snippet,
        Self::Way,
    ];

    /// Decodes a record: what became of an instruction, and how long it is.
    pub fn of_record(record: u8) -> (Self, u8) {
        const PROGRAM: usize = 13;
        match record {
            0xf0.. => (Self::ALL[(PROGRAM + (record & 15) as usize).min(Self::ALL.len() - 1)], 0),
            _ => (Self::ALL[((record >> 4) as usize).min(PROGRAM - 1)], record & 15),
        }
    }
}

/// A piece of code in the cold part of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cold {
    /// Leaves the clone for an address, until it is linked to its block: see [`stub`].
    Stub,
    /// Puts the return address of a direct call in its place.
    CallThunk,
    /// The same for an indirect call.
    CallIndirectThunk,
    /// The entry for indirect branches to a block that has none of its own.
    Entry,
    /// Leaves the clone from a restartable sequence, where the kernel has sent the thread.
    Abort,
    /// What the kernel reads of one.
    Data,
    /// The rarely executed part of a snippet, or a routine of snippets.
    Snippet,
}

/// Where the parts of a stub are.
pub mod stub {
    pub const TARGET: u64 = 24;
    pub const SITE: u64 = 32;
    pub const FAR: u64 = 40;
    pub const SIZE: usize = 48;
}

/// Where the parts of a direct call's thunk are.
pub mod thunk {
    use crate::clone::cache::emit::{RETURN_ADDRESS, SAVE};
    /// The return address.
    pub const ADDRESS: u64 = SAVE as u64 + 2;
    /// From where `rax` is not the program's, and until where.
    pub const TAKEN: u64 = SAVE as u64 + 10;
    pub const GIVEN: u64 = SAVE as u64 + RETURN_ADDRESS as u64;
    /// Where the call goes: behind a jump that may have been moved.
    pub const TARGET: u64 = GIVEN + SAVE as u64 + 8 + 5;
    pub const SIZE: usize = TARGET as usize + 8;
}

/// Where an indirect call's thunk has the return address.
pub const INDIRECT_ADDRESS: u64 = 2;
