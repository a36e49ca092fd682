//! What the rest of the engine stands on: the kernel, memory and time, without a libc; the host; facts about
//! registers, instructions and signals.

pub mod clock;
pub mod context;
pub mod fail;
pub mod files;
#[cfg(weft_freestanding)]
pub mod heap;
pub mod host;
pub mod image;
pub mod instructions;
pub mod keys;
pub mod observers;
pub mod program;
pub mod registers;
pub mod signals;
pub mod system;
pub mod visit;
pub mod vsyscall;
