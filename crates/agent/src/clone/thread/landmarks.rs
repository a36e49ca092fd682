//! Places in the assembly between the clone and the agent. It lies above all else, since it calls all else; a
//! handler of signals has to know where in it a thread was interrupted.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A place.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Landmark {
    /// What the kernel calls for a signal.
    Handle,
    /// From where on that looks for no kept signals any more, and its `syscall`.
    Handled,
    HandledInstruction,
    /// The way back to the clone, its last instruction, and what is behind it.
    Resume,
    ResumeJump,
    ResumeEnd,
    /// What looks for the target of an indirect branch, and where it leaves the clone.
    Missing,
    MissingOut,
}

pub const COUNT: usize = Landmark::MissingOut as usize + 1;

static PLACES: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

/// Sets where they are, in the order of [`Landmark`].
pub fn set(places: [u64; COUNT]) {
    for (place, address) in PLACES.iter().zip(places) {
        place.store(address, Relaxed);
    }
}

impl Landmark {
    /// Where it is.
    pub fn address(self) -> u64 {
        PLACES[self as usize].load(Relaxed)
    }
}
