//! Signals as the kernel describes them, and the one that asks a thread to stand still.

use weft_abi::halt::HALT_MAGIC;
use weft_host::proc::Tid;

/// What the kernel says of a signal: `siginfo_t`.
pub type Info = [u8; INFO_SIZE];
pub const INFO_SIZE: usize = 128;

/// Asks a thread to stand still.
pub fn ask(pid: Tid, tid: Tid) {
    let mut info = [0u8; INFO_SIZE];
    info[..4].copy_from_slice(&libc::SIGSEGV.to_ne_bytes());
    info[8..12].copy_from_slice(&libc::SI_QUEUE.to_ne_bytes());
    info[24..32].copy_from_slice(&HALT_MAGIC.to_ne_bytes());
    send(pid, tid, &info);
}

/// Sends a signal to a thread.
pub fn send(pid: Tid, tid: Tid, info: &Info) {
    // SAFETY: the kernel reads the description.
    let result = unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, number(info), info.as_ptr())
    };
    if result != 0 {
        // One that only the kernel may describe so.
        // SAFETY: plain numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, number(info)) };
    }
}

/// A signal of which there is nothing to say.
pub fn plain(signal: i32) -> Info {
    let mut info = [0; INFO_SIZE];
    info[..4].copy_from_slice(&signal.to_ne_bytes());
    info
}

/// Which signal it is.
pub fn number(info: &Info) -> i32 {
    i32::from_ne_bytes([info[0], info[1], info[2], info[3]])
}

/// Where it comes from.
fn code(info: &Info) -> i32 {
    i32::from_ne_bytes([info[8], info[9], info[10], info[11]])
}

/// Whether it comes from an instruction.
pub fn is_fault(info: &Info) -> bool {
    let is_one = matches!(
        number(info),
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
    );
    is_one && code(info) > 0
}

/// Whether a thread is asked to stand still by it.
pub fn is_asking(info: &Info) -> bool {
    number(info) == libc::SIGSEGV
        && code(info) == libc::SI_QUEUE
        && info[24..32] == HALT_MAGIC.to_ne_bytes()
}
