//! What stopping a thread does to the system call that it sleeps in.
//!
//! Most calls restart by themselves: the kernel remembers the deadline of a `nanosleep`, a `poll` or a
//! `futex`, and starts a `read` again. signal(7) lists those that do not and fail with EINTR after a
//! mere stop; weft makes them restart too ([`fails_when_stopped`]). What is left are calls that come
//! back with less than they were asked for, and timeouts that start anew.

// The names of system calls are those of the libc crate.
#![allow(non_upper_case_globals)]

use crate::TargetAddr;
use crate::base::page::PAGE;
use libc::*;

/// Missing from the libc crate.
const SYS_io_pgetevents: c_long = 333;

/// A system call that a sleeping thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepingCall {
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// How a sleeping thread would notice that it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    /// Not at all.
    None,
    /// Not at all, unless weft is killed in the very moment between the stop and the repair: then the
    /// call fails with EINTR.
    OnlyIfKilled,
    /// A timeout is counted from the start again: the call may end late.
    LateTimeout,
    /// The call returns with part of its work done: a short write.
    ShortReturn,
}

/// How a thread that sleeps in this call would notice a stop.
pub fn disturbance(call: &SleepingCall) -> Disturbance {
    use Disturbance::{LateTimeout, None, OnlyIfKilled, ShortReturn};
    let wait_for_all = |flags: u64| flags & MSG_WAITALL as u64 != 0;
    match call.number {
        SYS_write | SYS_pwrite64 | SYS_writev | SYS_pwritev | SYS_pwritev2 => ShortReturn,
        SYS_sendto | SYS_sendmsg | SYS_sendmmsg | SYS_sendfile | SYS_splice | SYS_tee
        | SYS_vmsplice | SYS_copy_file_range | SYS_getrandom => ShortReturn,
        SYS_recvmmsg | SYS_io_getevents | SYS_io_pgetevents => ShortReturn,
        SYS_recvfrom if wait_for_all(call.args[3]) => ShortReturn,
        SYS_recvmsg if wait_for_all(call.args[2]) => ShortReturn,
        SYS_epoll_wait | SYS_epoll_pwait if call.args[3] as i32 > 0 => LateTimeout,
        SYS_epoll_pwait2 | SYS_semtimedop if call.args[3] != 0 => LateTimeout,
        SYS_rt_sigtimedwait if call.args[2] != 0 => LateTimeout,
        SYS_epoll_wait | SYS_epoll_pwait | SYS_epoll_pwait2 | SYS_semop | SYS_semtimedop
        | SYS_rt_sigtimedwait | SYS_io_uring_enter => OnlyIfKilled,
        _ => None,
    }
}

/// Whether a call, at work in the kernel, may come back with part of its work done when its thread is stopped.
pub fn may_end_short(number: i64) -> bool {
    is_counted(number)
        || matches!(
            number,
            SYS_sendto
                | SYS_sendmsg
                | SYS_sendmmsg
                | SYS_recvfrom
                | SYS_recvmsg
                | SYS_recvmmsg
                | SYS_splice
                | SYS_tee
                | SYS_vmsplice
                | SYS_getrandom
                | SYS_io_getevents
                | SYS_io_pgetevents
                | SYS_io_uring_enter
        )
}

/// Whether a call that has come back with this, as its thread was stopped, may have been cut short: it has done at least a page
/// of its work, and not all.
pub fn may_be_cut_short(call: &SleepingCall, result: i64) -> bool {
    let wanted = match call.number {
        SYS_read | SYS_pread64 | SYS_write | SYS_pwrite64 => call.args[2],
        SYS_getrandom => call.args[1],
        SYS_sendfile => call.args[3],
        SYS_copy_file_range => call.args[4],
        number if may_end_short(number) => u64::MAX,
        _ => 0,
    };
    u64::try_from(result).is_ok_and(|result| (PAGE..wanted).contains(&result))
}

/// Whether the kernel counts such calls of a thread when they are done, in `/proc/PID/task/TID/io`.
pub fn is_counted(number: i64) -> bool {
    matches!(
        number,
        SYS_read
            | SYS_pread64
            | SYS_readv
            | SYS_preadv
            | SYS_preadv2
            | SYS_write
            | SYS_pwrite64
            | SYS_writev
            | SYS_pwritev
            | SYS_pwritev2
            | SYS_sendfile
            | SYS_copy_file_range
    )
}

/// Whether it is a call on a descriptor that is timed if that is a socket with a timeout option (SO_RCVTIMEO,
/// SO_SNDTIMEO): such a timeout is counted from the start again.
pub fn may_have_socket_timeout(call: &SleepingCall) -> bool {
    matches!(
        call.number,
        SYS_read | SYS_readv | SYS_recvfrom | SYS_recvmsg | SYS_accept | SYS_accept4 | SYS_connect
    )
}

/// Whether a call starts a process with a copy of the caller's memory, of which `word` reads a word.
pub fn copies_memory(call: &SleepingCall, word: impl FnOnce(TargetAddr) -> Option<u64>) -> bool {
    clone_flags(call, word).is_some_and(|flags| flags & CLONE_VM as u64 == 0)
}

/// Whether a call starts a process and waits until that has ended or called `execve`, as `vfork` does.
pub fn waits_for_child(call: &SleepingCall, word: impl FnOnce(TargetAddr) -> Option<u64>) -> bool {
    clone_flags(call, word).is_some_and(|flags| flags & CLONE_VFORK as u64 != 0)
}

