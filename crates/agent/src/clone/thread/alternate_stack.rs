//! Alternate stacks for signals: the program's own, and the engine's.

use crate::clone::base::system;

pub const SS_ONSTACK: u64 = 1;
pub const SS_DISABLE: u64 = 2;
pub const SS_AUTODISARM: u64 = 1 << 31;

/// Whether a stack pointer is on an alternate stack.
pub fn is_on_stack(stack: &[u64; 3], rsp: u64) -> bool {
    let [start, flags, size] = *stack;
    flags & (SS_DISABLE | SS_AUTODISARM) == 0 && rsp > start && rsp - start <= size
}

/// Gives the kernel the engine's own stack for the frames of this thread. Returns the one that it had.
pub fn use_own_stack((start, size): (usize, usize)) -> [u64; 3] {
    let stack = [start, 0, size];
    let mut before = [0u64; 3];
    // SAFETY: the stack belongs to the thread for as long as it lives; the kernel writes three words.
    unsafe {
        let (new, old) = (stack.as_ptr() as usize, before.as_mut_ptr() as usize);
        system::call3(system::SIGALTSTACK, new, old, 0);
    }
    before[1] &= u64::from(u32::MAX);
    before
}
