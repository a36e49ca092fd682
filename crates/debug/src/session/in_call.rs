//! Threads that stand still in a system call, and signals that come with its end.

use super::signal::{number, send};
use super::thread::{Place, Thread, no_thread};
use super::{R11, RAX, RCX, Session, from_native, let_go, set_xmm};
use crate::debuggee::{Registers, Resumption, Stop};
use std::sync::atomic::Ordering::Relaxed;
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Result, TargetAddr, memory, ptrace};

/// The flag by which a thread is stepped, which the instruction that makes a call keeps in `r11`.
const TRAP_FLAG: u64 = 0x100;

impl Session {
    /// A thread is to go on before a signal that the debugger has not heard of: it hears of that now, unless it has
    /// another for the thread. Then that comes first.
    pub(super) fn tell_unheard(&mut self, resumption: &Resumption) {
        let Some(thread) = self.threads.get_mut(&resumption.tid) else { return };
        if resumption.signal.is_some() {
            send_unheard(self.grip.pid(), resumption.tid, thread);
        } else if std::mem::take(&mut thread.is_unheard)
            && let Some(info) = thread.interrupted_by
        {
            self.news.push_back(Stop::Signal(resumption.tid, number(&info) as u8));
        }
    }

    /// Where a thread goes on that is in a system call.
    pub(super) fn pc_in_call(&self, tid: Tid, native: &weft_host::Registers) -> Result<u64> {
        let place = native.0.gs_base + self.grip.debug().record[1].load(Relaxed);
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
        let debug = self.grip.debug();
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

    /// Has one of the threads that are in a system call stand still before it, which makes it again.
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

    /// Has a thread give its system call up, and stand still before it.
    pub(super) fn leave_call(&mut self, tid: Tid, native: &weft_host::Registers) -> Result<()> {
        let failed = |e: std::io::Error| ptrace::failed("move", tid, &e);
        let out = TargetAddr(self.grip.debug().call_abandoned.load(Relaxed));
        ptrace::set_registers(tid, &native.at(out)).map_err(failed)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.place = Place::Running;
            send_unheard(self.grip.pid(), tid, thread);
        }
        self.ask(tid);
        let_go(tid, 0);
        self.await_all()
    }
}

/// Has a signal come once more of which nobody has heard.
pub fn send_unheard(pid: Tid, tid: Tid, thread: &mut Thread) {
    if std::mem::take(&mut thread.is_unheard)
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