/// With which flags of `clone` a call starts a thread or a process, if it does.
fn clone_flags(call: &SleepingCall, word: impl FnOnce(TargetAddr) -> Option<u64>) -> Option<u64> {
    match call.number {
        SYS_fork => Some(0),
        SYS_vfork => Some((CLONE_VM | CLONE_VFORK) as u64),
        SYS_clone => Some(call.args[0]),
        // They are the first word of its argument.
        SYS_clone3 => word(TargetAddr(call.args[0])),
        _ => None,
    }
}

/// Whether the call may fail with EINTR because its thread was stopped, though no handler ran; and
/// whether, having failed so, it has done nothing, so that it can be made again.
pub(super) fn fails_when_stopped(number: i64) -> bool {
    matches!(
        number,
        SYS_epoll_wait
            | SYS_epoll_pwait
            | SYS_epoll_pwait2
            | SYS_semop
            | SYS_semtimedop
            | SYS_rt_sigtimedwait
            | SYS_io_uring_enter
            // These only on sockets with a timeout of their own (SO_RCVTIMEO, SO_SNDTIMEO).
            | SYS_read
            | SYS_readv
            | SYS_write
            | SYS_writev
            | SYS_recvfrom
            | SYS_recvmsg
            | SYS_sendto
            | SYS_sendmsg
            | SYS_accept
            | SYS_accept4
            | SYS_connect
    )
}

/// The name of a system call that weft has to speak of.
pub fn syscall_name(number: i64) -> &'static str {
    match number {
        SYS_write => "write",
        SYS_pwrite64 => "pwrite64",
        SYS_writev => "writev",
        SYS_pwritev => "pwritev",
        SYS_pwritev2 => "pwritev2",
        SYS_sendto => "sendto",
        SYS_sendmsg => "sendmsg",
        SYS_sendmmsg => "sendmmsg",
        SYS_sendfile => "sendfile",
        SYS_splice => "splice",
        SYS_tee => "tee",
        SYS_vmsplice => "vmsplice",
        SYS_copy_file_range => "copy_file_range",
        SYS_getrandom => "getrandom",
        SYS_recvfrom => "recvfrom",
        SYS_recvmsg => "recvmsg",
        SYS_recvmmsg => "recvmmsg",
        SYS_io_getevents => "io_getevents",
        SYS_io_pgetevents => "io_pgetevents",
        SYS_memfd_create => "memfd_create",
        SYS_ftruncate => "ftruncate",
        SYS_mmap => "mmap",
        SYS_madvise => "madvise",
        SYS_close => "close",
        SYS_munmap => "munmap",
        SYS_rt_sigprocmask => "rt_sigprocmask",
        SYS_mprotect => "mprotect",
        SYS_rt_sigaction => "rt_sigaction",
        SYS_sigaltstack => "sigaltstack",
        SYS_arch_prctl => "arch_prctl",
        SYS_tgkill => "tgkill",
        SYS_rt_tgsigqueueinfo => "rt_tgsigqueueinfo",
        SYS_futex => "futex",
        SYS_sched_yield => "sched_yield",
        SYS_getpid => "getpid",
        SYS_gettid => "gettid",
        SYS_clock_gettime => "clock_gettime",
        SYS_process_vm_readv => "process_vm_readv",
        SYS_nanosleep => "nanosleep",
        _ => "a system call",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(number: i64, args: [u64; 6]) -> Disturbance {
        disturbance(&SleepingCall { number, args })
    }

    #[test]
    fn what_transfers_data_may_end_short() {
        for number in [SYS_read, SYS_writev, SYS_sendfile, SYS_getrandom, SYS_recvmsg] {
            assert!(may_end_short(number));
        }
        for number in [SYS_getppid, SYS_openat, SYS_munmap, SYS_futex, SYS_nanosleep] {
            assert!(!may_end_short(number));
        }
        assert!(is_counted(SYS_read) && !is_counted(SYS_getrandom));
    }

    #[test]
    fn what_has_done_a_part_may_be_cut_short() {
        let call = |number, args| SleepingCall { number, args };
        let read = call(SYS_read, [3, 0, 1 << 20, 0, 0, 0]);
        assert!(may_be_cut_short(&read, 4096) && may_be_cut_short(&read, (1 << 20) - 1));
        for result in [-4, 0, 100, 1 << 20] {
            assert!(!may_be_cut_short(&read, result), "{result}");
        }
        assert!(!may_be_cut_short(&call(SYS_brk, [0; 6]), 0x10_0000));
        assert!(may_be_cut_short(&call(SYS_readv, [3, 0, 2, 0, 0, 0]), 1 << 20));
    }

    #[test]
    fn deadlines_that_the_kernel_keeps_are_not_disturbed() {
        for number in [SYS_nanosleep, SYS_poll, SYS_futex, SYS_read, SYS_wait4, SYS_ppoll] {
            assert_eq!(sleeping(number, [1; 6]), Disturbance::None);
        }
    }

    #[test]
    fn an_endless_epoll_wait_has_no_timeout_to_be_late() {
        let endless = sleeping(SYS_epoll_wait, [3, 0, 8, 0xffff_ffff, 0, 0]);
        assert_eq!(endless, Disturbance::OnlyIfKilled);
        assert_eq!(sleeping(SYS_epoll_wait, [3, 0, 8, 100, 0, 0]), Disturbance::LateTimeout);
    }

    #[test]
    fn a_receive_is_short_only_when_it_waits_for_all() {
        assert_eq!(sleeping(SYS_recvfrom, [3, 0, 8, 0, 0, 0]), Disturbance::None);
        let flags = MSG_WAITALL as u64;
        assert_eq!(sleeping(SYS_recvfrom, [3, 0, 8, flags, 0, 0]), Disturbance::ShortReturn);
    }
}
