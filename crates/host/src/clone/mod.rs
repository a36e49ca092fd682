//! Programs that run from a clone of their code: the engine (`crates/agent`) is brought in before their
//! first instruction, and again whenever they become another program.
//!
//! Nothing holds the program while it runs. A thread that is about to call `execve` asks, through memory
//! that it shares with weft, to be held for the moment: see [`attend`].

mod attend;
mod inject;

use crate::launch::{self, Launch};
use crate::proc::Tid;
use crate::stopped::Stopped;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};
use attend::Family;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::CloneStats;

/// How a program is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneOptions {
    /// How many bytes of clone a process may have.
    pub cache_size: u64,
    /// Whether changes of code are looked for; without it, programs that make code go wrong.
    pub sees_changes: bool,
    /// Whether other programs that it becomes, or starts, are cloned as well.
    pub follows: bool,
}

impl Default for CloneOptions {
    fn default() -> Self {
        Self { cache_size: 256 << 20, sees_changes: true, follows: true }
    }
}

/// A program that runs from a clone.
#[derive(Debug)]
pub struct Cloned {
    pid: Tid,
    family: Arc<Family>,
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
            let pid = child.id() as Tid;
            match kin.bring_in(pid) {
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
        Ok((Self { pid: child.id() as Tid, family }, child))
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Answers its processes no more: what they execute from now on runs natively.
    pub fn leave(&self) {
        self.family.leave();
    }

    /// What went wrong in the engine, in the words of each process that it failed in.
    pub fn reports(&self) -> Vec<String> {
        let mut reports = Vec::new();
        self.family.each(|control| {
            let length = control.report_length.load(Acquire) as usize;
            let text = &control.report[..length.min(control.report.len())];
            if !text.is_empty() {
                reports.push(String::from_utf8_lossy(text).into_owned());
            }
        });
        reports
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

/// The processor's counter of cycles.
pub fn cycles() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

fn named(stats: &CloneStats) -> [(&'static str, u64); 13] {
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    [
        ("blocks", value(&stats.blocks)),
        ("bytes", value(&stats.bytes)),
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
