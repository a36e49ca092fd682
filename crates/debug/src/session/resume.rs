//! Having threads go on.

use super::context::Context;
use super::in_call;
use super::kernel::CALL_LENGTH;
use super::signal::{is_fault, number, plain, send};
use super::state::Session;
use super::thread::{Place, no_thread, read_halt, write_halt};
use crate::debuggee::{Debuggee, Motion, Resumption};
use std::sync::atomic::Ordering::Relaxed;
use weft_abi::halt::{Halt, motion, reason};
use weft_host::checks::seccomp::permits_restart;
use weft_host::proc::{self, Tid};
use weft_host::{Result, TargetAddr, memory, ptrace};

/// What the kernel calls the end of a system call that is to be made again.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

impl Session {
    /// The signal that a thread has stopped for and not been given yet. A fault is none: it comes again by itself,
    /// unless it was the debugger's, which lets functions that it calls return to where there is no code.
    pub(super) fn undelivered(&mut self, tid: Tid) -> Option<u8> {
        let thread = self.thread(tid).ok()?;
        let is_told = matches!(thread.place, Place::Halted(Halt { reason: reason::SIGNAL, .. }));
        if !is_told && thread.signal().is_none() {
            return None;
        }
        let info = self.signal_info(tid).ok()?;
        (!is_fault(&info)).then(|| number(&info) as u8)
    }

    pub(super) fn let_run(&mut self, resumption: &Resumption) -> Result<()> {
        let tid = resumption.tid;
        if let Some(signal) = self.set_out(resumption)? {
            // A failure means that it was killed; the next wait reports it.
            let _ = match self.thread(tid)?.is_resuming {
                true => ptrace::resume_to_call(tid, signal),
                false => ptrace::resume(tid, signal),
            };
        }
        Ok(())
    }

    /// Prepares a thread to go on. Returns the signal that it is to be let go with; `None` if it runs already.
    pub(super) fn set_out(&mut self, resumption: &Resumption) -> Result<Option<i32>> {
        let Resumption { tid, motion, signal } = *resumption;
        let halt_offset = self.hold.debug().halt.load(Relaxed);
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        let wanted = signal.map_or(0, i32::from);
        (thread.motion, thread.is_asked) = (motion, false);
        let (motion, range) = match motion {
            Motion::Continue => (motion::GO, [0; 2]),
            Motion::Step => (motion::STEP, [0; 2]),
            Motion::StepWithin(start, end) => (motion::STEP_WITHIN, [start, end]),
        };
        let withheld = thread.withheld.take();
        let described = thread.described.take().filter(|info| number(info) == wanted);
        match std::mem::replace(&mut thread.place, Place::Running) {
            Place::Running => Ok(None),
            Place::Halted(mut halt) => {
                thread.is_call_caught = motion == motion::GO && halt.reason == reason::CALL;
                thread.is_call_stepped = motion != motion::GO && halt.reason != reason::CALL;
                (halt.motion, halt.range, halt.heard) = (motion, range, 0);
                halt.signal = wanted as u64;
                thread.left_call = if wanted == 0 { u64::MAX } else { thread.call };
                if let Some(info) = withheld.filter(|info| number(info) == wanted) {
                    // What the program does not handle is the kernel's to deal with.
                    halt.signal = 0;
                    thread.let_through = Some(wanted);
                    send(self.hold.pid(), tid, &info);
                } else if wanted != 0 {
                    // What the program does not handle the engine leaves to the kernel, too.
                    thread.let_through = (!proc::is_caught(tid, wanted)).then_some(wanted);
                    if let Some(info) = described {
                        memory::write(tid, TargetAddr(halt.info), &info)?;
                    }
                }
                let registers =
                    ptrace::registers(tid).map_err(|e| ptrace::failed("read", tid, &e))?;
                write_halt(tid, TargetAddr(registers.0.gs_base + halt_offset), &halt)?;
                let context = Context::read(tid, halt.context)?;
                thread.is_resuming = motion == motion::GO && in_call::is_resuming(tid, &context);
                if RESTARTS.contains(&context.rax()) && thread.call as i64 >= 0 {
                    context.restart(thread.call, CALL_LENGTH)?;
                }
                Ok(Some(0))
            }
            Place::InCall(mut registers) => {
                let place = TargetAddr(registers.0.gs_base + halt_offset);
                let mut halt = read_halt(tid, place)?;
                (halt.motion, halt.range, halt.told) = (motion, range, wanted as u64);
                halt.heard = std::mem::take(&mut thread.is_end_reported).into();
                write_halt(tid, place, &halt)?;
                let mut is_spared = wanted == 0 && registers.spare_stopped_call();
                if registers.is_resumed_by_call() && !permits_restart(tid) {
                    // A sleep that lasts longer is better than one that the filter ends with the process.
                    registers.begin_call_again();
                    is_spared = true;
                }
                if is_spared {
                    ptrace::set_registers(tid, &registers)
                        .map_err(|e| ptrace::failed("move", tid, &e))?;
                }
                let is_new =
                    wanted != 0 && thread.interrupted_by.is_none_or(|info| number(&info) != wanted);
                thread.interrupted_by = None;
                thread.left_call = if wanted == 0 { u64::MAX } else { registers.0.orig_rax };
                let said = described.or(is_new.then(|| plain(wanted)));
                if std::mem::take(&mut thread.is_stopped) && wanted != 0 {
                    // With such a stop the kernel takes no signal.
                    (thread.let_through, thread.let_through_as) = (Some(wanted), said);
                    send(self.hold.pid(), tid, &plain(wanted));
                    return Ok(Some(0));
                }
                if let Some(info) = said
                    && ptrace::set_signal_info(tid, &info).is_err()
                {
                    thread.let_through = Some(wanted);
                }
                Ok(Some(wanted))
            }
        }
    }
}
