//! What the rest of the engine stands on: the kernel, memory and time, without a libc.

pub mod clock;
#[cfg(weft_freestanding)]
pub mod heap;
pub mod program;
pub mod system;
