//! The stacks of a process: copied while its threads stand still, unwound when they run again.
//!
//! What is needed of a thread's memory is known only while it is unwound. So a first copy has the top of each stack;
//! where that is not enough, because a stack is deep, or a signal handler runs on another one, all threads are stopped and
//! copied once more, with what was missing.
//!
//! A process may run from a clone: then the registers of its threads are those of the clone, or of weft's engine, and the
//! program's are found from outside.

mod capture;
mod code;
mod engine;
mod python;
pub mod rules;
#[cfg(test)]
mod rules_tests;
mod stack;
mod tables;
mod unwind;

use crate::base::worker::Worker;
use crate::process::modules;
use crate::process::proc::Tid;
use crate::process::stopped::{Pause, Stopped};
use crate::process::turn::Turn;
use crate::{Result, TargetAddr};
use capture::capture;
use engine::Cloning;
use std::collections::BTreeMap;
use unwind::Unwinding;

pub use python::{PythonCode, PythonFrame, PythonLayout, PythonStacks};
pub use stack::{Frame, FrameKind, Stack};

/// How many bytes above a stack pointer are copied at first.
const TOP: u64 = 32 << 10;
/// How often threads are stopped at most.
const ROUNDS: usize = 5;
/// By how much what a round copies is longer than in the one before, where that was not enough.
const GROWTH: u64 = 4;

/// The stacks of a process at one moment.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// One for each thread, by its id.
    pub threads: Vec<Stack>,
    /// How long it stood still for it, each time.
    pub pauses: Vec<Pause>,
    /// The frames of an interpreter of Python, if there is one.
    pub python: Option<PythonStacks>,
}

/// Reads the stacks of a process, with those of the interpreter of Python that is in it.
pub fn stacks(pid: Tid, python: Option<PythonLayout>) -> Result<Stacks> {
    let unwinding = Unwinding::new(pid, &modules::modules(pid)?);
    let _turn = Turn::take(pid)?;
    // Nobody brings it into a clone, or out of one, from here on.
    let cloning = Cloning::of(pid)?;
    let worker = Worker::<Stopped>::new();
    let mut wanted: BTreeMap<Tid, Vec<(TargetAddr, u64)>> = BTreeMap::new();
    let mut pauses = Vec::new();
    let mut length = TOP;
    loop {
        let (pieces, cloning) = (wanted.clone(), cloning.clone());
        let captured = worker
            .run(move |stopped| capture(stopped, pid, TOP, &pieces, python.as_ref(), &cloning))?;
        pauses.push(captured.pause);
        length *= GROWTH;
        let is_last = pauses.len() == ROUNDS;
        let mut threads = Vec::new();
        let mut is_enough = true;
        for thread in &captured.threads {
            let (stack, missing) = unwinding.unwind(thread);
            if let Some(at) = missing.filter(|_| !is_last) {
                is_enough = false;
                wanted.entry(thread.tid).or_default().push((at, length));
            }
            threads.push(stack);
        }
        if is_enough {
            return Ok(Stacks { threads, pauses, python: captured.python });
        }
    }
}

/// Unwinds states that are told, instead of those that threads are stopped in: what stacks that were taken elsewhere are
/// compared with. The process must stand still meanwhile.
pub struct StateUnwinder {
    pid: Tid,
    unwinding: Unwinding,
}

impl StateUnwinder {
    /// For a process and its modules as they are now.
    pub fn new(pid: Tid) -> Result<Self> {
        Ok(Self { pid, unwinding: Unwinding::new(pid, &modules::modules(pid)?) })
    }

    /// The calls that a thread is in with this instruction, stack and frame pointer.
    pub fn stack(&self, pc: u64, sp: u64, bp: u64) -> Stack {
        let mut state = capture::Captured { pc, sp, bp: Some(bp), ..Default::default() };
        let mut wanted = vec![(TargetAddr(sp), TOP)];
        loop {
            state.copy(self.pid, TOP, &wanted);
            let (stack, missing) = self.unwinding.unwind(&state);
            match missing {
                Some(at) if wanted.len() < 64 => wanted.push((at, TOP)),
                _ => return stack,
            }
        }
    }
}
