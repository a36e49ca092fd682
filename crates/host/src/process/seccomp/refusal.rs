//! What is reported where a filter forbids something.

use super::call::Call;
use crate::{Error, ErrorKind};
use weft_code::seccomp::Action;

/// The error for a process in the strict mode.
pub(crate) fn strict(label: &str) -> Error {
    Error::new(ErrorKind::SeccompForbids, format!("{label} is in seccomp's strict mode"))
        .why("strict mode lets it only read, write and exit, any other system call would kill it")
        .advice("nothing lifts the mode: start the program without it")
}

/// The error for a filter that forbids, with the reason.
pub(crate) fn forbidden(label: &str, why: &str) -> Error {
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

/// What a filter does to a call, in words.
pub(crate) fn described(action: Action) -> String {
    let text = match action {
        Action::Allow => "permission",
        Action::Log => "permission and a log entry",
        Action::Trace => "a tracer that decides",
        Action::UserNotify => "a supervisor that decides",
        Action::Errno(number) => return format!("failure ({})", errno_name(number.into())),
        Action::Trap => "SIGSYS",
        Action::KillThread => "death of the thread",
        Action::KillProcess => "death of the process",
    };
    text.into()
}

/// The name of an error number, of those that filters answer with; the number of any other.
fn errno_name(number: i32) -> String {
    let name = match number {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EACCES => "EACCES",
        libc::EINVAL => "EINVAL",
        libc::ENOSYS => "ENOSYS",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => return format!("error {number}"),
    };
    name.into()
}
