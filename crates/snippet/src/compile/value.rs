//! Where values are while code is made.

use crate::asm::Cond;
use crate::ir::Binary;
use weft_code::Register;

/// A value, and who may change where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Known now.
    Int(i64),
    /// In a register of ours.
    Own(Register),
    /// In a register that must not be changed.
    Ref(Register),
    /// In a slot of ours.
    OwnSlot(u32),
    /// Somewhere above the stack pointer.
    Stack(i32),
}

/// How many registers an operation may need beside the values that wait.
pub(super) const HEADROOM: usize = 5;

pub(super) fn divides(op: Binary) -> bool {
    matches!(op, Binary::Div | Binary::Rem | Binary::UDiv | Binary::URem)
}

pub(super) fn shifts(op: Binary) -> bool {
    matches!(op, Binary::Shl | Binary::Sar | Binary::Shr)
}

/// What a comparison left.
pub(super) enum Compared {
    /// It is known now.
    Known(bool),
    /// Flags, and the condition that holds if it is true.
    Flags(Cond),
    /// Flags of doubles: equal (or not), where parity means not a number.
    FloatEqual(bool),
}
