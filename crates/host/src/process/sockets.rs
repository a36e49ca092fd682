//! The time-outs of sockets: nothing under `/proc` tells of them.

use super::proc::{self, Tid};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// For how long a process' socket waits for data to come, and to go; nought if for ever. They are asked of a copy of its
/// descriptor, which lives no longer than that. `None` if there can be none, or it is no socket.
pub fn timeouts(pid: Tid, descriptor: i32) -> Option<[Duration; 2]> {
    let process = proc::open_pidfd(pid).ok()?;
    // SAFETY: plain numbers in, a new descriptor out.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) };
    // SAFETY: the call just made it, and nobody else knows of it.
    let copy = (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy as i32) })?;
    let timeout = |option| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut size = size_of_val(&time) as libc::socklen_t;
        // SAFETY: the kernel writes no more than `size` bytes, which `time` has.
        let result = unsafe {
            let time = (&raw mut time).cast();
            libc::getsockopt(copy.as_raw_fd(), libc::SOL_SOCKET, option, time, &raw mut size)
        };
        (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
    };
    Some([timeout(libc::SO_RCVTIMEO)?, timeout(libc::SO_SNDTIMEO)?])
}

/// Whether a thread's descriptor is a socket that has a time-out, or may have one.
pub(super) fn may_time_out(pid: Tid, tid: Tid, descriptor: i32) -> bool {
    let link = fs::read_link(format!("/proc/{tid}/fd/{descriptor}"));
    let is_socket = link.is_ok_and(|path| path.to_string_lossy().starts_with("socket:"));
    is_socket && timeouts(pid, descriptor).is_none_or(|found| found != [Duration::ZERO; 2])
}
