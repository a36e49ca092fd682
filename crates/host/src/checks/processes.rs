//! All processes that weft can see, and whether it could attach to each.

use super::facts::{Own, Target};
use super::{permission, questions};
use crate::process::proc;
use crate::{Error, Result};
use std::fs;

/// A process that weft can see.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its process id.
    pub pid: i32,
    /// The name of its effective user, or the number where there is no name.
    pub user: String,
    /// Its short name.
    pub comm: String,
    /// Its command line; empty for a kernel thread.
    pub cmdline: String,
    /// How many threads it has.
    pub threads: u32,
    /// Whether it is a thread of the kernel, which nothing can attach to.
    pub is_kernel_thread: bool,
    /// What attaching would fail with, if it would.
    pub obstacle: Option<Error>,
    /// What other wefts have in it, in words; empty if nothing.
    pub wefts: String,
}

/// Every process that weft can see, in the order of their ids, without weft itself.
pub fn processes() -> Result<Vec<Candidate>> {
    let own = Own::read()?;
    let mut pids: Vec<i32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own.pid)
        .collect();
    pids.sort_unstable();
    // A process that ends in between is simply not there.
    Ok(pids
        .into_iter()
        .filter_map(|pid| Target::read(pid).ok())
        .map(|t| candidate(&t, &own))
        .collect())
}

fn candidate(target: &Target, own: &Own) -> Candidate {
    let cmdline = fs::read(proc::dir(target.pid).join("cmdline")).unwrap_or_default();
    let words: Vec<_> =
        cmdline.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word)).collect();
    Candidate {
        pid: target.pid,
        user: permission::user(target.status.uids[1]),
        comm: target.status.name.clone(),
        cmdline: words.join(" ").trim_end().into(),
        threads: target.status.threads,
        is_kernel_thread: target.is_kernel_thread,
        obstacle: questions::preflight(target, own).err(),
        wefts: questions::presence(target.pid).unwrap_or_default().unwrap_or_default(),
    }
}
