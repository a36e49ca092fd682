//! What the kernel and the engine report of threads, and what the debugger hears of it.

use super::in_call;
use super::kernel::let_go;
use super::points::Points;
use super::signal::{is_asking, is_fault, number};
use super::state::Session;
use super::thread::{Place, Thread, read_halt};
use crate::debuggee::{Motion, Resumption, Stop};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use weft_abi::halt::{EARLY, reason};
use weft_host::proc::{self, Tid};
use weft_host::{Result, TargetAddr, ptrace};

/// What the kernel stops a thread with that comes to a system call, if it is asked to.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

impl Session {
    /// What a thread that was waited for has done. Nothing if it goes on, or if it stands still because it was asked
    /// to.
    pub(super) fn look(&mut self, tid: Tid, status: i32) -> Result<Option<Stop>> {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Ok(self.gone(tid, status));
        }
        if self.forks.is_stranger(tid) {
            self.forks.part_from(tid);
            return Ok(None);
        }
        let signal = libc::WSTOPSIG(status);
        if status >> 16 != libc::PTRACE_EVENT_STOP {
            self.is_not_stopped(tid, status);
        }
        match status >> 16 {
            0 => return self.signalled(tid, signal),
            libc::PTRACE_EVENT_CLONE => {
                if let Ok(child) = ptrace::event_message(tid) {
                    self.threads.entry(child as Tid).or_insert_with(Thread::new);
                }
            }
            libc::PTRACE_EVENT_FORK => return self.forked(tid, false),
            libc::PTRACE_EVENT_VFORK => return self.forked(tid, true),
            libc::PTRACE_EVENT_VFORK_DONE => return self.vfork_done(tid),
            libc::PTRACE_EVENT_EXEC => return self.executed(),
            libc::PTRACE_EVENT_STOP if !self.threads.contains_key(&tid) => {
                // It stopped before its clone event was reported.
                if proc::threads(self.hold.pid())?.contains(&tid) {
                    self.threads.insert(tid, Thread::new());
                } else {
                    self.forks.part_from(tid);
                    return Ok(None);
                }
            }
            libc::PTRACE_EVENT_STOP => return self.stopped(tid),
            _ => {}
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_resuming = false;
        }
        let_go(tid, 0);
        Ok(None)
    }

    pub(super) fn gone(&mut self, tid: Tid, status: i32) -> Option<Stop> {
        self.threads.remove(&tid);
        self.forks.forget(tid);
        if tid != self.hold.pid() {
            if self.first.load(Relaxed) == tid {
                let other = self.threads.keys().next().copied().unwrap_or(self.hold.pid());
                self.first.store(other, Relaxed);
            }
            return None;
        }
        self.threads.clear();
        let stop = match libc::WIFEXITED(status) {
            true => Stop::Exited(libc::WEXITSTATUS(status)),
            false => Stop::Killed(libc::WTERMSIG(status) as u8),
        };
        self.end = Some(stop);
        Some(stop)
    }

    /// The process has become another program: of its threads there is one.
    pub(super) fn executed(&mut self) -> Result<Option<Stop>> {
        self.threads.clear();
        self.pending.clear();
        self.points = Points::default();
        let Some(threads) = self.hold.follow()? else { return Ok(None) };
        self.meet(threads)?;
        self.has_executed();
        Ok(Some(Stop::Exec(self.hold.pid())))
    }

    /// A thread is on its way to handle a signal.
    pub(super) fn signalled(&mut self, tid: Tid, signal: i32) -> Result<Option<Stop>> {
        let failed = |e: std::io::Error| ptrace::failed("look at", tid, &e);
        let registers = ptrace::registers(tid).map_err(failed)?;
        if signal == CALL_STOP {
            self.came_to_call(tid, &registers);
            return Ok(None);
        }
        let debug = self.hold.debug();
        let is_debugged = registers.0.rip == debug.trap.load(Relaxed);
        if signal == libc::SIGTRAP && is_debugged {
            return self.halted(tid, &registers);
        }
        let info = ptrace::signal_info(tid).map_err(failed)?;
        let is_in_call = self.is_in_call(&registers);
        let is_wanted = debug.passed.load(Relaxed) >> (signal - 1) & 1 == 0;
        let Some(thread) = self.threads.get_mut(&tid) else {
            let_go(tid, signal);
            return Ok(None);
        };
        if is_asking(&info) {
            if !is_in_call {
                in_call::continue_to_call(tid, thread, signal, self.is_interrupted.load(Acquire));
                return Ok(None);
            }
            // It stands still without the signal.
            thread.stop_or_ask(self.hold.pid(), tid);
            let_go(tid, 0);
            return Ok(None);
        }
        // A signal ends the call.
        thread.is_resuming = false;
        let is_passed = !is_wanted && matches!(thread.motion, Motion::Continue);
        if is_fault(&info) || is_passed {
            let_go(tid, signal);
        } else if thread.let_through.take_if(|it| *it == signal).is_some() {
            if let Some(info) = thread.let_through_as.take() {
                let _ = ptrace::set_signal_info(tid, &info);
            }
            let_go(tid, signal);
        } else if is_in_call {
            thread.stop_in_call(registers, Some(info));
            let pc = self.pc_in_call(tid, &registers)?;
            // Natively, the kernel reports the call's end, and a step that it has ended, before it reports the signal.
            let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
            let number = registers.0.orig_rax;
            let first = if thread.has_stepped(pc) {
                Some(Stop::Stepped(tid))
            } else if std::mem::take(&mut thread.is_call_caught) {
                thread.is_end_reported = true;
                Some(Stop::SystemCall { tid, number, is_return: true })
            } else {
                None
            };
            thread.is_unreported = first.is_some();
            return Ok(first.or(Some(Stop::Signal(tid, signal as u8))));
        } else if proc::is_caught(tid, signal) {
            // The engine reports it when it would be delivered to the program.
            let_go(tid, signal);
        } else {
            thread.withheld = Some(info);
            self.ask(tid);
            let_go(tid, 0);
        }
        Ok(None)
    }

    pub(super) fn halted(
        &mut self,
        tid: Tid,
        registers: &weft_host::Registers,
    ) -> Result<Option<Stop>> {
        let place = TargetAddr(registers.0.gs_base + self.hold.debug().halt.load(Relaxed));
        let halt = read_halt(tid, place)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
        thread.place = Place::Halted(halt);
        (thread.is_beginning, thread.is_resuming, thread.is_bound) = (false, false, false);
        // The engine has not left it to the kernel.
        thread.let_through = None;
        let is_call = matches!(halt.reason, reason::CALL | reason::RETURN);
        let left_call = std::mem::replace(&mut thread.left_call, u64::MAX);
        thread.call = match halt.reason {
            _ if is_call => halt.about,
            reason::STEPPED if halt.about != 0 => halt.about - 1,
            // Into a handler, on the way out of the kernel.
            reason::STEPPED => left_call,
            reason::SIGNAL if halt.about & EARLY != 0 => left_call,
            _ => u64::MAX,
        };
        Ok(Some(match halt.reason {
            reason::BREAKPOINT => Stop::Breakpoint(tid),
            reason::STEPPED => Stop::Stepped(tid),
            reason::SIGNAL => Stop::Signal(tid, halt.about as u8),
            reason::WATCHED => {
                Stop::Watch { tid, address: halt.about, kind: self.points.kind_at(halt.about) }
            }
            reason::CALL => Stop::SystemCall { tid, number: halt.about, is_return: false },
            reason::RETURN => Stop::SystemCall { tid, number: halt.about, is_return: true },
            _ => match &thread.withheld {
                Some(info) => Stop::Signal(tid, number(info) as u8),
                None => return self.answered(tid),
            },
        }))
    }

    /// A thread stands still because it was asked to: for all to stand still, because the debugger interrupts the
    /// program, or long ago. Then it goes on.
    pub(super) fn answered(&mut self, tid: Tid) -> Result<Option<Stop>> {
        if self.is_interrupted.swap(false, AcqRel) {
            return Ok(Some(Stop::Interrupted(tid)));
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
        if !std::mem::take(&mut thread.is_asked) {
            let motion = thread.motion;
            self.let_run(&Resumption { tid, motion, signal: None })?;
        }
        Ok(None)
    }
}
