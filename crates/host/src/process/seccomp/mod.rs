//! What a seccomp filter over the target would do to the system calls that weft needs there.
//!
//! A filter belongs to a thread, not to a process: ask about each thread that is to make calls.

mod call;
mod refusal;
mod rehearsal;

use std::io;

pub use call::Call;
pub use refusal::not_asked;
pub(crate) use refusal::strict;
pub use weft_code::seccomp::{Action, Filter, Instruction, SeccompData};

use super::proc;
use super::ptrace::Request;
use super::seccomp::refusal::{described, forbidden};
use super::status::Status;
use crate::{Error, ErrorKind, Result};
use weft_code::seccomp::AUDIT_ARCH;

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
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
            Err(error) => {
                return Err(Error::new(
                    ErrorKind::SeccompForbids,
                    format!("the seccomp filters of thread {tid} cannot be read"),
                )
                .why(match error.raw_os_error() {
                    Some(libc::EACCES) => {
                        "that needs CAP_SYS_ADMIN, and no filter over weft itself".into()
                    }
                    _ => error.to_string(),
                })
                .advice("run weft as root outside of all containers: sudo weft ..."));
            }
        }
    }
}

/// Reads the filter number `index` of a thread that is in a ptrace stop under the calling thread.
fn dump(tid: i32, index: usize) -> io::Result<Filter> {
    let length = get_filter(tid, index, std::ptr::null_mut())?;
    let mut instructions = vec![Instruction::default(); length];
    get_filter(tid, index, instructions.as_mut_ptr())?;
    Ok(Filter::new(instructions))
}

/// The one ptrace request here, which `libc` does not name.
const PTRACE_SECCOMP_GET_FILTER: Request = 0x420c;

/// The length of a filter, which is copied to `buffer` unless that is null.
fn get_filter(tid: i32, index: usize, buffer: *mut Instruction) -> io::Result<usize> {
    // SAFETY: the kernel writes to the buffer only, which is null or as long as the kernel said
    // before; the filters of a stopped thread do not change.
    let length = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, buffer) };
    if length < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

/// Returns whether `tid`, which is in a ptrace stop under the calling thread, may make all of `calls`.
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
            return Err(forbidden(
                label,
                &format!("it answers {} with: {}", call.name, described(action)),
            ));
        }
    }
    Ok(())
}

/// Filters are inherited and cannot be taken off, so as many of them in the same PID namespace are
/// most likely the same ones.
fn shares_our_filters(tid: i32, theirs: &Status) -> Result<bool> {
    // The rehearsal inherits the filters of this thread.
    // SAFETY: a plain question.
    let own = unsafe { libc::gettid() };
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
