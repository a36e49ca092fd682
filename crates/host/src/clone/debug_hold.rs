//! A program that runs from a clone and is held by a debugger all the time.

use super::approach::{approach, refuse_others};
use super::attend::bring_in;
use super::cloned::Cloned;
use super::delivery::gone;
use super::family::Family;
use super::options::CloneOptions;
use super::presence::Presence;
use super::release;
use crate::Result;
use crate::process::launch::{self, Launch, leave_exec};
use crate::process::proc::{self, Mapping, Tid};
use crate::process::stopped::{Stopped, seize_with};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::addresses;
use weft_abi::halt::CloneDebug;

/// A process that the calling thread traces until it exits: the kernel takes ptrace requests from no other thread.
#[derive(Debug)]
pub struct DebugHold {
    pub(super) pid: Tid,
    pub(super) family: Arc<Family>,
    pub(super) presence: Arc<Presence>,
}

impl DebugHold {
    /// A program that runs from a clone, for a debugger that is to join it.
    pub fn of(cloned: &Cloned) -> Result<Self> {
        let (pid, family) = (cloned.pid(), cloned.family());
        let presence = family.presence(pid).ok_or_else(|| gone(pid))?;
        Ok(Self { pid, family, presence })
    }

    /// Starts a program. Returns its threads, too, which are stopped; each stands still as soon as it is let go,
    /// before its next instruction.
    pub fn launch(launch: Launch, options: CloneOptions) -> Result<(Self, Child, Vec<Tid>)> {
        let family = Arc::new(Family::new(options));
        let (mut child, mut stopped) = launch::launch(launch)?;
        match Self::take(family, &mut stopped) {
            Ok((hold, threads)) => Ok((hold, child, threads)),
            Err(error) => {
                // It has not run a single instruction: as good as never started.
                let _ = child.kill();
                stopped.release();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Takes over a running process. Returns its threads, which are stopped.
    pub fn attach(pid: Tid, options: CloneOptions) -> Result<(Self, Vec<Tid>)> {
        let _turn = approach(pid)?;
        let mut stopped = release::stop(pid)?;
        let outcome = refuse_others(pid)
            .and_then(|()| Self::take(Arc::new(Family::new(options)), &mut stopped));
        if outcome.is_err() {
            stopped.release();
        }
        outcome
    }

    /// Takes hold of a program that runs from its clone already. Returns its threads, which run on.
    pub fn join(&self, options: i32) -> Result<Vec<Tid>> {
        let mut threads = Vec::new();
        // The kernel reports threads that one of these starts.
        loop {
            let mut fresh = proc::threads(self.pid)?;
            fresh.retain(|tid| !threads.contains(tid));
            if fresh.is_empty() {
                break;
            }
            for &tid in &fresh {
                seize_with(self.pid, tid, options)?;
            }
            threads.extend(fresh);
        }
        self.debug().pid.store(proc::own_pid(self.pid)? as u32, Relaxed);
        self.debug().version.fetch_add(1, Release);
        Ok(threads)
    }

    /// Stays with a process that has just become another program. Returns its threads, which are stopped;
    /// `None` if it ends instead.
    pub fn follow(&mut self) -> Result<Option<Vec<Tid>>> {
        let failed = |e: std::io::Error| crate::process::ptrace::failed("follow", self.pid, &e);
        let Some(registers) = leave_exec(self.pid).map_err(failed)? else { return Ok(None) };
        let mut stopped = Stopped::adopt(self.pid, registers);
        let (hold, threads) = Self::take(self.family.clone(), &mut stopped)?;
        *self = hold;
        Ok(Some(threads))
    }

    fn take(family: Arc<Family>, stopped: &mut Stopped) -> Result<(Self, Vec<Tid>)> {
        let pid = stopped.pid();
        let presence = bring_in(&family, stopped)?;
        let hold = Self { pid, family, presence };
        hold.debug().pid.store(proc::own_pid(pid)? as u32, Relaxed);
        hold.debug().version.store(1, Release);
        Ok((hold, stopped.keep()))
    }

    /// Goes over to a process that this one has forked: it has the same engine.
    pub fn go_with(&mut self, child: Tid) {
        self.pid = child;
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Whether memory of the process is the engine's, and not the program's.
    pub fn is_own(&self, maps: &[Mapping], mapping: &Mapping) -> bool {
        const ASIDE: u64 = addresses::ENGINE.1 - addresses::ENGINE.0;
        let Presence { base, length, .. } = &*self.presence;
        let debug = self.debug();
        let [start, end] = debug.table.each_ref().map(|edge| edge.load(Relaxed));
        let aside = debug.aside.load(Relaxed);
        let is_aside = |one: &Mapping| (aside..aside + ASIDE).contains(&one.start.0);
        let is_view = |one: &Mapping| one.inode != 0 && one.file() == mapping.file();
        (*base..*base + *length).contains(&mapping.start)
            || (start..end).contains(&mapping.start.0)
            || is_aside(mapping)
            // An arena, which has its other view aside.
            || mapping.shared && maps.iter().any(|one| is_aside(one) && is_view(one))
    }

    /// What the debugger shares with the engine.
    pub fn debug(&self) -> &CloneDebug {
        &self.presence.get().debug
    }

    /// The program, for tools that measure it meanwhile.
    pub fn cloned(&self) -> Cloned {
        Cloned::of_family(self.pid, self.family.clone())
    }
}
