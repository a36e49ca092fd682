//! Signals by their numbers, sets of them, and the system calls about them.

use crate::clone::base::system;

pub const SIGILL: usize = 4;
pub const SIGTRAP: usize = 5;
pub const SIGBUS: usize = 7;
pub const SIGFPE: usize = 8;
pub const SIGKILL: usize = 9;
pub const SIGSEGV: usize = 11;
pub const SIGSTOP: usize = 19;
pub const SIG_BLOCK: usize = 0;
pub const SIG_UNBLOCK: usize = 1;
pub const SIG_SETMASK: usize = 2;

/// What the engine must see, whatever the program blocks: writes to guarded pages.
pub const NEEDED: u64 = bit(SIGSEGV) | bit(SIGBUS);
pub const ALL: u64 = !NEEDED;

/// What the engine looks at before the program does: what its own code, and the clone, could cause.
pub const WATCHED: u64 = NEEDED | bit(SIGILL);

/// What it looks at as well while a debugger wants to know.
pub const DEBUGGED: u64 = bit(SIGTRAP) | bit(SIGFPE);

/// The code of a fault at a page that is there but may not be used so.
pub const SEGV_ACCERR: i32 = 2;
/// The code of a single step that the program has requested, and the flag by which it does.
pub const TRAP_TRACE: i32 = 2;
pub const TRAP_FLAG: u64 = 0x100;
/// The code of a signal that the kernel sends when it cannot write or read a frame: it has no sender and no
/// address.
pub const SI_KERNEL: u64 = 0x80;
/// The error code of a page fault.
pub mod fault {
    pub const WRITE: u64 = 2;
    pub const FETCH: u64 = 16;
}

pub const FAULT_OF_THE_KERNEL: [u64; 16] =
    [SIGSEGV as u64, SI_KERNEL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Whether a signal was caused by what the thread has executed: the kernel marks those by a positive code.
pub fn is_fault(info: &[u64; 16]) -> bool {
    (info[1] as i32) > 0
}

/// Changes some signals in the kernel's mask of this thread.
pub fn change_mask(how: usize, set: u64) {
    // SAFETY: the kernel reads the mask.
    unsafe {
        let at = &raw const set as usize;
        system::call6(system::RT_SIGPROCMASK, [how, at, 0, 8, 0, 0]);
    }
}

/// Unblocks traps: one that is forced while it is blocked would end the process.
pub fn let_traps_in() {
    change_mask(SIG_UNBLOCK, bit(SIGTRAP));
}

/// Sets the kernel's mask of this thread, and returns the old one.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one and writes the other.
    unsafe {
        let (new, old) = (&raw const mask as usize, &raw mut old as usize);
        system::call6(system::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]);
    }
    old
}

/// Blocks all signals that the engine does not need; returns what was blocked.
pub fn block() -> u64 {
    set_mask(ALL)
}

/// Blocks every signal, also the one that the engine needs: nothing is written to meanwhile.
pub fn block_all() -> u64 {
    set_mask(u64::MAX)
}

/// Sends a signal to this thread once more: it is delivered when it is not blocked.
pub fn send_again(info: &[u64; 16]) {
    let signal = info[0] as u32 as usize;
    let args = [system::pid(), system::tid(), signal, info.as_ptr() as usize, 0, 0];
    // SAFETY: the kernel reads the description. It refuses those that only it may make; then the bare
    // signal has to do.
    if unsafe { system::call6(system::RT_TGSIGQUEUEINFO, args) } < 0 {
        system::raise(signal);
    }
}
