//! Threads that stand still in a system call, and signals that come with its end.

use super::context::{Context, set_xmm};
use super::kernel::{CALL_LENGTH, R11, RAX, RCX, from_native, let_go};
use super::signal::{ask, is_asking, number, send};
use super::state::Session;
use super::thread::{Place, Thread, no_thread};
use crate::debuggee::{Registers, Resumption, Stop};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_host::proc::{self, Tid};
use weft_host::ptrace::Event;
use weft_host::{Error, ErrorKind, Result, TargetAddr, memory, ptrace};

/// The instruction that makes a system call.
const CALL: [u8; CALL_LENGTH as usize] = [0x0f, 0x05];
/// The flag by which a thread is stepped, which the instruction that makes a call keeps in `r11`.
const TRAP_FLAG: u64 = 0x100;

impl Session {
    /// A thread is to go on before a signal that the debugger has not heard of: it hears of that now, unless it has
    /// another for the thread. Then that comes first.
    pub(super) fn report_unreported(&mut self, resumption: &Resumption) {
        let Some(thread) = self.threads.get_mut(&resumption.tid) else { return };
        if resumption.signal.is_some() {
            resend_unreported(self.hold.pid(), resumption.tid, thread);
        } else if std::mem::take(&mut thread.is_unreported)
            && let Some(info) = thread.interrupted_by
        {
            self.pending.push_back(Stop::Signal(resumption.tid, number(&info) as u8));
        }
    }

    /// A thread has come to a system call: perhaps to the one that it was on its way to.
    pub(super) fn came_to_call(&mut self, tid: Tid, registers: &weft_host::Registers) {
        let call = self.call_end();
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.is_resuming) {
            if registers.0.rip != call {
                // One of the engine's own.
                let _ = ptrace::resume_to_call(tid, 0);
                return;
            }
            thread.is_resuming = false;
            if std::mem::take(&mut thread.is_bound) {
                thread.stop_or_ask(self.hold.pid(), tid);
            }
        }
        let_go(tid, 0);
    }

    /// Something has come before the stop that a thread was about to make, which the kernel makes no more then: it is
    /// asked by a signal, unless that is it.
    pub(super) fn is_not_stopped(&mut self, tid: Tid, status: i32) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if !std::mem::take(&mut thread.is_stopping) {
            return;
        }
        let is_signal = status >> 16 == 0 && libc::WSTOPSIG(status) == libc::SIGSEGV;
        if !(is_signal && ptrace::signal_info(tid).is_ok_and(|info| is_asking(&info))) {
            ask(self.hold.pid(), tid);
        }
    }

    /// The kernel has stopped a thread where it was. One that is not in a call of the program's is asked by a signal.
    pub(super) fn stopped(&mut self, tid: Tid) -> Result<Option<Stop>> {
        // A failure means that it was killed; the next wait reports it.
        let Ok(registers) = ptrace::registers(tid) else { return Ok(None) };
        let is_in_call = self.is_in_call(&registers);
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
        if !std::mem::take(&mut thread.is_stopping) {
            // It was stopped twice, or stops with its process.
            let _ = match thread.is_resuming {
                true => ptrace::resume_to_call(tid, 0),
                false => ptrace::resume(tid, 0),
            };
            return Ok(None);
        }
        if !is_in_call {
            if !thread.is_resuming || thread.withheld.is_some() {
                ask(self.hold.pid(), tid);
            }
            continue_to_call(tid, thread, 0, self.is_interrupted.load(Acquire));
            return Ok(None);
        }
        thread.stop_in_call(registers, None);
        thread.is_stopped = true;
        self.answered(tid)
    }

    /// Where a thread goes on that is in a system call.
    pub(super) fn pc_in_call(&self, tid: Tid, native: &weft_host::Registers) -> Result<u64> {
        let place = native.0.gs_base + self.hold.debug().record[1].load(Relaxed);
        let words = memory::words(&memory::read(tid, TargetAddr(place), 8)?);
        words.first().copied().ok_or_else(|| no_thread(tid))
    }

    /// What a thread has that is in a system call: the engine keeps it meanwhile.
    pub(super) fn registers_in_call(
        &self,
        tid: Tid,
        native: &weft_host::Registers,
    ) -> Result<Registers> {
        let record = native.0.gs_base;
        let debug = self.hold.debug();
        let at = |index: usize| TargetAddr(record + debug.record[index].load(Relaxed));
        let words = |place: TargetAddr, count: usize| -> Result<Vec<u64>> {
            Ok(memory::words(&memory::read(tid, place, 8 * count)?))
        };
        let mut registers = from_native(native);
        registers.general.copy_from_slice(&words(at(0), 16)?);
        registers.rip = self.pc_in_call(tid, native)?;
        registers.rflags = words(at(2), 1)?[0];
        registers.general[RAX] = native.0.rax;
        // As the instruction leaves them.
        registers.general[RCX] = registers.rip;
        registers.general[R11] = registers.rflags;
        if self.thread(tid)?.is_call_stepped {
            registers.general[R11] |= TRAP_FLAG;
        }
        let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
        registers.vectors = ptrace::vector_state(tid).map_err(failed)?;
        set_xmm(&mut registers.vectors, &memory::read(tid, at(3), 256)?);
        Ok(registers)
    }

    /// Stops one of the threads that are in a system call before it, from where the call is made again.
    pub(super) fn have_one_leave_call(&mut self) -> Result<()> {
        let found = self.threads.iter().find_map(|(&tid, thread)| match thread.place {
            Place::InCall(native) if !thread.is_in_fork() && thread.interrupted_by.is_none() => {
                Some((tid, native))
            }
            _ => None,
        });
        let (tid, native) = found.ok_or_else(|| {
            Error::new(ErrorKind::Timeout, "no thread of the program can do anything for weft")
                .why("all of them are in system calls that must not be given up")
                .advice("let the program go on by a step and try again")
        })?;
        self.leave_call(tid, &native)
    }

    /// Aborts the system call of a thread, and stops it before the call.
    pub(super) fn leave_call(&mut self, tid: Tid, native: &weft_host::Registers) -> Result<()> {
        let failed = |e: std::io::Error| ptrace::failed("move", tid, &e);
        let out = TargetAddr(self.hold.debug().call_abandoned.load(Relaxed));
        ptrace::set_registers(tid, &native.at(out)).map_err(failed)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.place = Place::Running;
            resend_unreported(self.hold.pid(), tid, thread);
        }
        self.ask(tid);
        let_go(tid, 0);
        self.await_all()
    }
}

