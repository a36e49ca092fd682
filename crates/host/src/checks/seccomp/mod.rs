//! What a seccomp filter over the target would do to the system calls that weft needs there.
//!
//! A filter belongs to a thread, not to a process: ask about each thread that is to make calls.

mod rehearsal;

use std::fmt;

pub use weft_code::seccomp::{Filter, Instruction, SeccompData};

use super::facts::Status;
use crate::arch::syscall_name;
use crate::ptrace::Request;
use crate::{Error, ErrorKind, Result, proc};
use weft_code::seccomp::AUDIT_ARCH;

/// A system call that weft wants the target to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its number.
    pub number: i32,
    /// Its arguments. A filter sees the numbers only, never what they point to.
    pub args: [u64; 6],
    /// Where the instruction after the `syscall` instruction is, which a filter sees as well.
    pub instruction_pointer: u64,
}

impl Call {
    /// A call of which nothing is known but its number and first arguments.
    pub fn new(number: i64, known: &[u64]) -> Self {
        let mut args = [0; 6];
        args[..known.len()].copy_from_slice(known);
        Self { name: syscall_name(number), number: number as i32, args, instruction_pointer: 0 }
    }
}

/// What a filter does to a system call, from the mildest to the most severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Lets it pass.
    Allow,
    /// Lets it pass and logs it.
    Log,
    /// Hands it to a tracer.
    Trace,
    /// Hands it to a supervising process.
    UserNotify,
    /// Makes it fail with this error number.
    Errno(u16),
    /// Sends SIGSYS.
    Trap,
    /// Kills the thread.
    KillThread,
    /// Kills the process.
    KillProcess,
}

impl Action {
    /// Decodes what a filter returned; what the kernel does not know, it kills for.
    fn decode(returned: u32) -> Self {
        match returned & libc::SECCOMP_RET_ACTION_FULL {
            libc::SECCOMP_RET_ALLOW => Self::Allow,
            libc::SECCOMP_RET_LOG => Self::Log,
            libc::SECCOMP_RET_TRACE => Self::Trace,
            libc::SECCOMP_RET_USER_NOTIF => Self::UserNotify,
            libc::SECCOMP_RET_ERRNO => Self::Errno((returned & libc::SECCOMP_RET_DATA) as u16),
            libc::SECCOMP_RET_TRAP => Self::Trap,
            libc::SECCOMP_RET_KILL_THREAD => Self::KillThread,
            _ => Self::KillProcess,
        }
    }

    /// Whether the call is made as if there were no filter.
    pub fn permits(self) -> bool {
        matches!(self, Self::Allow | Self::Log)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("permission"),
            Self::Log => f.write_str("permission and a log entry"),
            Self::Trace => f.write_str("a tracer that decides"),
            Self::UserNotify => f.write_str("a supervisor that decides"),
            Self::Errno(number) => {
                write!(f, "failure ({:?})", nix::Error::from_raw(i32::from(*number)))
            }
            Self::Trap => f.write_str("SIGSYS"),
            Self::KillThread => f.write_str("death of the thread"),
            Self::KillProcess => f.write_str("death of the process"),
        }
    }
}

/// What the kernel would do: it runs every filter and takes the most severe answer.
pub fn verdict(filters: &[Filter], data: &SeccompData) -> Action {
    filters.iter().map(|filter| Action::decode(filter.run(data))).max().unwrap_or(Action::Allow)
}

/// Reads the filters of a thread that is in a ptrace stop under the calling thread.
///
/// The kernel shows them to those with CAP_SYS_ADMIN who are not under a filter themselves.
pub fn dump_filters(tid: i32) -> Result<Vec<Filter>> {
    let mut filters = Vec::new();
    loop {
        match dump(tid, filters.len()) {
            Ok(filter) => filters.push(filter),
            Err(nix::Error::ENOENT) => return Ok(filters),
            Err(errno) => {
                return Err(Error::new(
                    ErrorKind::SeccompForbids,
                    format!("the seccomp filters of thread {tid} cannot be read"),
                )
                .why(match errno {
                    nix::Error::EACCES => {
                        "that needs CAP_SYS_ADMIN, and no filter over weft itself".into()
                    }
                    other => other.desc().to_string(),
                })
                .advice("run weft as root outside of all containers: sudo weft ..."));
            }
        }
    }
}

