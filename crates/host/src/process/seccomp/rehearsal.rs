//! Trying out, in a child of weft, the system calls that the target would have to make.

use libc::c_long;
use std::io;

use super::refusal::forbidden;
use crate::{Error, ErrorKind, Result};

const PAGE: c_long = 4096;

/// What the child tries, in this order; its exit code is the place of the call that failed.
const STEPS: [&str; 7] = [
    "memfd_create",
    "mmap of executable memory",
    "mmap of writable memory",
    "madvise",
    "rt_sigprocmask",
    "munmap",
    "close",
];

/// Lets a child make the calls, under the filters that it inherits from weft.
pub(super) fn rehearse(label: &str) -> Result<()> {
    // A bare `clone` runs no handlers of this process in the child, and as no signal is sent when
    // the child ends, nothing in this process can be confused by it.
    // SAFETY: the child is a copy of this thread on a copy of its stack. Other threads may have
    // held locks, but the child takes none: it makes system calls and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        let code = first_failure();
        // SAFETY: ends the child at once, without running anything of this process's.
        unsafe { libc::_exit(code) };
    }
    let failed = || {
        let error = io::Error::last_os_error();
        Error::new(ErrorKind::SystemCall, "the seccomp rehearsal failed").why(error.to_string())
    };
    if child < 0 {
        return Err(failed());
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    while unsafe { libc::waitpid(child as i32, &raw mut status, libc::__WALL) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(failed());
        }
    }
    let rehearsed = "tried by a child of weft under as many filters";
    if libc::WIFEXITED(status) {
        let Some(failed) = (libc::WEXITSTATUS(status) as usize).checked_sub(1) else {
            return Ok(());
        };
        let step = STEPS.get(failed).unwrap_or(&"a call");
        return Err(forbidden(label, &format!("{step} failed when {rehearsed}")));
    }
    let signal = match libc::WTERMSIG(status) {
        libc::SIGSYS => "SIGSYS".into(),
        libc::SIGKILL => "SIGKILL".into(),
        other => format!("signal {other}"),
    };
    Err(forbidden(label, &format!("a call ended in {signal} when {rehearsed}")))
}

/// Makes the calls of [`STEPS`]: the number of the first that failed, or zero. Runs in the child.
fn first_failure() -> i32 {
    let call = |number: c_long, args: [c_long; 6]| {
        let [a, b, c, d, e, f] = args;
        // SAFETY: the calls below create a file and mappings of their own and touch no others.
        unsafe { libc::syscall(number, a, b, c, d, e, f) }
    };
    let (shared, private) =
        (c_long::from(libc::MAP_SHARED), c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS));
    // A child that is killed shall leave no core behind; if this is refused, it may.
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the structure above.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) };

    let file = call(libc::SYS_memfd_create, [c"weft".as_ptr() as c_long, 0, 0, 0, 0, 0]);
    if file < 0 {
        return 1;
    }
    let execute = c_long::from(libc::PROT_READ | libc::PROT_EXEC);
    let code = call(libc::SYS_mmap, [0, PAGE, execute, shared, file, 0]);
    if code == -1 {
        return 2;
    }
    let write = c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    let data = call(libc::SYS_mmap, [0, PAGE, write, private, -1, 0]);
    if data == -1 {
        return 3;
    }
    if call(libc::SYS_madvise, [data, PAGE, c_long::from(libc::MADV_DONTFORK), 0, 0, 0]) < 0 {
        return 4;
    }
    if call(libc::SYS_rt_sigprocmask, [c_long::from(libc::SIG_BLOCK), 0, data, 8, 0, 0]) < 0 {
        return 5;
    }
    if call(libc::SYS_munmap, [data, PAGE, 0, 0, 0, 0]) < 0 {
        return 6;
    }
    if call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) < 0 {
        return 7;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_everything_passes() {
        assert_eq!(rehearse("thread 1"), Ok(()));
    }
}
