//! The ptrace calls that weft uses, each with a type that says what it takes.
//!
//! All of them must come from the operating-system thread that seized the tracee; `base::worker` sees
//! to that. ESRCH always means the same: the thread is gone, or not stopped (any more).

use super::proc::{self, Tid};
use super::status;
use crate::arch::Registers;
use crate::{Error, ErrorKind, TargetAddr};
use libc::{c_int, c_long, c_void};
use std::io;
use std::mem::{size_of, zeroed};
use std::sync::{Mutex, PoisonError};

/// The number of a request, as the C library has it.
#[cfg(target_env = "musl")]
pub type Request = c_int;
/// The number of a request, as the C library has it.
#[cfg(not(target_env = "musl"))]
pub type Request = libc::c_uint;

/// What a thread that was waited for did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Stopped because weft asked, or (with a stop signal) because its whole process is stopped.
    Stop(c_int),
    /// Stopped on its way to handle a signal.
    Signal(c_int),
    /// Stopped at the entry to or the exit from a system call.
    SystemCall,
    /// Stopped right after a successful `execve`.
    Exec,
    /// Some other event that weft did not ask for.
    Other(c_int),
    /// Ended.
    Gone,
}

/// Which side of a system call a thread is stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSide {
    /// Before the kernel acts; with the address after the instruction and the number of the call.
    Entry(TargetAddr, u64),
    /// After the kernel has acted; with what it returns.
    Exit(i64),
    /// Not at a system call.
    Neither,
}

fn request(request: Request, tid: Tid, address: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: the callers in this file pass, for each request, the address and data that ptrace(2)
    // documents; where the kernel writes through one of them it is a live, large enough buffer.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data as *mut c_void) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Turns a failed call on a thread into an error of the host.
pub fn failed(what: &str, tid: Tid, error: &io::Error) -> Error {
    if error.raw_os_error() == Some(libc::ESRCH) {
        return Error::new(ErrorKind::TargetGone, format!("thread {tid} ended"))
            .why(format!("it was no longer there when weft wanted to {what}"));
    }
    Error::new(ErrorKind::SystemCall, format!("weft could not {what} thread {tid}"))
        .why(error.to_string())
}

/// The threads of weft's that are about to trace another, with that one.
static SEIZING: Mutex<Vec<(Tid, Tid)>> = Mutex::new(Vec::new());

/// Becomes the thread's tracer without stopping it.
///
/// The kernel makes the caller wait while a thread of that process is in `execve`. That one waits until all others are
/// gone, and those that the caller traces are gone when it has collected them: see [`collect_ended`].
pub fn seize(tid: Tid, options: c_int) -> io::Result<()> {
    // SAFETY: a plain question.
    let seizing = (unsafe { libc::gettid() }, tid);
    let all = || SEIZING.lock().unwrap_or_else(PoisonError::into_inner);
    all().push(seizing);
    let result = request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop);
    all().retain(|one| *one != seizing);
    result
}

/// Collects the ended threads that another thread of weft's traces, where that waits to trace one more of their process.
pub fn collect_ended(tracer: Tid) {
    // A copy: who holds the lock must not wait for anything.
    let all = SEIZING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let wanted = all.into_iter().filter(|&(one, _)| one == tracer);
    let processes = wanted.filter_map(|(_, tid)| status::process(tid));
    for tid in processes.flat_map(|pid| proc::threads(pid).unwrap_or_default()) {
        let is_ended = || proc::stat(tid).is_ok_and(|stat| stat.state == 'Z');
        if status::tracer(tid) == Some(tracer) && is_ended() {
            // It may be collected already.
            let _ = poll(tid);
        }
    }
}

/// Replaces the options given to [`seize`].
pub fn set_options(tid: Tid, options: c_int) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// Asks the thread to stop as soon as it may.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets a stopped thread run on, with a signal or 0.
pub fn resume(tid: Tid, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Lets a thread run on, with a signal or 0, that stopped for another reason than that it was asked to. It
/// is asked again: the kernel takes any stop for an answer.
pub fn resume_asked(tid: Tid, signal: c_int) -> io::Result<()> {
    interrupt(tid)?;
    resume(tid, signal)
}

/// Lets a stopped thread run until it enters or leaves a system call.
pub fn resume_to_call(tid: Tid, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
}

/// Lets a stopped thread execute one instruction.
pub fn step(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, 0).map(drop)
}

