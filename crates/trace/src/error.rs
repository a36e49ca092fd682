//! What can be wrong with a trace.

use std::fmt;
use std::io;

/// A trace that is not what it should be, or cannot be read or written.
#[derive(Debug)]
pub struct Error {
    /// What is wrong.
    pub what: String,
    /// Whether the file is not what it claims to be; if not, the system has failed.
    pub is_bad_file: bool,
}

/// What may fail by an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Something in a file that cannot be.
    pub fn bad(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_bad_file: true }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self { what: error.to_string(), is_bad_file: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}
