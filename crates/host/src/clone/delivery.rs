//! Delivering messages to the engine of a process: what is to be woven, what is to be taken out.

use super::family::Family;
use super::presence::Presence;
use super::release::{PATIENCE, let_busy_run, set_up};
use super::visit::{EngineCall, VisitArea, describe};
use crate::base::worker::Worker;
use crate::process::proc::{self, Tid};
use crate::process::stopped::{Caution, Pause, Stopped};
use crate::trip::room::Room;
use crate::trip::sharing::{self, Sharing};
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_abi::weaving;

/// How long to wait for threads that are in code which is out of date.
const MOMENT: Duration = Duration::from_millis(50);

thread_local! {
    /// The threads that a debugger has on this thread, while something is woven: see [`while_held`].
    static HELD: RefCell<Option<Stopped>> = const { RefCell::new(None) };
}

/// Does something while a process is held by this thread already, for a debugger. What is woven into that
/// process meanwhile is woven by the threads that stand still; no other thread of weft's could do it.
pub fn while_held<R>(stopped: Stopped, act: impl FnOnce() -> R) -> R {
    HELD.set(Some(stopped));
    let result = act();
    HELD.take();
    result
}

/// A program that is held while something is woven.
pub struct HeldEngine<'a> {
    stopped: &'a mut Stopped,
    presence: &'a Presence,
    /// Whether nobody may let its threads run for a moment: a debugger has them.
    is_debugged: bool,
}

impl Family {
    /// Holds a process, if it is not held already, and does something with its engine. Gives how long it stood
    /// still as well.
    pub fn with_engine<R: Send + 'static>(
        &self,
        pid: Tid,
        hold: Option<&Worker<Stopped>>,
        act: impl FnOnce(&mut HeldEngine<'_>) -> Result<R> + Send + 'static,
    ) -> (Result<R>, Option<Pause>) {
        let Some(presence) = self.presence(pid) else { return (Err(gone(pid)), None) };
        let act = move |stopped: &mut Stopped, is_debugged| {
            let pid = stopped.pid();
            let mut engine = HeldEngine { stopped, presence: &presence, is_debugged };
            if presence.is_in(pid) { act(&mut engine) } else { Err(gone(pid)) }
        };
        let held = HELD.with_borrow_mut(|held| held.take_if(|held| held.pid() == pid));
        if let Some(mut stopped) = held {
            let outcome = act(&mut stopped, true);
            HELD.set(Some(stopped));
            return (outcome, None);
        }
        if let Some(hold) = hold {
            return (hold.run(|stopped| act(stopped, false)), None);
        }
        Worker::<Stopped>::new().run(move |stopped| {
            match stop(pid) {
                Ok(held) => *stopped = held,
                Err(error) => return (Err(error), None),
            }
            let result = act(stopped, false);
            (result, Some(stopped.release()))
        })
    }

    /// The engine in a process, or in the one that has forked it.
    pub fn presence(&self, pid: Tid) -> Option<Arc<Presence>> {
        self.presences().into_iter().rev().find(|presence| presence.is_in(pid))
    }

    /// The processes that a process has forked with its engine: not those that still run in its own memory,
    /// as vforked ones do.
    pub fn relatives(&self, pid: Tid) -> Vec<Tid> {
        let Some(presence) = self.presence(pid) else { return Vec::new() };
        let mut others = presence.relatives(pid);
        others.retain(|&other| !proc::share_memory(pid, other));
        others
    }

    /// Whether a process still runs from its clone.
    pub fn is_in(&self, pid: Tid) -> bool {
        self.presence(pid).is_some()
    }
}

/// Stops the threads of a process that are not in the kernel, or one that is. Who is there was sent by the
/// engine, which looks where to go on when it comes back.
fn stop(pid: Tid) -> Result<Stopped> {
    let stopped = Stopped::stop_all_in_clone(pid, Caution::SpareSleepers)?;
    if stopped.threads().is_empty() { Stopped::stop_least_noticed(pid) } else { Ok(stopped) }
}

/// The error for a process that has no engine.
pub fn gone(pid: Tid) -> Error {
    Error::new(ErrorKind::TargetGone, format!("process {pid} does not run from a clone any more"))
        .why("it has ended, has become another program, or was given back")
}

impl HeldEngine<'_> {
    /// Maps memory that the program shares with weft.
    pub fn share(&self, sharing: &Sharing) -> Result<MmapMut> {
        let pid = self.stopped.pid();
        let room = Room::find(pid, &proc::maps(pid)?)?;
        let made = sharing.make(self.stopped, &room);
        made.map(|(memory, _)| memory)
    }

    /// Delivers to the engine what to weave. Threads that are in code which is out of date are given a moment to
    /// leave it; returns whether they all have.
    pub fn weave(&mut self, message: &[u64]) -> Result<bool> {
        let pid = self.stopped.pid();
        let room = Room::find(pid, &proc::maps(pid)?)?;
        self.stopped.stop_before(self.presence.call());
        let area = set_up(self.stopped, &room, message.len())?;
        let outcome = self.visit_until_done(&area, &room, message.to_vec());
        self.presence.want(false);
        sharing::take_out(self.stopped, &[(area.at, area.length)]).and(outcome)
    }

    fn visit_until_done(
        &mut self,
        area: &VisitArea,
        room: &Room,
        mut message: Vec<u64>,
    ) -> Result<bool> {
        let pid = self.stopped.pid();
        let began = Instant::now();
        loop {
            let mut threads = describe(self.stopped)?;
            let call =
                EngineCall { message: message.clone(), ..EngineCall::to(self.presence.weave) };
            let outcome = area.visit(self.stopped, room, call, &mut threads);
            if matches!(outcome, Ok(true)) {
                self.presence.want(false);
            }
            match outcome {
                Ok(true) if threads.iter().all(|(_, thread)| thread.is_busy == 0) => {
                    return Ok(true);
                }
                Ok(true) if self.is_debugged || began.elapsed() > MOMENT => return Ok(false),
                // What was to be done is done.
                Ok(true) if message != [weaving::LEAVE] => message.clear(),
                Ok(true) => {}
                Ok(false) if !self.is_debugged && began.elapsed() < PATIENCE => {
                    self.presence.want(true);
                }
                Ok(false) => {
                    return Err(Error::new(
                        ErrorKind::Timeout,
                        format!("the engine in process {pid} does not get to weaving"),
                    )
                    .advice("try again: the program runs on as before"));
                }
                Err(error) => return Err(error),
            }
            let_busy_run(self.stopped, &threads)?;
        }
    }

    /// Takes memory out of the program that nobody uses.
    pub fn take_out(&self, memory: &[(TargetAddr, u64)]) -> Result<()> {
        sharing::take_out(self.stopped, memory)
    }
}
