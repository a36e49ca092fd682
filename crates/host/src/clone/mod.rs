//! Programs that run from a clone of their code: the engine (`crates/agent`) is brought in before their
//! first instruction or while they run, and again whenever they become another program.
//!
//! Nothing holds the program while it runs. A thread that is about to call `execve` asks, through memory
//! that it shares with weft, to be held for the moment: see [`attend`].

mod attend;
mod flow;
mod grip;
mod inject;
mod recording;
mod release;
mod trace;
mod visit;
mod weave;

use crate::agent::is_wefts;
use crate::launch::{self, Launch};
use crate::proc::{self, Tid};
use crate::stopped::Stopped;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result, checks};
pub(crate) use attend::Family;
pub use flow::{EdgeCount, EdgeKind, Flow, FlowBlock, FlowModule, Located};
pub use grip::Grip;
pub(crate) use inject::is_control;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
pub use trace::Tracer;
pub use weave::while_held;
use weft_abi::{CloneRegisters, CloneStats, turn};

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
                Ok(()) => Ok(child),
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
        Ok((Self { pid: child.id() as Tid, family, hold: Mutex::new(None) }, child))
    }

    /// Takes over a process that is held, and stays so until it is measured.
    pub(crate) fn take_over(
        pid: Tid,
        hold: Worker<Stopped>,
        options: CloneOptions,
    ) -> Result<Self> {
        let family = Arc::new(Family::new(options));
        let kin = family.clone();
        hold.run(move |stopped| kin.bring_in(stopped))?;
        Ok(Self { pid, family, hold: Mutex::new(Some(hold)) })
    }

    /// What has been executed so far, as far as that is recorded. Nothing stands still for it.
    pub fn flow(&self) -> Flow {
        self.family.flow()
    }

    /// Writes what the program executes to a file from now on, if that is recorded.
    pub fn trace_to(&self, path: &std::path::Path, notes: &[(String, String)]) -> Result<Tracer> {
        Tracer::begin(self.family.clone(), path, notes)
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
        checks::preflight(pid)?;
        let family = Arc::new(Family::new(options));
        let kin = family.clone();
        Worker::<Stopped>::new().run(move |stopped| {
            *stopped = release::stop(pid)?;
            refuse_others(pid)?;
            let outcome = kin.bring_in(stopped);
            stopped.release();
            outcome
        })?;
        Ok(Self { pid, family, hold: Mutex::new(None) })
    }

    /// Gives all threads of all its processes back to the program's own code, and takes everything out
    /// that the engine has made.
    pub fn release(&self) -> Result<()> {
        self.family.release()
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
        self.family.leave();
    }

    /// The files in which the engine has said what went wrong in it.
    pub fn reports(&self) -> Vec<PathBuf> {
        self.family.reports()
    }

    /// What the engine has counted so far, in all processes that it is in, each with its name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        self.family.each(|control| {
            for (index, (name, value)) in named(&control.stats).into_iter().enumerate() {
                match sums.get_mut(index) {
                    Some(sum) => sum.1 += value,
                    None => sums.push((name, value)),
                }
            }
        });
        sums
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
    if !maps.iter().any(|mapping| is_wefts(mapping) || is_control(mapping)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AlreadyTraced, format!("another weft is in process {pid}"))
        .why("the program runs from a clone already, or has probes in it")
        .advice("end that one first"))
}

/// The processor's counter of cycles.
pub fn cycles() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

fn named(stats: &CloneStats) -> [(&'static str, u64); 14] {
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    [
        ("blocks", value(&stats.blocks)),
        ("bytes", value(&stats.bytes)),
        ("record_bytes", value(&stats.record_bytes)),
        ("links", value(&stats.links)),
        ("lookups", value(&stats.lookups)),
        ("misses", value(&stats.misses)),
        ("protection_faults", value(&stats.protection_faults)),
        ("flushes", value(&stats.flushes)),
        ("agent_entries", value(&stats.agent_entries)),
        ("signals", value(&stats.signals)),
        ("system_calls", value(&stats.system_calls)),
        ("agent_cycles", value(&stats.agent_cycles)),
        ("threads", value(&stats.threads)),
        ("forks", value(&stats.forks)),
    ]
}

/// Something that cannot be done with the engine.
fn failed(what: &str, why: impl ToString) -> Error {
    Error::new(ErrorKind::Internal, what).why(why.to_string())
}
