//! What is copied, where branches go, and where instructions went.

use iced_x86::Instruction;

/// A place in the copy that is no instruction's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(pub(super) usize);

/// Where a branch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To an address, wherever it is.
    Address(u64),
    /// To what was inserted before the copy of the instruction at this original address, or to the copy if nothing was.
    Before(u64),
    /// To the copy of the instruction at this original address, and what was inserted before it for jumps as well.
    Entered(u64),
    /// To a label.
    Label(Label),
}

/// Where an instruction went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where it is in the program.
    pub original: u64,
    /// Where code that was inserted before it begins.
    pub before: u64,
    /// Where jumps from inside the copy enter it: behind the code that only falling through runs.
    pub entered: u64,
    /// Where its own copy begins.
    pub copy: u64,
}

/// An instruction with the bytes that it was decoded from: prefixes without effect are kept, for they may be padding.
pub(super) struct Source {
    pub(super) instruction: Instruction,
    pub(super) bytes: [u8; 15],
}

impl Source {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.instruction.len()]
    }
}
