//! Threads that weft traces without having stopped them: what becomes of them while code is being changed.

use super::{
    Limit, NAP, PATIENCE, Stopped, before_breakpoint, in_the_kernel, seize_with, settle_stop,
};
use crate::arch::copies_memory;
use crate::process::proc::{self, Tid};
use crate::process::ptrace::{self, Event};
use crate::process::{memory, status};
use crate::{Result, TargetAddr};
use std::time::Instant;

impl Stopped {
    /// Traces the spared threads without waking them. One that wakes while code is being changed and
    /// runs into a breakpoint of weft's then waits for weft, and what it starts is traced from its
    /// first instruction on. Returns whether there is any.
    pub fn guard(&mut self) -> Result<bool> {
        let births =
            libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
        for tid in std::mem::take(&mut self.spared) {
            // Where weft traces it since an earlier change, it must not be woken for this one.
            if is_traced_by_us(tid)
                || seize_with(self.pid, tid, libc::PTRACE_O_TRACESYSGOOD | births)?
            {
                self.guarded.push(tid);
            }
        }
        // One that has woken before it was traced may be about to fork, and weft would not hear of that.
        self.stop_awake(|_| false)?;
        Ok(!self.guarded.is_empty())
    }

    /// Notes which other processes are held. One that a guarded thread has started may have been found
    /// in a listing before the event of its fork arrived: then it is not newborn.
    pub fn note_others(&mut self, others: &[Tid]) {
        self.others = others.to_vec();
    }

    /// Stops the guarded threads that no longer sleep. One that has run into a breakpoint for which
    /// `is_ours` holds is put back before it.
    pub fn stop_awake(&mut self, is_ours: impl Fn(TargetAddr) -> bool) -> Result<()> {
        let mut limit = Limit::new(PATIENCE);
        loop {
            let mut asleep = Vec::new();
            let mut awake = Vec::new();
            for tid in std::mem::take(&mut self.guarded) {
                if is_asleep(tid) { &mut asleep } else { &mut awake }.push(tid);
            }
            self.guarded = asleep;
            if awake.is_empty() {
                return Ok(());
            }
            for tid in awake {
                // It may have stopped by itself, or be gone; the next wait reports it.
                let _ = ptrace::interrupt(tid);
                loop {
                    match ptrace::poll(tid).map_err(|e| ptrace::failed("wait for", tid, &e))? {
                        None if limit.is_reached(&[tid]) => {
                            self.unstoppable.extend(in_the_kernel(self.pid, &[tid])?);
                            break;
                        }
                        None => std::thread::sleep(NAP),
                        Some(Event::Stop(_)) => {
                            // Stopped on its way from a breakpoint: the signal is yet to come.
                            if before_breakpoint(tid, &is_ours).is_some()
                                && proc::is_about_to_get(tid, &[libc::SIGTRAP])
                            {
                                let _ = ptrace::resume(tid, 0);
                                continue;
                            }
                            self.admit_any(tid)?;
                            break;
                        }
                        Some(Event::Gone) => break,
                        Some(Event::Signal(signal)) => {
                            if signal == libc::SIGTRAP
                                && let Some(before) = before_breakpoint(tid, &is_ours)
                            {
                                let _ = ptrace::set_registers(tid, &before);
                                self.admit_any(tid)?;
                                break;
                            }
                            let _ = ptrace::resume_asked(tid, signal);
                        }
                        Some(Event::Other(
                            libc::PTRACE_EVENT_CLONE
                            | libc::PTRACE_EVENT_FORK
                            | libc::PTRACE_EVENT_VFORK,
                        )) => {
                            if let Ok(born) = ptrace::event_message(tid) {
                                self.receive(born as Tid, limit.deadline)?;
                            }
                            // It stands still there as well as anywhere. Its way out of the kernel may
                            // be long: that of a `vfork` goes past the child, which is stopped.
                            self.admit_any(tid)?;
                            break;
                        }
                        Some(Event::SystemCall | Event::Exec | Event::Other(_)) => {
                            let _ = ptrace::resume_asked(tid, 0);
                        }
                    }
                }
            }
        }
    }

    /// Takes note of what a guarded thread has started: it stops before its first instruction.
    fn receive(&mut self, born: Tid, deadline: Instant) -> Result<()> {
        if self.others.contains(&born) {
            return Ok(());
        }
        loop {
            match ptrace::poll(born).map_err(|e| ptrace::failed("wait for", born, &e))? {
                None if Instant::now() > deadline => {
                    return in_the_kernel(self.pid, &[born]).map(drop);
                }
                None => std::thread::sleep(NAP),
                Some(Event::Gone) => return Ok(()),
                Some(_) => return self.admit_any(born),
            }
        }
    }

    /// Takes note of a stopped thread of this process, or of a process that one has started.
    fn admit_any(&mut self, tid: Tid) -> Result<()> {
        if std::path::Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists() {
            self.admit(tid)
        } else {
            self.newborn.push(tid);
            Ok(())
        }
    }

    /// The processes that were started while code was being changed.
    pub fn newborn(&self) -> &[Tid] {
        &self.newborn
    }

    /// Hands them over, still stopped.
    pub fn take_newborn(&mut self) -> Vec<Self> {
        std::mem::take(&mut self.newborn).into_iter().filter_map(Self::adopt_newborn).collect()
    }

    /// Forgets one of them, which the caller takes over. Returns whether it was one.
    pub fn disown(&mut self, child: Tid) -> bool {
        let before = self.newborn.len();
        self.newborn.retain(|&born| born != child);
        self.newborn.len() < before
    }

    /// Takes note of a process that stands before its first instruction, unless it was killed.
    pub fn adopt_newborn(pid: Tid) -> Option<Self> {
        Some(Self::adopt(pid, settle_stop(pid)?))
    }
}

/// Whether a traced thread sleeps in the kernel, and will be seen when it comes out.
fn is_asleep(tid: Tid) -> bool {
    // One that is stopped on its way through the kernel looks like one that sleeps there: by the event
    // of a fork, say. And one that is about to fork may have copied the code already.
    proc::sleeping_call(tid).is_some_and(|call| !copies_memory(&call, |at| memory::word(tid, at)))
        && proc::stat(tid).is_ok_and(|stat| stat.state != 't')
}

/// Whether this thread of weft's traces a thread.
fn is_traced_by_us(tid: Tid) -> bool {
    // SAFETY: a plain question.
    status::tracer(tid) == Some(unsafe { libc::gettid() })
}
