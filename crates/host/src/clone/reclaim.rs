//! Programs that run from a clone whose weft is dead: the next weft gives them back to their own code.
//!
//! The engine is the program's as much as weft's, and works on without one. To have it let the program go, a
//! weft needs to know where it is and that it is the engine which this weft knows how to talk to: both is in
//! the memory that engine and host share, of which the first words never move.

use super::inject::{Presence, engine_hash};
use super::members::is_control;
use super::release;
use crate::agent;
use crate::leftovers::{Named, named};
use crate::proc::{self, Mapping, Tid};
use crate::stopped::Stopped;
use crate::turn::Turn;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result, TargetAddr, memory};
use std::mem::offset_of;
use std::sync::Arc;
use weft_abi::recording::RECORDING_NAME;
use weft_abi::{CLONE_MAGIC, CloneControl, VALUES_NAME};

/// The clone that a process runs from.
#[derive(Debug)]
pub struct Found {
    control: Mapping,
    /// Who has brought it.
    pub owner: Named,
    /// Whether its engine is the one that this weft has.
    is_known: bool,
}

/// The clone that a process with these mappings runs from, if it does.
pub fn find(pid: Tid, maps: &[Mapping]) -> Option<Found> {
    let control = maps.iter().find(|mapping| is_control(mapping))?.clone();
    let word = |offset: usize| -> Option<u64> {
        let bytes = memory::read(pid, control.start + offset as u64, 8).ok()?;
        Some(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    };
    if word(offset_of!(CloneControl, magic)) != Some(CLONE_MAGIC) {
        // It is being brought in, or of another version.
        return Some(Found { control, owner: Named::Unknown, is_known: false });
    }
    let owner = named(pid, control.start + offset_of!(CloneControl, owner) as u64);
    let is_known = word(offset_of!(CloneControl, engine)) == Some(engine_hash());
    Some(Found { control, owner, is_known })
}

/// Gives a process back to its own code, with all that share its clone, if the weft is dead that has brought
/// them into it.
pub fn reclaim(pid: Tid) -> Result<()> {
    // What the process is, and whether it can be attached to, is for others to say.
    let Ok(maps) = proc::maps(pid) else { return Ok(()) };
    let Some(found) = find(pid, &maps).filter(|found| found.owner == Named::Dead) else {
        return Ok(());
    };
    if !found.is_known {
        return Err(Error::new(
            ErrorKind::AlreadyTraced,
            format!("process {pid} runs from a clone of another version of weft"),
        )
        .why("the weft that made it was killed, and this one does not know how to undo it")
        .advice("attach once with the version that made it, or restart the program"));
    }
    let presence = Arc::new(Presence::abandoned(pid, found.control.start)?);
    let mut processes = presence.relatives(pid);
    processes.insert(0, pid);
    for process in processes {
        give_back(process, &presence)?;
    }
    Ok(())
}

fn give_back(pid: Tid, presence: &Arc<Presence>) -> Result<()> {
    let presence = presence.clone();
    let turn = Turn::take(pid);
    let outcome = turn.and_then(|_turn| {
        Worker::<Stopped>::new().run(move |stopped| {
            *stopped = release::stop(pid)?;
            if !presence.is_in(pid) {
                stopped.release();
                return Ok(());
            }
            let outcome = release::take_out(stopped, &presence).and_then(|()| {
                // Nobody measures into it any more.
                agent::take_out(stopped, &left_behind(&proc::maps(pid)?))
            });
            stopped.release();
            outcome
        })
    });
    // One that has ended has left the engine as well.
    if proc::is_alive(pid) { outcome } else { Ok(()) }
}

/// What the dead weft has had its engine measure and record into.
fn left_behind(maps: &[Mapping]) -> Vec<(TargetAddr, u64)> {
    let names = [VALUES_NAME, RECORDING_NAME].map(|name| format!("/memfd:{name} (deleted)"));
    let is_left = |mapping: &&Mapping| mapping.shared && names.contains(&mapping.path);
    maps.iter().filter(is_left).map(|mapping| (mapping.start, mapping.len())).collect()
}
