//! Which threads would notice that they were stopped, and are better left alone.

use super::proc::{self, Tid};
use super::sockets;
use super::status::Status;
use crate::arch::{Disturbance, SleepingCall, disturbance, may_have_socket_timeout};

/// Which sleeping threads are better left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caution {
    /// Stop every thread.
    StopAll,
    /// Leave threads alone that sleep in a call which would come back short.
    SpareShortCalls,
    /// Leave threads alone that sleep in a call which would come back short, or whose time would begin anew.
    SpareTimeouts,
    /// Leave threads alone that sleep in the kernel in a call which a stop would disturb: they are
    /// not in the program, and weft does not need them.
    SpareSleepers,
}

impl Caution {
    pub(super) fn spares(self, noticed: Disturbance) -> bool {
        match self {
            Self::StopAll => false,
            Self::SpareShortCalls => noticed >= Disturbance::ShortReturn,
            Self::SpareTimeouts => noticed >= Disturbance::LateTimeout,
            Self::SpareSleepers => noticed >= Disturbance::OnlyIfKilled,
        }
    }
}

/// How a thread of a process would notice that it was stopped.
pub(super) fn noticed_by(pid: Tid, tid: Tid) -> Disturbance {
    let Some(call) = proc::sleeping_call(tid) else { return Disturbance::None };
    match disturbance(&call) {
        Disturbance::None
            if may_have_socket_timeout(&call)
                && sockets::may_time_out(pid, tid, call.args[0] as i32) =>
        {
            Disturbance::LateTimeout
        }
        noticed => noticed,
    }
}

/// Whether a call has a time that goes on when it is interrupted, by `restart_syscall`.
fn is_resumed_by_call(call: &SleepingCall) -> bool {
    match call.number {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => true,
        libc::SYS_poll => call.args[2] as i32 > 0,
        libc::SYS_futex => call.args[3] != 0,
        _ => false,
    }
}

/// Whether a thread of a process sleeps where a stop would reach it, and it would not notice, or no more than that a
/// call fails once if weft is killed in that very moment.
pub fn may_stop(pid: Tid, tid: Tid) -> bool {
    let is_deaf = proc::stat(tid).is_ok_and(|stat| stat.state == 'D');
    // The kernel goes on with its call by another one, which a filter may not let it make: then the time begins anew.
    let is_resumed = || proc::sleeping_call(tid).is_some_and(|call| is_resumed_by_call(&call));
    let is_filtered = || Status::read(tid).map_or(true, |status| status.seccomp_mode != 0);
    let is_spared = Caution::SpareTimeouts.spares(noticed_by(pid, tid));
    !(is_deaf || is_spared || is_resumed() && is_filtered())
}
