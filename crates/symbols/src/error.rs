//! What can be wrong with a file of code or of debug information.

use std::fmt;

/// A file that cannot be read, or is not what it claims to be: what happened, why, and what to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What happened, as one sentence without a full stop.
    pub what: String,
    /// Why it happened; empty when that is not known.
    pub why: String,
    /// What to try next; empty when there is nothing to try.
    pub advice: String,
}

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with neither reason nor advice yet: see [`Error::why`] and [`Error::advice`].
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), why: String::new(), advice: String::new() }
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