/// Reads the filter number `index` of a thread that is in a ptrace stop under the calling thread.
fn dump(tid: i32, index: usize) -> nix::Result<Filter> {
    let length = get_filter(tid, index, std::ptr::null_mut())?;
    let mut instructions = vec![Instruction::default(); length];
    get_filter(tid, index, instructions.as_mut_ptr())?;
    Ok(Filter::new(instructions))
}

/// The one ptrace request here, which `libc` does not name.
const PTRACE_SECCOMP_GET_FILTER: Request = 0x420c;

/// The length of a filter, which is copied to `buffer` unless that is null.
fn get_filter(tid: i32, index: usize, buffer: *mut Instruction) -> nix::Result<usize> {
    // SAFETY: the kernel writes to the buffer only, which is null or as long as the kernel said
    // before; the filters of a stopped thread do not change.
    let length = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, buffer) };
    nix::Error::result(length).map(|length| length as usize)
}

/// Says whether `tid`, which is in a ptrace stop under the calling thread, may make all of `calls`.
///
/// Where its filters cannot be read but weft seems to live under the very same, as within one
/// container, a child of weft tries the calls instead.
pub fn examine(tid: i32, calls: &[Call]) -> Result<()> {
    let status = Status::read(tid)?;
    let label = format!("thread {tid} ({})", status.name);
    match status.seccomp_mode {
        0 => Ok(()),
        1 => Err(strict(&label)),
        _ => match dump_filters(tid) {
            Ok(filters) => judge(&label, &filters, calls),
            Err(unreadable) => {
                if shares_our_filters(tid, &status)? {
                    rehearsal::rehearse(&label)
                } else {
                    Err(unreadable)
                }
            }
        },
    }
}

/// Whether `tid`, which is in a ptrace stop under the calling thread, may make the call by which the kernel has a
/// thread go on with an interrupted sleep. No program makes it itself, so filters forget to allow it. Of a filter
/// that cannot be read it is not known, and the answer is no.
pub fn permits_restart(tid: i32) -> bool {
    let call = Call {
        name: "restart_syscall",
        number: libc::SYS_restart_syscall as i32,
        args: [0; 6],
        instruction_pointer: 0,
    };
    Status::read(tid).is_ok_and(|status| {
        status.seccomp_mode == 0
            || dump_filters(tid).is_ok_and(|filters| judge("", &filters, &[call]).is_ok())
    })
}

/// Whether some thread of a process is under a filter.
pub fn is_over_any_thread(pid: i32) -> bool {
    let threads = proc::threads(pid).unwrap_or_default();
    threads.into_iter().any(|tid| Status::read(tid).is_ok_and(|status| status.seccomp_mode != 0))
}

/// The error for a process in the strict mode.
pub(super) fn strict(label: &str) -> Error {
    Error::new(ErrorKind::SeccompForbids, format!("{label} is in seccomp's strict mode"))
        .why("strict mode lets it only read, write and exit, any other system call would kill it")
        .advice("nothing lifts the mode: start the program without it")
}

fn judge(label: &str, filters: &[Filter], calls: &[Call]) -> Result<()> {
    for call in calls {
        let data = SeccompData {
            number: call.number,
            arch: AUDIT_ARCH,
            instruction_pointer: call.instruction_pointer,
            args: call.args,
        };
        let action = verdict(filters, &data);
        if !action.permits() {
            return Err(forbidden(label, &format!("it answers {} with: {action}", call.name)));
        }
    }
    Ok(())
}

