//! One target under control: attach, ask, detach, each a transaction.

use crate::agent::{Agent, CpuFacts, Pong};
use crate::proc::{self, Tid};
use crate::stopped::{Caution, Pause, Stopped};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process with weft's agent in it.
///
/// Between the operations nothing holds the process: it runs at full speed, signals reach it directly,
/// a debugger can attach, and if weft dies nothing happens to it.
#[derive(Debug)]
pub struct Target {
    pid: Tid,
    pidfd: OwnedFd,
    agent: Option<Agent>,
    pauses: Vec<Pause>,
}

impl Target {
    /// Attaches to a running process.
    pub fn attach(pid: Tid) -> Result<Self> {
        let pidfd = open_pidfd(pid)?;
        let mut target = Self { pid, pidfd, agent: None, pauses: Vec::new() };
        let descriptor = target.pidfd.as_raw_fd();
        let agent = target.held(move || stop_for_trip(pid), move |stopped| {
            Agent::load(stopped, descriptor)
        })?;
        target.agent = Some(agent);
        Ok(target)
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Asks every thread for an answer, from inside the process.
    pub fn ping(&mut self) -> Result<Vec<Pong>> {
        let pid = self.pid;
        let mut agent = self.take_agent()?;
        let (agent, result) = self.held(
            move || Stopped::stop_all(pid, Caution::SpareShortCalls),
            move |stopped| {
                let result = agent.ping(stopped);
                Ok((agent, result))
            },
        )?;
        self.agent = Some(agent);
        result
    }

    /// What the agent saw of the processor.
    pub fn cpu(&self) -> Result<CpuFacts> {
        self.agent.as_ref().map(Agent::cpu).ok_or_else(|| detached(self.pid))
    }

    /// Takes everything out that weft brought. A target that has ended, or has become another program,
    /// has nothing of weft's any more.
    pub fn detach(&mut self) -> Result<()> {
        let Some(agent) = self.agent.take() else { return Ok(()) };
        let pid = self.pid;
        let outcome = match proc::maps(pid) {
            Ok(maps) if agent.is_in(&maps) => {
                self.held(move || Stopped::stop_one(pid), move |stopped| agent.unload(stopped))
            }
            _ => return Ok(()),
        };
        match outcome {
            Err(error) if matches!(error.kind, ErrorKind::TargetGone | ErrorKind::NoSuchProcess) => Ok(()),
            other => other,
        }
    }

    /// Every time that threads of the target stood still because of weft.
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    fn take_agent(&mut self) -> Result<Agent> {
        self.agent.take().ok_or_else(|| detached(self.pid))
    }

    /// Stops threads, does something with them, and lets them go, whatever happens.
    fn held<R: Send + 'static>(
        &mut self,
        stop: impl FnOnce() -> Result<Stopped> + Send + 'static,
        act: impl FnOnce(&Stopped) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let worker = Worker::<()>::new();
        let (result, pause) = worker.run(move |()| {
            let mut stopped = match stop() {
                Ok(stopped) => stopped,
                Err(error) => return (Err(error), None),
            };
            let result = act(&stopped);
            (result, Some(stopped.release()))
        });
        self.pauses.extend(pause);
        result
    }
}

/// Stops what has to be stopped for a trip: everything that may be in the program, and at least one
/// thread.
fn stop_for_trip(pid: Tid) -> Result<Stopped> {
    let mut stopped = Stopped::stop_all(pid, Caution::SpareSleepers)?;
    if stopped.threads().is_empty() {
        stopped.release();
        stopped = Stopped::stop_one(pid)?;
    }
    Ok(stopped)
}

fn open_pidfd(pid: Tid) -> Result<OwnedFd> {
    // SAFETY: plain numbers in, a new descriptor out.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(proc::unreadable(pid, "", &io::Error::last_os_error()));
    }
    // SAFETY: the call just made it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn detached(pid: Tid) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("weft is no longer attached to process {pid}"))
        .advice("attach again")
}
