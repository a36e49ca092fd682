//! The one error type of the host. Each error says what happened, why, and what to try next.

use std::fmt;

/// What kind of failure it was. The Python side has one exception class per kind, of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No process has that id.
    NoSuchProcess,
    /// The kernel's rules do not let this user attach.
    PermissionDenied,
    /// Another tracer holds the process.
    AlreadyTraced,
    /// The process has ended and waits to be reaped.
    ZombieTarget,
    /// The process is stopped or frozen.
    StoppedTarget,
    /// The process is not 64-bit x86, or is a thread of the kernel.
    UnsupportedTarget,
    /// The process's seccomp filter forbids what weft would need.
    SeccompForbids,
    /// The target ended, or replaced its program, while weft worked on it.
    TargetGone,
    /// A thread did not stop in time.
    Timeout,
    /// The program to start could not be started.
    LaunchFailed,
    /// A file (an ELF file, debug information, a trace) cannot be read or written, or is not what it claims to be.
    BadFile,
    /// A system call failed in a way that has no kind of its own.
    SystemCall,
    /// The caller asked for something that makes no sense.
    InvalidArgument,
    /// There is no code where some was said to be: its library may have been unloaded meanwhile.
    CodeGone,
    /// A snippet says something that cannot be.
    BadSnippet,
    /// There is no room for more of it.
    LimitReached,
    /// weft itself is wrong.
    Internal,
}

impl ErrorKind {
    /// The name of the kind, which is also the name of its Python exception.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// What happened, why, and what to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// What happened, as one sentence without a full stop.
    pub what: String,
    /// Why it happened; empty when that is not known.
    pub why: String,
    /// What to try next; empty when there is nothing to try.
    pub advice: String,
}

/// The result of everything in the host that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with neither reason nor advice yet: see [`Error::why`] and [`Error::advice`].
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), why: String::new(), advice: String::new() }
    }

    /// Adds the reason.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds what to try next.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

impl From<weft_symbols::Error> for Error {
    fn from(error: weft_symbols::Error) -> Self {
        let weft_symbols::Error { what, why, advice } = error;
        Self { kind: ErrorKind::BadFile, what, why, advice }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
