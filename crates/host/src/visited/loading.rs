//! Bringing the agent in where wefts that were killed have left something: that is taken out first.

use super::agent::Agent;
use super::engine::refuse_clone;
use super::inside::addresses_in;
use super::leftovers::{AbandonedProbes, abandoned, abandoned_probes, has_thread_on_trip};
use crate::process::edit;
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use crate::trip::room::Room;
use crate::{Error, ErrorKind, Result};
use std::time::Duration;

/// How often, and with what rest in between, to wait for a thread that a killed weft has sent away.
pub const STRAGGLER_TRIES: u32 = 500;
/// The rest.
pub const STRAGGLER_REST: Duration = Duration::from_millis(2);
/// How often to wait for a thread that is in the probes of a killed weft. One that sleeps there may do so until it
/// exits, and does no harm: the code is restored, and it goes back there when it wakes. Until then that memory stays,
/// and so do the notes that keep others from the functions that it goes back to.
pub const SLEEPER_TRIES: u32 = 20;

/// Tries to load the agent until no thread is in what killed wefts have left. `attempt` calls [`try_load`] with the
/// threads of the process held, and with the number of the attempt.
pub fn load(pid: Tid, mut attempt: impl FnMut(u32) -> Result<Option<Agent>>) -> Result<Agent> {
    for number in 0..STRAGGLER_TRIES {
        if let Some(agent) = attempt(number)? {
            return Ok(agent);
        }
        std::thread::sleep(STRAGGLER_REST);
    }
    Err(straggler(pid))
}

/// Takes out what killed wefts have left, and loads the agent; `None` if a thread is still in the way.
pub fn try_load(stopped: &mut Stopped, number: u32) -> Result<Option<Agent>> {
    let maps = proc::maps(stopped.pid())?;
    refuse_clone(stopped.pid(), &maps)?;
    let mut leftovers = abandoned(stopped.pid(), &maps);
    for probes in abandoned_probes(stopped.pid(), &maps) {
        if restore(stopped, &probes)? {
            leftovers.extend(probes.memory);
        } else if number < SLEEPER_TRIES {
            return Ok(None);
        }
    }
    let room = Room::find(stopped.pid(), &maps)?;
    if has_thread_on_trip(stopped, &room, &leftovers) {
        return Ok(None);
    }
    Agent::load(stopped, &maps, &room, &leftovers).map(Some)
}

/// Takes the probes of a dead weft out of the code; returns whether no thread is in them any more.
pub fn restore(stopped: &mut Stopped, probes: &AbandonedProbes) -> Result<bool> {
    let edits = probes.edits_now(stopped.pid())?;
    edit::apply(stopped, &edits)?;
    let inside = addresses_in(stopped, std::slice::from_ref(&probes.code))?;
    Ok(inside.is_some_and(|found| found.is_empty()))
}

fn straggler(pid: Tid) -> Error {
    Error::new(ErrorKind::Timeout, format!("a thread of process {pid} is still on its way"))
        .why("an earlier weft was killed while it had sent the thread into its own code")
        .advice("let the process run for a moment and try again")
}