/// What a thread that is stopped at an event has to say: for one that has started another, its id.
pub fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message = 0u64;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message)
}

/// Lets a stopped thread go for good, optionally with a signal.
pub fn detach(tid: Tid, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// The general registers of a stopped thread.
pub fn registers(tid: Tid) -> io::Result<Registers> {
    // SAFETY: plain integers; the kernel fills them in.
    let mut registers: libc::user_regs_struct = unsafe { zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, &raw mut registers as usize)?;
    Ok(Registers(registers))
}

/// Sets the general registers of a stopped thread.
pub fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, &raw const registers.0 as usize).map(drop)
}

/// The extended state (x87, SSE, AVX, AVX-512, ...) of a stopped thread, as `xsave` lays it out.
pub fn vector_state(tid: Tid) -> io::Result<Vec<u8>> {
    // The kernel truncates to what there is; AMX alone takes 8 KiB.
    let mut bytes = vec![0u8; 64 * 1024];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut vector as usize)?;
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

/// Sets the extended state of a stopped thread.
pub fn set_vector_state(tid: Tid, bytes: &[u8]) -> io::Result<()> {
    let base = bytes.as_ptr().cast_mut().cast();
    let vector = libc::iovec { iov_base: base, iov_len: bytes.len() };
    request(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &raw const vector as usize).map(drop)
}

/// The signals that a stopped thread blocks; inside a call that changes the mask for its own
/// duration (`ppoll`, `sigsuspend`, ...) those that it will block afterwards.
pub fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(PTRACE_GETSIGMASK, tid, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Sets the signals that a stopped thread blocks.
pub fn set_signal_mask(tid: Tid, mask: u64) -> io::Result<()> {
    request(PTRACE_SETSIGMASK, tid, size_of::<u64>(), &raw const mask as usize).map(drop)
}

const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: Request = 0x420a;
const PTRACE_SETSIGMASK: Request = 0x420b;
const PTRACE_GET_SYSCALL_INFO: Request = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;
const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;

/// What a thread is told of the signal that it is stopped on its way to: a `siginfo_t`.
pub fn signal_info(tid: Tid) -> io::Result<[u8; 128]> {
    let mut info = [0u8; 128];
    request(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as usize)?;
    Ok(info)
}

/// Replaces the information of the signal that a thread is stopped for.
pub fn set_signal_info(tid: Tid, info: &[u8; 128]) -> io::Result<()> {
    request(libc::PTRACE_SETSIGINFO, tid, 0, info.as_ptr() as usize).map(drop)
}

/// Which side of which system call a thread is stopped at.
pub fn call_side(tid: Tid) -> io::Result<CallSide> {
    /// The kernel's `ptrace_syscall_info`, which `libc` has for glibc only.
    #[repr(C)]
    #[derive(Default)]
    struct Information {
        side: u8,
        padding: [u8; 3],
        arch: u32,
        instruction_pointer: u64,
        stack_pointer: u64,
        /// The number of the call at its entry, what it returns at its exit.
        first: u64,
        rest: [u64; 7],
    }
    let mut info = Information::default();
    request(PTRACE_GET_SYSCALL_INFO, tid, size_of::<Information>(), &raw mut info as usize)?;
    Ok(match info.side {
        PTRACE_SYSCALL_INFO_ENTRY => {
            CallSide::Entry(TargetAddr(info.instruction_pointer), info.first)
        }
        PTRACE_SYSCALL_INFO_EXIT => CallSide::Exit(info.first as i64),
        _ => CallSide::Neither,
    })
}

/// Where a thread keeps its restartable-sequence state, and its signature, if it has registered any.
/// Kernels before 5.13 do not report it.
pub fn rseq_area(tid: Tid) -> Option<(TargetAddr, u32)> {
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        pointer: u64,
        size: u32,
        signature: u32,
        flags: u32,
        padding: u32,
    }
    let mut configuration = Configuration::default();
    let size = size_of::<Configuration>();
    request(PTRACE_GET_RSEQ_CONFIGURATION, tid, size, &raw mut configuration as usize).ok()?;
    let Configuration { pointer, signature, .. } = configuration;
    (pointer != 0).then_some((TargetAddr(pointer), signature))
}

