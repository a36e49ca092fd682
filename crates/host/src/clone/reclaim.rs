//! Programs that run from a clone whose weft is dead: the next weft gives them back to their own code.
//!
//! The engine is the program's as much as weft's, and works on without one. To have it let the program go, a
//! weft needs to know where it is and that it is the engine which this weft knows how to talk to: both is in
//! the memory that engine and host share, of which the first words never move.
//!
//! A weft may be killed before that, at any moment of a takeover. The order of things in [`super::inject`] is made for
//! it: the memory is signed before the process has it; whatever else is mapped is noted there by the thread that maps it;
//! and until the host says that all threads are sent, each that comes to the engine goes back to where it was. So the
//! process runs from its clone with all its threads or with none, and what is left can be taken out.

use super::members::Members;
use super::presence::Presence;
use super::release;
use super::visit::EngineCall;
use crate::base::worker::Worker;
use crate::process::memory;
use crate::process::proc::{self, Mapping, Tid};
use crate::process::stopped::Stopped;
use crate::process::turn::Turn;
use crate::trip::room::Room;
use crate::trip::sharing;
use crate::visited::engine::{Found, Stage, find};
use crate::visited::owner::Named;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::mem::offset_of;
use std::sync::Arc;
use weft_abi::CloneControl;

/// Gives a process back to its own code, with all that share its clone, if the weft is dead that has brought
/// them into it.
pub fn reclaim(pid: Tid) -> Result<()> {
    // What the process is, and whether it can be attached to, is for others to say.
    let Ok(maps) = proc::maps(pid) else { return Ok(()) };
    let Some(found) = find(pid, &maps) else {
        // A thread may still be on its way to map it, in the room that this weft is about to use.
        let is_used = Room::find(pid, &maps).is_ok_and(|room| room.is_used());
        return if is_used { clear(pid) } else { Ok(()) };
    };
    match reclaim_from(pid, found) {
        // A thread was about to take it out, for the weft that was killed.
        Err(_) if proc::maps(pid).is_ok_and(|maps| find(pid, &maps).is_none()) => reclaim(pid),
        outcome => outcome,
    }
}

fn reclaim_from(pid: Tid, found: Found) -> Result<()> {
    if found.owner != Named::Dead {
        return Ok(());
    }
    if !found.is_known {
        return Err(Error::new(
            ErrorKind::AlreadyTraced,
            format!("process {pid} runs from a clone of another version of weft"),
        )
        .why("the weft that made it was killed, and this one does not know how to undo it")
        .advice("attach once with the version that made it, or restart the program"));
    }
    if found.stage != Stage::Joined {
        // Those that were forked with it since are as native.
        let members = Members::of(pid, found.control.start, 0)?;
        let others: Vec<Tid> = members.all().filter(|&other| other != pid).collect();
        return std::iter::once(pid).chain(others).try_for_each(clear);
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
    at_work(pid, move |stopped| {
        *stopped = release::stop_at_home(pid, |registers, _, room| {
            // A visit is part of a trip.
            Ok(room.is_used() && presence.is_visited_by(registers))
        })?;
        if !presence.is_in(pid) {
            return Ok(());
        }
        release::take_out(stopped, &presence)
    })
}

/// Waits until no thread is on its way for a weft that was killed, and takes out of a process what that has left in it
/// before the process ran from its clone.
fn clear(pid: Tid) -> Result<()> {
    at_work(pid, move |stopped| {
        *stopped = release::stop_at_home(pid, |registers, maps, _| {
            let at = registers.instruction();
            let is_there = |left: Left| at - left.range.0 < left.range.1;
            Ok(Left::find(pid, maps)?.is_some_and(is_there))
        })?;
        let maps = proc::maps(pid)?;
        // There may be nothing, or another weft may have been here first.
        let Some(left) = Left::find(pid, &maps)? else { return Ok(()) };
        left.take_out(stopped, &Room::find(pid, &maps)?)
    })
}

/// Does something with a process, with its threads held, and lets them go.
fn at_work(pid: Tid, work: impl FnOnce(&mut Stopped) -> Result<()> + Send + 'static) -> Result<()> {
    let outcome = Turn::take(pid).and_then(|_turn| {
        Worker::<Stopped>::new().run(move |stopped| {
            let outcome = work(stopped);
            stopped.release();
            outcome
        })
    });
    // One that has ended has left the engine as well.
    if proc::is_alive(pid) { outcome } else { Ok(()) }
}

/// What a weft has left that was killed before the process ran from its clone.
struct Left {
    /// The engine's image, if it is there, what it shares with weft, and what lies behind that.
    range: (TargetAddr, u64),
    /// Where the engine forgets what it has mapped itself, if it was built.
    forget: Option<TargetAddr>,
}

impl Left {
    /// Finds it in a process that this weft holds.
    fn find(pid: Tid, maps: &[Mapping]) -> Result<Option<Self>> {
        let Some(Found { control, owner, stage, .. }) = find(pid, maps) else { return Ok(None) };
        // This weft holds the process, so no other can be about to sign it.
        let is_dead = stage == Stage::Unsigned || owner == Named::Dead;
        if stage == Stage::Joined || !is_dead {
            return Ok(None);
        }
        let word = |offset: usize| memory::word(pid, control.start + offset as u64).unwrap_or(0);
        if stage == Stage::Unsigned || word(offset_of!(CloneControl, is_mapped)) == 0 {
            return Ok(Some(Self { range: (control.start, control.len()), forget: None }));
        }
        let presence = Presence::abandoned(pid, control.start)?;
        let is_cleared = word(offset_of!(CloneControl, is_cleared)) != 0;
        let area = if is_cleared { 0 } else { word(offset_of!(CloneControl, visit_area_length)) };
        // What makes it executable builds the engine right after, on the same trip.
        let is_built = maps.iter().any(|mapping| mapping.start == presence.base && mapping.execute);
        Ok(Some(Self {
            range: (presence.base, presence.length + area),
            forget: is_built.then_some(presence.forget),
        }))
    }

    fn take_out(&self, stopped: &Stopped, room: &Room) -> Result<()> {
        if let Some(forget) = self.forget {
            let area = release::set_up(stopped, room, 0)?;
            // Where it had no memory to be built, or has forgotten already, there is nothing to do.
            let outcome = area.visit(stopped, room, EngineCall::to(forget), &mut []);
            sharing::take_out(stopped, &[(area.at, area.length)]).and(outcome)?;
        }
        let mut ranges = release::measured_into(&proc::maps(stopped.pid())?);
        // All at once and last: as long as it is there, the next weft knows what is to be done.
        ranges.push(self.range);
        sharing::take_out(stopped, &ranges)
    }
}
