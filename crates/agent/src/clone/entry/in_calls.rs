//! Threads that the host has stopped in a system call of the program's.

use crate::clone::thread::assembly::{Abandonable, abandonable_call};

/// Whether a thread stands before the program's system call, or in one that the kernel would make again:
/// then the number of the call, if it is not the one that the program gave.
pub fn about_to_call(pc: u64, rax: u64) -> Option<Option<u64>> {
    let Abandonable { begin, instruction, .. } = abandonable_call();
    if pc == instruction {
        return Some(Some(rax));
    }
    (begin..instruction).contains(&pc).then_some(None)
}

/// Whether a thread stands before the program's system call, or in one that the kernel would make again.
pub fn is_in_call(pc: u64, rax: u64) -> bool {
    about_to_call(pc, rax).is_some()
}
