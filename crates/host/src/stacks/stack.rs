//! What a stack is.

use crate::process::proc::Tid;

/// What the address of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The next instruction of the thread, or of what a signal has interrupted.
    Next,
    /// What a call returns to.
    Return,
    /// What a signal handler returns to: it calls the kernel, which goes on with what the signal has interrupted.
    Signal,
    /// In a probe that weft has put there, which does not go on with the function that it belongs to.
    Probe,
}

impl FrameKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Return => "return",
            Self::Signal => "signal",
            Self::Probe => "probe",
        }
    }
}

/// A call that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where it goes on.
    pub address: u64,
    /// What that is.
    pub kind: FrameKind,
    /// Whether it was found by frame pointers, or is above one that was: with no table that says so, there may be calls
    /// in between.
    pub is_guess: bool,
}

/// The number of a system call of which only is known that it is one: the kernel's clock does not show it, nor does the
/// code, where a function like `syscall` takes it from its caller.
pub const UNKNOWN_CALL: u64 = u64::MAX;

/// The stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The thread.
    pub tid: Tid,
    /// Where it is, and the calls that it is in, the innermost first.
    pub frames: Vec<Frame>,
    /// Why there may be more calls; `None` if there are none.
    pub cut: Option<&'static str>,
    /// The system call that it is in, or [`UNKNOWN_CALL`], and its arguments, if the kernel shows it.
    pub call: Option<(u64, [u64; 6])>,
}
