//! What can stand in the way of attaching, asked before anything is touched.
//!
//! Every question is a function from facts (read from `/proc`, never by stopping anything) to an
//! answer. [`preflight`] asks until one says no; [`report`] asks all of them and adds what is true
//! of the machine.

mod capability;
mod cgroup;
mod facts;
mod freezer;
pub mod limits;
mod permission;
mod processes;
mod report;
pub mod seccomp;
mod target;

pub use processes::{Candidate, processes};
pub use report::{Check, Status, report};

use crate::Result;
use facts::{Own, Target};

/// The process that traces a thread, if one does.
pub(crate) fn tracer(tid: i32) -> Option<i32> {
    facts::Status::read(tid).ok().map(|status| status.tracer).filter(|&tracer| tracer != 0)
}

/// Says whether weft could attach to `pid`, without disturbing it.
///
/// A seccomp filter can be read only from a stopped thread: for that see [`seccomp::examine`].
pub fn preflight(pid: i32) -> Result<()> {
    target::preflight(&Target::read(pid)?, &Own::read()?)
}
