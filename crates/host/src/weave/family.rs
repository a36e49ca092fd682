//! The children that a target with probes has forked.
//!
//! A child has a copy of the woven code, and shares the memory of the probes: it measures into slabs of
//! its own there. So whatever is done to the code of the target is done to its children's too.

use crate::agent::is_wefts;
use crate::proc::{self, Tid};
use std::fs;

/// The processes, other than `pid`, that map the memory with this inode, and that were started at
/// `since` or later (in clock ticks since boot).
pub fn relatives(pid: Tid, inode: u64, since: u64) -> Vec<Tid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<Tid>().ok())
        .filter(|&other| other != pid)
        // Cheaper than reading the maps of every process.
        .filter(|&other| proc::stat(other).is_ok_and(|stat| stat.start_time >= since))
        .filter(|&other| {
            proc::maps(other).is_ok_and(|maps| {
                // One that has weft's agent has not been forked with a copy of the target's memory: it
                // runs in the target's own, as a vforked child does until it starts its program.
                maps.iter().any(|m| m.shared && m.inode == inode) && !maps.iter().any(is_wefts)
            })
        })
        .collect()
}
