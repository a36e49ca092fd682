//! Whose something in a target is: which weft has signed it, and whether that still runs.

use crate::process::memory;
use crate::process::proc::{self, Tid};
use crate::{Result, TargetAddr};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use weft_abi::Owner;

/// What is known of the weft that owns something in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It does not run any more.
    Dead,
    /// It runs, and is this process.
    Alive(Tid),
    /// It may run: it is in another PID namespace, or of another version.
    Unknown,
}

impl Named {
    /// It, in words.
    pub fn whose(self) -> String {
        match self {
            Self::Alive(pid) if pid == std::process::id() as Tid => {
                "another session of this process".into()
            }
            Self::Alive(pid) => format!("process {pid}, another weft,"),
            Self::Dead => "a weft that was killed".into(),
            Self::Unknown => "another weft".into(),
        }
    }
}

/// Names this weft as the owner.
pub fn sign(owner: &Owner) -> Result<()> {
    let me = std::process::id() as Tid;
    owner.pid.store(me as u64, Relaxed);
    owner.start_time.store(proc::stat(me)?.start_time, Relaxed);
    owner.pid_namespace.store(proc::namespace(me, "pid").unwrap_or(0), Relaxed);
    Ok(())
}

/// The owner that is named at an address of the target, as far as it can be known.
pub fn named(pid: Tid, owner: TargetAddr) -> Named {
    let field = |offset: usize| memory::word(pid, owner + offset as u64).unwrap_or(0);
    let namespace = field(offset_of!(Owner, pid_namespace));
    if Some(namespace) != proc::namespace(std::process::id() as Tid, "pid") {
        return Named::Unknown;
    }
    let owner = field(offset_of!(Owner, pid)) as Tid;
    match proc::stat(owner) {
        // One that was killed is there until its parent asks for its exit code, which may be never.
        Ok(stat)
            if stat.start_time == field(offset_of!(Owner, start_time))
                && proc::has_living_threads(owner) =>
        {
            Named::Alive(owner)
        }
        _ => Named::Dead,
    }
}