impl Thread {
    /// Lets the kernel stop it where it is: in a system call it can stay there. With a signal that is pending instead,
    /// the call would fail if weft were killed.
    pub fn stop_or_ask(&mut self, pid: Tid, tid: Tid) {
        self.is_stopping = ptrace::interrupt(tid).is_ok();
        if !self.is_stopping {
            ask(pid, tid);
        }
    }
}

/// A thread that is not in a system call hears that it is to stand still. One that is on its way to a call that the
/// kernel keeps for it does so there: what it keeps is gone when the engine's handler has returned, and the call would
/// fail.
pub fn continue_to_call(tid: Tid, thread: &mut Thread, signal: i32, is_interrupted: bool) {
    if !thread.is_resuming || thread.withheld.is_some() {
        let_go(tid, signal);
        return;
    }
    // Else it was asked twice, and has stood still.
    thread.is_bound |= thread.is_asked || is_interrupted;
    let _ = ptrace::resume_to_call(tid, 0);
}

/// Drops what asks a thread to stand still and has not reached it: nobody looks after it any more, and its calls
/// would fail for it. Returns the signal that it is to be let go with.
pub fn drop_asking(tid: Tid, signal: i32) -> i32 {
    if signal != 0 || !proc::is_about_to_get(tid, &[libc::SIGSEGV]) {
        return signal;
    }
    loop {
        // What waits comes before the next instruction.
        let_go(tid, 0);
        match ptrace::wait(tid) {
            Ok(Event::Signal(other)) => {
                let is_it = ptrace::signal_info(tid).is_ok_and(|info| is_asking(&info));
                return if is_it { 0 } else { other };
            }
            // It was stopped twice.
            Ok(Event::Stop(_)) => {}
            _ => return 0,
        }
    }
}

/// Whether a thread stands before a system call that the kernel keeps for it.
pub fn is_resuming(tid: Tid, context: &Context) -> bool {
    context.rax() == libc::SYS_restart_syscall
        && memory::read(tid, TargetAddr(context.rip()), CALL.len()).is_ok_and(|code| code == CALL)
}

/// Sends a signal again that was not reported.
pub fn resend_unreported(pid: Tid, tid: Tid, thread: &mut Thread) {
    if std::mem::take(&mut thread.is_unreported)
        && let Some(info) = thread.interrupted_by.take()
    {
        send(pid, tid, &info);
    }
}

pub fn forks(tid: Tid) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("the registers of thread {tid} cannot be changed"),
    )
    .why("it is making a process, and the kernel is about to change them itself")
    .advice("let it go on by a step first")
}
