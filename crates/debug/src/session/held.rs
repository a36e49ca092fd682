//! Children that the program has forked and that stand still until the debugger has decided.

use std::collections::{BTreeMap, BTreeSet};
use weft_host::proc::Tid;
use weft_host::ptrace;

/// The children that are known.
#[derive(Debug, Default)]
pub struct Held {
    /// Whether they are reported to the debugger.
    pub are_reported: bool,
    /// Those that have stopped or been reported, but not both, and that are not debugged.
    strangers: BTreeSet<Tid>,
    /// Those that stand still until the debugger has decided, and whether they have borrowed their parent's memory.
    pub held: BTreeMap<Tid, bool>,
}

impl Held {
    /// Whether a process has been reported before it has stopped.
    pub fn is_stranger(&self, pid: Tid) -> bool {
        self.strangers.contains(&pid)
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: Tid) {
        self.strangers.remove(&pid);
        self.held.remove(&pid);
    }

    /// Detaches from a process that is not debugged. It stops once and is reported once, in either order: the second time
    /// it is known to stand still.
    pub fn part_from(&mut self, pid: Tid) {
        if self.strangers.remove(&pid) {
            let _ = ptrace::detach(pid, 0);
        } else {
            self.strangers.insert(pid);
        }
    }

    /// Holds a child, which is about to stop if it has not.
    pub fn hold(&mut self, child: Tid, is_vfork: bool) {
        if !self.strangers.remove(&child) && !stops(child) {
            return;
        }
        // It is not to end with the tracer.
        let _ = ptrace::set_options(child, 0);
        self.held.insert(child, is_vfork);
    }

    /// Lets a child go that is held.
    pub fn let_go(&mut self, child: Tid) {
        if self.held.remove(&child).is_some() {
            // A failure means that it was killed.
            let _ = ptrace::detach(child, 0);
        }
    }
}

/// Waits until a child has stopped for the first time; not if it was killed before.
fn stops(child: Tid) -> bool {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let tid = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
    tid == child && libc::WIFSTOPPED(status)
}
