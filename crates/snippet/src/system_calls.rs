//! The numbers of the system calls that snippets make.

pub(crate) const NANOSLEEP: i64 = 35;

/// The system call by which the first probe of a forked child learns whose child it is.
pub const GETPID: i64 = 39;

/// The system call by which a thread learns its id, if [`Env::thread_id`] does not say where it is.
pub const GETTID: i64 = 186;

pub(crate) const CLOCK_GETTIME: i64 = 228;

pub(crate) const PROCESS_VM_READV: i64 = 310;