/// The error for a filter that forbids, with the reason.
fn forbidden(label: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::SeccompForbids,
        format!("the seccomp filter over {label} forbids a system call that weft needs"),
    )
    .why(why)
    .advice(
        "start the program without that filter, for a container: \
         docker run --security-opt seccomp=unconfined ...",
    )
}

/// The error for a call that a snippet would make in a clone, under a filter that came after the clone: threads in a
/// clone are not stopped to be asked.
pub fn not_asked(pid: i32, call: &Call) -> Error {
    let what = format!("process {pid} has put a seccomp filter over itself since weft came");
    Error::new(ErrorKind::SeccompForbids, what)
        .why(format!("what is to be measured needs {}, which the filter may forbid", call.name))
        .advice("measure what needs no system calls: calls, wall times, arguments")
}

/// Filters are inherited and cannot be taken off, so as many of them in the same PID namespace are
/// most likely the same ones.
fn shares_our_filters(tid: i32, theirs: &Status) -> Result<bool> {
    // The rehearsal inherits the filters of this thread.
    let own = nix::unistd::gettid().as_raw();
    let namespace = proc::namespace(own, "pid");
    let filters = Status::read(own)?.seccomp_filters;
    Ok(filters != 0
        && filters == theirs.seccomp_filters
        && namespace.is_some()
        && namespace == proc::namespace(tid, "pid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};

    fn op(code: u32, k: u32) -> Instruction {
        Instruction { code: code as u16, k, ..Instruction::default() }
    }

    fn load(offset: u32) -> Instruction {
        op(BPF_LD | BPF_W | BPF_ABS, offset)
    }

    fn ret(value: u32) -> Instruction {
        op(BPF_RET | BPF_K, value)
    }

    /// Skips so many instructions unless the condition holds.
    fn only_if(condition: u32, k: u32, jump_false: u8) -> Instruction {
        Instruction { jump_false, ..op(BPF_JMP | condition, k) }
    }

    fn call(number: i64, args: [u64; 6]) -> Call {
        Call { name: "mmap", number: number as i32, args, instruction_pointer: 0x1000 }
    }

    #[test]
    fn the_most_severe_answer_wins() {
        let data = SeccompData::default();
        let answers = [
            libc::SECCOMP_RET_ALLOW,
            libc::SECCOMP_RET_LOG,
            libc::SECCOMP_RET_TRACE,
            libc::SECCOMP_RET_USER_NOTIF,
            libc::SECCOMP_RET_ERRNO | 1,
            libc::SECCOMP_RET_TRAP,
            libc::SECCOMP_RET_KILL_THREAD,
            libc::SECCOMP_RET_KILL_PROCESS,
        ];
        assert_eq!(verdict(&[], &data), Action::Allow);
        let mut filters = Vec::new();
        for answer in answers {
            filters.insert(filters.len() / 2, Filter::new(vec![ret(answer)]));
            assert_eq!(verdict(&filters, &data), Action::decode(answer));
        }
    }

    #[test]
    fn an_unknown_answer_kills() {
        assert_eq!(Action::decode(0x1234_0000), Action::KillProcess);
    }

    #[test]
    fn the_reason_names_the_call_and_the_action() {
        // mmap (9) with PROT_EXEC (4) in its third argument fails with EPERM (1).
        let filter = Filter::new(vec![
            load(0),
            only_if(BPF_JEQ, 9, 3),
            load(32),
            only_if(BPF_JSET, 4, 1),
            ret(libc::SECCOMP_RET_ERRNO | 1),
            ret(libc::SECCOMP_RET_ALLOW),
        ]);
        let plain = call(libc::SYS_mmap, [0, 4096, 3, 0, 0, 0]);
        let executable = call(libc::SYS_mmap, [0, 4096, 5, 0, 0, 0]);
        assert_eq!(judge("thread 1", std::slice::from_ref(&filter), &[plain]), Ok(()));
        let error = judge("thread 1", &[filter], &[plain, executable]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::SeccompForbids);
        assert_eq!(error.why, "it answers mmap with: failure (EPERM)");
    }
}
