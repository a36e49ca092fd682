//! A program that runs from a clone, as its owner sees it.

use super::approach::{approach, refuse_others};
use super::attend::bring_in;
use super::family::Family;
use super::flow::Flow;
use super::losses::Losses;
use super::options::{Arrival, CloneOptions};
use super::trace::Tracer;
use super::{futex, release};
use crate::base::worker::Worker;
use crate::process::launch::{self, Launch};
use crate::process::proc::Tid;
use crate::process::stopped::Stopped;
use crate::{Maker, Result};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
use weft_abi::{CloneRegisters, turn};

/// A program that runs from a clone.
#[derive(Debug)]
pub struct Cloned {
    pid: Tid,
    family: Arc<Family>,
    /// What holds it, if it stands still until it is measured.
    hold: Mutex<Option<Worker<Stopped>>>,
    maker: Maker,
}

impl Cloned {
    /// Starts a program.
    pub fn launch(launch: Launch, options: CloneOptions) -> Result<(Self, Child)> {
        let family = Arc::new(Family::new(options));
        let hold = Worker::<Stopped>::new();
        let programs = family.clone();
        let started = hold.run(move |stopped| {
            let (mut child, held) = launch::launch(launch)?;
            *stopped = held;
            match bring_in(&programs, stopped) {
                Ok(_) => Ok(child),
                Err(error) => {
                    // It has not run a single instruction: as good as never started.
                    let _ = child.kill();
                    stopped.release();
                    let _ = child.wait();
                    Err(error)
                }
            }
        });
        let child = started?;
        hold.run(Stopped::release);
        Ok((
            Self { pid: child.id() as Tid, family, hold: Mutex::new(None), maker: Maker::this() },
            child,
        ))
    }

    /// Takes over a process that is held, and stays so until it is measured.
    pub(crate) fn take_over(
        pid: Tid,
        hold: Worker<Stopped>,
        options: CloneOptions,
    ) -> Result<Self> {
        let family = Arc::new(Family::new(options));
        let programs = family.clone();
        hold.run(move |stopped| bring_in(&programs, stopped).map(drop))?;
        Ok(Self { pid, family, hold: Mutex::new(Some(hold)), maker: Maker::this() })
    }

    /// What has been executed so far, as far as that is recorded. Nothing stands still for it.
    pub fn flow(&self) -> Flow {
        self.family.flow()
    }

    /// Writes what the program executes to a file from now on, if that is recorded. Errors name it by its path.
    pub fn trace_to(
        &self,
        file: std::fs::File,
        path: &std::path::Path,
        notes: &[(String, String)],
    ) -> Result<Tracer> {
        Tracer::begin(self.family.clone(), file, path, notes)
    }

    /// The worker that holds the program, for the caller to let it go.
    pub(crate) fn take_worker(&self) -> Option<Worker<Stopped>> {
        self.hold.lock().ok().and_then(|mut hold| hold.take())
    }

    /// Waits until the program, which goes in step, has come to its next block; `None` if it has ended.
    pub fn arrival(&self) -> Option<Arrival> {
        loop {
            let mut found = None;
            self.family.each(|control| {
                if control.step.turn.load(Acquire) == turn::HOST {
                    let values = control.step.registers.each_ref().map(|place| place.load(Relaxed));
                    let [general @ .., rip, rflags] = values;
                    let registers = CloneRegisters { general, rip, rflags };
                    let is_onward = control.step.is_onward.load(Relaxed) != 0;
                    found = Some(Arrival { registers, is_onward });
                } else {
                    futex::wait_for(&control.step.turn, turn::PROGRAM);
                }
            });
            let has_ended =
                || crate::process::proc::stat(self.pid).map_or(true, |stat| stat.state == 'Z');
            if found.is_some() || has_ended() {
                return found;
            }
        }
    }

    /// Lets the program, which goes in step, execute a block.
    pub fn go_on(&self) {
        self.family.each(|control| {
            control.step.turn.store(turn::PROGRAM, Release);
            futex::wake(&control.step.turn);
        });
    }

    /// Takes over a running process: all its threads go on in the clone.
    pub fn attach(pid: Tid, options: CloneOptions) -> Result<Self> {
        let _turn = approach(pid)?;
        let family = Arc::new(Family::new(options));
        let programs = family.clone();
        Worker::<Stopped>::new().run(move |stopped| {
            *stopped = release::stop_at_home(pid, |_, _, _| Ok(false))?;
            refuse_others(pid)?;
            let outcome = bring_in(&programs, stopped).map(drop);
            stopped.release();
            outcome
        })?;
        Ok(Self { pid, family, hold: Mutex::new(None), maker: Maker::this() })
    }

    /// Gives all threads of all its processes back to the program's own code, and takes everything out
    /// that the engine has made.
    pub fn release(&self) -> Result<()> {
        self.maker.check()?;
        self.family.release()
    }

    /// Keeps what was translated for the next time, if that is wanted, and waits until that is done. Returns why
    /// something could not be kept.
    pub fn keep(&self) -> Option<&str> {
        if self.maker.is_here() { self.family.keep() } else { None }
    }

    /// The process that it belongs to.
    pub fn maker(&self) -> Maker {
        self.maker
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// The programs that have come of it.
    pub(crate) fn family(&self) -> Arc<Family> {
        self.family.clone()
    }

    /// Answers its processes no more: what they execute from now on runs natively.
    pub fn leave(&self) {
        if self.maker.is_here() {
            self.family.leave();
        }
    }

    /// The files in which the engine has said what went wrong in it.
    pub fn reports(&self) -> Vec<PathBuf> {
        self.family.reports()
    }

    /// What the engine has counted so far, in all processes that it is in, each with its name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.family.stats()
    }

    /// What is missing from what is known of the program, and of those that have come of it.
    pub fn losses(&self) -> Losses {
        self.family.losses()
    }

    /// The same at the end of it all: with processes that the first one has left behind.
    pub fn last_losses(&self) -> Losses {
        self.family.last_losses()
    }
}

impl Drop for Cloned {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Cloned {
    /// A program of a family that nothing holds.
    pub(super) fn of_family(pid: Tid, family: Arc<Family>) -> Self {
        Self { pid, family, hold: Mutex::new(None), maker: Maker::this() }
    }
}
