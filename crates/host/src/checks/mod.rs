//! What can stand in the way of attaching, asked before anything is touched.
//!
//! Every question is a function from facts (read from `/proc`, never by stopping anything) to an
//! answer. [`preflight`] asks until one says no; [`report`] asks all of them and adds what is true
//! of the machine.

mod facts;
mod freezer;
mod permission;
mod processes;
mod questions;
mod report;

pub use processes::{Candidate, processes};
pub use report::{Check, Status, report};

pub use crate::process::{limits, seccomp};

use crate::Result;
use crate::checks::facts::{Own, Target};

/// Returns whether weft could attach to `pid`, without disturbing it.
///
/// A seccomp filter can be read only from a stopped thread: for that see [`seccomp::examine`].
pub fn preflight(pid: i32) -> Result<()> {
    questions::preflight(&Target::read(pid)?, &Own::read()?)
}