/// Writes to a stopped thread's memory whatever its protection, as a debugger does for breakpoints.
pub fn force_write(tid: Tid, address: TargetAddr, bytes: &[u8]) -> io::Result<()> {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let at = (address + 8 * index as u64).0 as usize;
        let mut word = [0u8; 8];
        if chunk.len() < 8 {
            // The library call would hand back a word and an error in one value; the system call
            // writes the word through its last argument.
            let mut old = 0u64;
            // SAFETY: the kernel writes one word to `old`.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_ptrace,
                    libc::PTRACE_PEEKDATA,
                    tid,
                    at,
                    &raw mut old as usize,
                )
            };
            if result == -1 {
                return Err(io::Error::last_os_error());
            }
            word = old.to_ne_bytes();
        }
        word[..chunk.len()].copy_from_slice(chunk);
        request(libc::PTRACE_POKEDATA, tid, at, u64::from_ne_bytes(word) as usize)?;
    }
    Ok(())
}

/// What the thread has done since it was last waited for; `None` when it still runs.
pub fn poll(tid: Tid) -> io::Result<Option<Event>> {
    look(tid, libc::WNOHANG)
}

/// Waits until the thread has done something. Only for threads that are about to.
pub fn wait(tid: Tid) -> io::Result<Event> {
    loop {
        if let Some(event) = look(tid, 0)? {
            return Ok(event);
        }
    }
}

/// The end of a process is left to its parent to collect: a child of weft's has its exit status still to give, and
/// the kernel clears away the others when the holding thread ends. That of another thread is collected at once: one in
/// `execve` waits for it.
fn look(tid: Tid, how: c_int) -> io::Result<Option<Event>> {
    // SAFETY: plain integers; the kernel fills them in.
    let mut info: libc::siginfo_t = unsafe { zeroed() };
    let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::WNOWAIT | how;
    // SAFETY: the kernel writes the information.
    if unsafe { libc::waitid(libc::P_PID, tid as libc::id_t, &raw mut info, options) } == -1 {
        let error = io::Error::last_os_error();
        // One of weft's own signals was handled by this thread.
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok(None);
        }
        // Another thread's `execve` takes the others' ids away without a word.
        return if error.raw_os_error() == Some(libc::ECHILD) {
            Ok(Some(Event::Gone))
        } else {
            Err(error)
        };
    }
    // SAFETY: the kernel wrote what it reports of a child.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    let is_gone = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    if is_gone && status::process(tid).is_none_or(|pid| pid == tid) {
        return Ok(Some(Event::Gone));
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
        _ if is_gone => Ok(Some(Event::Gone)),
        // Killed since the first look.
        -1 | 0 => Ok(None),
        _ => Ok(Some(decode(status))),
    }
}

fn decode(status: c_int) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Gone;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Event::SystemCall,
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_STOP => Event::Stop(signal),
        libc::PTRACE_EVENT_EXEC => Event::Exec,
        other => Event::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(decode((libc::SIGTRAP | 0x80) << 8 | 0x7f), Event::SystemCall);
        assert_eq!(decode(libc::SIGTRAP << 8 | 0x7f | 128 << 16), Event::Stop(libc::SIGTRAP));
        assert_eq!(decode(libc::SIGSTOP << 8 | 0x7f | 128 << 16), Event::Stop(libc::SIGSTOP));
        assert_eq!(decode(libc::SIGUSR1 << 8 | 0x7f), Event::Signal(libc::SIGUSR1));
        assert_eq!(decode(0x0700), Event::Gone);
        assert_eq!(decode(libc::SIGKILL), Event::Gone);
    }
}
