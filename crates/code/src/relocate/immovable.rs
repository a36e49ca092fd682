//! Why an instruction has no copy.

use core::fmt;

/// Why an instruction has no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immovable {
    /// The instruction.
    pub address: u64,
    /// What is in the way.
    pub reason: Reason,
}

/// What stands in the way of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The bytes are no instruction.
    Undecodable,
    /// A transfer to another code segment, or one that pushes or takes a 16-bit address.
    OddTransfer,
    /// Its memory operand is out of reach from the copy, and it leaves no way to reach it through a register.
    OutOfReach,
    /// The encoder has no form for it with a register for its address.
    NoEncoding,
    /// A branch was aimed at an instruction or label that is not in the copy.
    NoSuchTarget,
}

impl fmt::Display for Immovable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::Undecodable => "the bytes are no instruction",
            Reason::OddTransfer => "it transfers control in a way that a copy cannot",
            Reason::OutOfReach => "its memory operand is out of reach",
            Reason::NoEncoding => "its operands cannot be encoded anew",
            Reason::NoSuchTarget => "it is aimed at code that is not copied",
        };
        write!(formatter, "the instruction at {:#x} cannot be moved: {reason}", self.address)
    }
}

impl core::error::Error for Immovable {}
