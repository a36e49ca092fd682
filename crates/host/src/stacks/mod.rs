//! The stacks of a process: read where its threads sleep, copied while those that run stand still, unwound when they run
//! again.
//!
//! What is needed of a thread's memory is known only while it is unwound. So a first copy has the top of each stack;
//! where that is not enough, because a stack is deep, or a signal handler runs on another one, it is copied once more, with
//! what was missing.
//!
//! A process may run from a clone: then the registers of its threads are those of the clone, or of weft's engine, and the
//! program's are found from outside.

mod capture;
mod clock;
mod code;
mod engine;
mod python;
pub mod rules;
#[cfg(test)]
mod rules_tests;
mod sampler;
mod stack;
mod tables;
mod unwind;
mod watched;

use crate::process::modules;
use crate::process::proc::Tid;
use crate::process::stopped::Pause;
use crate::{Result, TargetAddr};
use unwind::Unwinding;

pub use python::{PythonCode, PythonFrame, PythonLayout, PythonStacks};
pub use sampler::{Look, Sampler, SeenStack};
pub use stack::{Frame, FrameKind, Stack};
pub use watched::{Sample, Times};

/// How many bytes above a stack pointer are copied at first.
const TOP: u64 = 32 << 10;

/// The stacks of a process at one moment.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// One for each thread, by its id.
    pub threads: Vec<Stack>,
    /// How long threads that run stood still for it, each time.
    pub pauses: Vec<Pause>,
    /// How many system calls may have come back with less than they were asked for, as their threads were stopped.
    pub shortened: usize,
    /// The frames of an interpreter of Python, if there is one, by the ids that threads have outside.
    pub python: Option<PythonStacks>,
}

/// Reads the stacks of a process, with those of the interpreter of Python that is in it.
pub fn stacks(pid: Tid, python: Option<PythonLayout>) -> Result<Stacks> {
    Sampler::thorough(pid, python)?.stacks()
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
