//! What the kernel puts on the stack for a signal handler: where in it things are, in words. The first one is where the
//! handler itself returns to.

pub const FLAGS: usize = 1;
pub const LINK: usize = 2;
/// The alternate stack that the thread had then.
pub const ALTERNATE_START: usize = 3;
pub const ALTERNATE_SIZE: usize = 5;
pub const STACK_POINTER: usize = 21;
pub const INSTRUCTION: usize = 22;
pub const SEGMENTS: usize = 24;
pub const LENGTH: usize = 25;

/// All flags that the kernel sets.
pub const FLAGS_MASK: u64 = 7;
/// The code segment of 64-bit programs.
pub const SEGMENT: u64 = 0x33;
