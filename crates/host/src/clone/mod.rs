//! Programs that run from a clone of their code: the engine (`crates/agent`) is brought in before their
//! first instruction or while they run, and again whenever they become another program.
//!
//! Nothing holds the program while it runs. A thread that is about to call `execve` asks, through memory
//! that it shares with weft, to be held for the moment: see [`attend`].

mod attend;
mod family;
mod flow;
mod grip;
mod inject;
mod losses;
mod members;
mod reclaim;
mod recording;
mod release;
mod tables;
mod trace;
mod visit;
mod weave;

use crate::agent::is_wefts;
use crate::launch::{self, Launch};
use crate::leftovers::{Named, abandoned, abandoned_probes, living_owner};
use crate::proc::{self, Tid};
use crate::stopped::Stopped;
use crate::target::{Target, refuse_clone};
use crate::turn::Turn;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Maker, Result, checks};
pub(crate) use family::Family;
pub use flow::{EdgeCount, EdgeKind, Flow, FlowBlock, FlowModule, Located};
pub use grip::Grip;
pub use losses::Losses;
pub(crate) use reclaim::{find, reclaim};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
pub use trace::Tracer;
pub use weave::while_held;
use weft_abi::{CloneRegisters, turn};

/// How a program is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneOptions {
    /// How many bytes of clone a process may have.
    pub cache_size: u64,
    /// Whether changes of code are looked for; without it, programs that make code go wrong.
    pub sees_changes: bool,
    /// Whether other programs that it becomes, or starts, are cloned as well.
    pub follows: bool,
    /// Whether the program waits after each block: see [`Cloned::arrival`].
    pub in_step: bool,
    /// What is recorded of what it executes.
    pub records: Records,
}

/// What is recorded of what a program executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// Nothing.
    #[default]
    Nothing,
    /// Which blocks and edges are executed.
    Hits,
    /// How often: by counters from which all others follow.
    Counts,
    /// How often each block is executed, by a counter in each: to hold the others against.
    EveryBlock,
    /// All of it, in order, with what addresses depend on: see [`Cloned::trace_to`].
    Trace,
    /// The same, and with what is read and written.
    TraceValues,
}

/// Where a program is that waits after each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// What it has there.
    pub registers: CloneRegisters,
    /// Whether the block before was left at its end, not by a branch.
    pub is_onward: bool,
}

impl Default for CloneOptions {
    fn default() -> Self {
        Self {
            cache_size: 256 << 20,
            sees_changes: true,
            follows: true,
            in_step: false,
            records: Records::Nothing,
        }
    }
}

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
        let kin = family.clone();
        let started = hold.run(move |stopped| {
            let (mut child, held) = launch::launch(launch)?;
            *stopped = held;
            match kin.bring_in(stopped) {
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
        let kin = family.clone();
        hold.run(move |stopped| kin.bring_in(stopped).map(drop))?;
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

    /// The program, for a debugger that is to join it.
    pub fn grip(&self) -> Result<Grip> {
        let (pid, family) = (self.pid, self.family.clone());
        let presence = family.presence(pid).ok_or_else(|| weave::gone(pid))?;
        Ok(Grip { pid, family, presence })
    }

    /// What holds the program, for who lets it go.
    pub(crate) fn take_hold(&self) -> Option<Worker<Stopped>> {
        self.hold.lock().ok().and_then(|mut hold| hold.take())
    }

    /// Waits until the program, which goes in step, has come to its next block; nothing if it has ended.
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
                    attend::wait_for(&control.step.turn, turn::PROGRAM);
                }
            });
            let has_ended = || crate::proc::stat(self.pid).map_or(true, |stat| stat.state == 'Z');
            if found.is_some() || has_ended() {
                return found;
            }
        }
    }

    /// Lets the program, which goes in step, execute a block.
    pub fn go_on(&self) {
        self.family.each(|control| {
            control.step.turn.store(turn::PROGRAM, Release);
            attend::wake(&control.step.turn);
        });
    }

    /// Takes over a running process: all its threads go on in the clone.
    pub fn attach(pid: Tid, options: CloneOptions) -> Result<Self> {
        let _turn = approach(pid)?;
        let family = Arc::new(Family::new(options));
        let kin = family.clone();
        Worker::<Stopped>::new().run(move |stopped| {
            *stopped = release::stop_at_home(pid, |_| Ok(Vec::new()))?;
            refuse_others(pid)?;
            let outcome = kin.bring_in(stopped).map(drop);
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

/// Fails if another weft is in a process: of two, neither would know what the other does.
fn refuse_others(pid: Tid) -> Result<()> {
    let maps = proc::maps(pid)?;
    refuse_clone(pid, &maps)?;
    if !maps.iter().any(is_wefts) {
        return Ok(());
    }
    let owner = living_owner(pid, &maps).unwrap_or(Named::Unknown);
    Err(Error::new(ErrorKind::AlreadyTraced, format!("another weft is in process {pid}"))
        .why(format!("{} measures it by probes in its code", owner.whose()))
        .advice("end that one first, or measure without the clone: --weaver patch"))
}

/// Makes sure that a running process can be taken over, and keeps other wefts from it meanwhile.
fn approach(pid: Tid) -> Result<Turn> {
    reclaim(pid)?;
    clear_leftovers(pid)?;
    // Before the checks: one of them is whether somebody traces it.
    let turn = Turn::take(pid);
    checks::preflight(pid)?;
    // One that another weft has is not stopped for nothing.
    refuse_others(pid)?;
    turn
}

/// Takes out of a process what wefts have left in it that were killed.
fn clear_leftovers(pid: Tid) -> Result<()> {
    // What the process is, and whether it can be attached to, is for others to say.
    let Ok(maps) = proc::maps(pid) else { return Ok(()) };
    let has_leftovers =
        !abandoned(pid, &maps).is_empty() || !abandoned_probes(pid, &maps).is_empty();
    if has_leftovers && living_owner(pid, &maps).is_none() {
        Target::attach(pid)?.detach()?;
    }
    Ok(())
}

/// The processor's counter of cycles.
pub fn cycles() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Something that cannot be done with the engine.
fn failed(what: &str, why: impl ToString) -> Error {
    Error::new(ErrorKind::Internal, what).why(why.to_string())
}
