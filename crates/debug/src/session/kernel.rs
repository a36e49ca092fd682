//! What the kernel is asked, and how it answers.

use crate::debuggee::Registers;
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Result, ptrace};

/// The length of the instruction that makes a system call.
pub const CALL_LENGTH: u64 = 2;

/// Where registers are among the general ones, as instructions number them.
pub const RAX: usize = 0;

pub const RCX: usize = 1;

pub const R11: usize = 11;

/// The events of a thread that the kernel reports; and whether it ends with its tracer.
pub fn options(is_own: bool) -> i32 {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEVFORKDONE
        | libc::PTRACE_O_TRACEEXEC;
    options | if is_own { libc::PTRACE_O_EXITKILL } else { 0 }
}

/// Waits for any thread that this thread traces.
pub fn wait_for_any(how: i32) -> Result<Option<(Tid, i32)>> {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | how) };
    if tid > 0 {
        return Ok(Some((tid, status)));
    }
    let error = std::io::Error::last_os_error();
    if tid == 0 || error.kind() == std::io::ErrorKind::Interrupted {
        return Ok(None);
    }
    Err(Error::new(ErrorKind::TargetGone, "the program is gone").why(error.to_string()))
}

/// Waits for any child, and returns how the process has ended if that is the first event. The event is not consumed
/// (WNOWAIT): the parent that started the process still collects it.
pub fn end_of(pid: Tid, how: i32) -> Option<i32> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::__WNOTHREAD | libc::WNOWAIT;
    // SAFETY: plain numbers, which the kernel fills in.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_ALL, 0, &raw mut info, options | how), info)
    };
    // SAFETY: the kernel wrote what it reports of a child.
    let (who, status) = unsafe { (info.si_pid(), info.si_status()) };
    if result != 0 || who != pid {
        return None;
    }
    match info.si_code {
        libc::CLD_EXITED => Some(status << 8),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(status),
        _ => None,
    }
}

/// Lets a stopped thread run. A failure means that it was killed; the next wait reports it.
pub fn let_go(tid: Tid, signal: i32) {
    let _ = ptrace::resume(tid, signal);
}

/// What does not depend on where a thread is.
pub fn from_native(native: &weft_host::Registers) -> Registers {
    let r = &native.0;
    Registers {
        segments: [r.cs, r.ss, r.ds, r.es, r.fs, r.gs].map(|segment| segment as u16),
        fs_base: r.fs_base,
        orig_rax: r.orig_rax,
        ..Registers::default()
    }
}
