//! Sending a stopped thread on a trip, and meeting it on its return.
//!
//! Between any two lines of this file weft may be killed. The order of the calls is made for that:
//! whatever the kernel finds when it lets the thread go, the thread gets home by itself.

use crate::arch::instructions::CPUID;
use crate::arch::{Registers, Step, Trip, assemble_trip};
use crate::process::memory;
use crate::process::proc::Tid;
use crate::process::ptrace::{self, CallSide, Event};
use crate::process::stopped::Stopped;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::path::Path;

const ALL_SIGNALS: u64 = u64::MAX;

/// Assembles a trip.
pub fn plan(at: TargetAddr, steps: &[Step]) -> Result<Trip> {
    assemble_trip(at, steps).map_err(|e| {
        Error::new(ErrorKind::Internal, "a trip cannot be assembled").why(e.to_string())
    })
}

/// What a system call on a trip came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The call's number.
    pub number: i64,
    /// What the kernel returned: negative for an error.
    pub value: i64,
}

/// A stopped thread about to travel, with everything that it must come back with.
#[derive(Debug)]
pub struct Traveller {
    tid: Tid,
    home: Registers,
    mask: u64,
}

impl Traveller {
    /// Prepares one of the stopped threads.
    pub fn new(stopped: &Stopped, tid: Tid) -> Result<Self> {
        let &home = stopped.threads().get(&tid).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("thread {tid} is not stopped"))
        })?;
        let mask = ptrace::signal_mask(tid)
            .map_err(|e| ptrace::failed("read the signal mask of", tid, &e))?;
        Ok(Self { tid, home, mask })
    }

    /// The thread.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The thread's registers, as it will have them again.
    pub fn home(&self) -> &Registers {
        &self.home
    }

    /// The bytes of a trip for this thread.
    pub fn pack(&self, trip: &Trip) -> Vec<u8> {
        trip.packed_for(&self.home, self.mask)
    }

    /// Sends the thread on a trip, which must be in place, and brings it back.
    pub fn travel(
        &self,
        trip: &Trip,
        before: impl FnMut(i64, &[Outcome]) -> Result<()>,
    ) -> Result<Vec<Outcome>> {
        self.depart(trip)?;
        self.arrive(trip, before)
    }

    /// Sends the thread on a trip.
    pub fn depart(&self, trip: &Trip) -> Result<()> {
        // Registers first: with the mask first, a thread that is let go in between would block all
        // signals until its exit.
        self.step("send", ptrace::set_registers(self.tid, &self.home.at(trip.start)))?;
        self.step("send", ptrace::set_signal_mask(self.tid, ALL_SIGNALS))?;
        self.step("send", ptrace::resume_to_call(self.tid, 0))
    }

    /// Follows the thread on its trip until it is back: stopped, and with all it had. Returns what the
    /// system calls on the way came to; before each, `before` is given its number and what came
    /// earlier.
    pub fn arrive(
        &self,
        trip: &Trip,
        mut before: impl FnMut(i64, &[Outcome]) -> Result<()>,
    ) -> Result<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut underway = 0;
        let mut verdict = Ok(());
        loop {
            match self.wait()? {
                Event::SystemCall => {
                    let side = ptrace::call_side(self.tid)
                        .map_err(|e| ptrace::failed("follow", self.tid, &e))?;
                    match side {
                        CallSide::Entry(after, _) if after == trip.farewell => break,
                        CallSide::Entry(_, number) => {
                            underway = number as i64;
                            // A failure of ours does not strand the thread: it finishes its trip.
                            verdict = verdict.and_then(|()| before(underway, &outcomes));
                        }
                        CallSide::Exit(value) => {
                            outcomes.push(Outcome { number: underway, value });
                        }
                        CallSide::Neither => {}
                    }
                    self.step("send", ptrace::resume_to_call(self.tid, 0))?;
                }
                Event::Signal(signal) if is_fault(signal) => {
                    return Err(self.rescue(signal, &outcomes));
                }
                Event::Signal(signal) => {
                    self.step("send", ptrace::resume_to_call(self.tid, signal))?;
                }
                Event::Stop(_) | Event::Exec | Event::Other(_) => {
                    self.step("send", ptrace::resume_to_call(self.tid, 0))?;
                }
                Event::Gone => return Err(self.gone()),
            }
        }
        self.come_home()?;
        verdict.map(|()| outcomes)
    }

    /// From the entry of the farewell: lets the thread take its signal mask back and stop again before
    /// it does anything else; no signal is handled on the way, since the kernel looks for stops first.
    /// There, and not at the farewell's own stops, the kernel restarts interrupted calls.
    fn come_home(&self) -> Result<()> {
        self.step("bring home", ptrace::interrupt(self.tid))?;
        self.step("bring home", ptrace::resume(self.tid, 0))?;
        loop {
            match self.wait()? {
                Event::Stop(_) => break,
                Event::Gone => return Err(self.gone()),
                Event::Signal(signal) => {
                    self.step("bring home", ptrace::resume(self.tid, signal))?;
                }
                _ => self.step("bring home", ptrace::resume(self.tid, 0))?,
            }
        }
        self.step("bring home", ptrace::set_registers(self.tid, &self.home))
    }

    /// Takes a thread home that fell on its way. It must not happen where weft can know beforehand; if it does, the
    /// target must not suffer for it.
    fn rescue(&self, signal: i32, outcomes: &[Outcome]) -> Error {
        let place = ptrace::registers(self.tid).map(|r| r.instruction()).unwrap_or_default();
        let cause = (signal == libc::SIGSEGV).then(|| self.cause(place, outcomes)).flatten();
        let saved = ptrace::set_registers(self.tid, &self.home)
            .and_then(|()| ptrace::set_signal_mask(self.tid, self.mask));
        let rescued = if saved.is_ok() { "was put back unharmed" } else { "could not be put back" };
        match cause {
            Some(cause) if saved.is_ok() => cause,
            _ => Error::new(ErrorKind::Internal, format!("thread {} fell on a trip", self.tid))
                .why(format!("signal {signal} at {place:?}; the thread {rescued}")),
        }
    }

    /// What the program has forbidden itself, as far as that is why a thread fell. Nobody can ask the kernel for
    /// either in another process.
    fn cause(&self, place: TargetAddr, outcomes: &[Outcome]) -> Option<Error> {
        let refused = |outcome: &&Outcome| {
            outcome.number == libc::SYS_mprotect && outcome.value == -i64::from(libc::EACCES)
        };
        if outcomes.iter().any(|outcome| refused(&outcome)) {
            let is_selinux = Path::new("/sys/fs/selinux/enforce").exists();
            let or_selinux = if is_selinux { ", or SELinux forbids it (execmem)" } else { "" };
            let what = format!("thread {} may not make memory executable", self.tid);
            return Some(
                Error::new(ErrorKind::UnsupportedTarget, what)
                    .why(format!(
                        "its program has given that up (prctl PR_SET_MDWE, in systemd MemoryDenyWriteExecute=yes)\
                         {or_selinux}"
                    ))
                    .advice("measure it without the clone: --weaver patch; or start it without that"),
            );
        }
        let instruction = memory::read(self.tid, place, CPUID.len()).ok()?;
        (instruction == CPUID).then(|| {
            let what = format!("thread {} may not ask what its processor can", self.tid);
            Error::new(ErrorKind::UnsupportedTarget, what)
                .why("its program has made cpuid a fault (arch_prctl ARCH_SET_CPUID), as rr does")
                .advice("measure it in the clone, which does not ask: --weaver clone")
        })
    }

    /// A thread on a trip is on its way to its next stop, and nothing on that way takes long.
    fn wait(&self) -> Result<Event> {
        ptrace::wait(self.tid).map_err(|e| ptrace::failed("wait for", self.tid, &e))
    }

    fn step(&self, what: &str, result: std::io::Result<()>) -> Result<()> {
        result.map_err(|e| ptrace::failed(what, self.tid, &e))
    }

    fn gone(&self) -> Error {
        Error::new(ErrorKind::TargetGone, format!("thread {} ended", self.tid))
            .why("it was killed while weft held it")
    }
}

fn is_fault(signal: i32) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP)
}
