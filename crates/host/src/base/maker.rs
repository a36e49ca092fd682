//! The process that something belongs to.

use crate::{Error, ErrorKind, Result};

/// The process that has made something which acts on other processes.
///
/// A forked child has a copy of it, but none of the threads that it relies on; and what its memory says of a
/// target is true only in the process that goes on to change that target. So in any other process than the one
/// that made it, it is not used, and dropping it does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker(u32);

impl Maker {
    /// This process.
    pub fn this() -> Self {
        Self(std::process::id())
    }

    /// Whether it is this process.
    pub fn is_here(self) -> bool {
        self == Self::this()
    }

    /// Fails unless it is this process.
    pub fn check(self) -> Result<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("this belongs to process {}", self.0))
            .why("a forked child cannot use what its parent has attached to or started")
            .advice("attach in the process that measures"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_not_this_one() {
        assert!(Maker::this().check().is_ok());
        let parent = Maker(std::process::id() + 1);
        assert!(!parent.is_here());
        assert_eq!(parent.check().unwrap_err().kind, ErrorKind::InvalidArgument);
    }
}
