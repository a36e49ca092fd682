//! Standing still for a debugger.
//!
//! A halt is a signal to the debugger. Whatever brings a thread to one, be it a breakpoint, a step that is over, a
//! signal for the program or the debugger's own wish, is handled as a signal is: it waits until the thread is about
//! to go back to the clone, and the program's registers are in a context as the kernel lays it out. The debugger
//! reads that, through the kernel, and may change it.

use crate::clone::base::context::Context;
use crate::clone::base::instructions::SYSTEM_CALL_LENGTH;
use crate::clone::base::registers::{RAX, RSP};
use crate::clone::base::signals::{SIGTRAP, TRAP_FLAG, TRAP_TRACE, send_again};
use crate::clone::base::{keys, observers, program, signals};
use crate::clone::engine::exit::Exit;
use crate::clone::engine::lock;
use crate::clone::engine::lock::{Guard, engine, locked};
use crate::clone::thread::halt_requests::{reason_of, request};
use crate::clone::thread::record::{Thread, left, task};
use crate::clone::thread::{assembly, kept_signals, pending};
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::halt::{CloneDebug, EARLY, catches, motion, reason};

const SIGNALS: u64 = 64;

/// A thread has come to a breakpoint: it stands before the instruction.
pub fn at_breakpoint(thread: &Thread, exit: &Exit) {
    let mut engine = engine();
    let pc = thread.pc.get();
    if !observers::is_debugged() {
        engine.forget_halts();
        engine.continue_at(thread, pc);
    } else if thread.is_vforked.get() != 0 {
        // A vforked child: only its parent is debugged.
        thread.target.set(engine.single(thread, pc));
    } else if !thread.is_stepping() && !engine.is_met(thread) && exit.epoch == engine.cache.epoch {
        thread.target.set(thread.exit.get() + 8);
        thread.epoch.store(engine.cache.epoch, Relaxed);
    } else {
        engine.stop_at(thread, pc);
        drop(engine);
        let reason = if thread.is_stepping() { reason::STEPPED } else { reason::BREAKPOINT };
        halt_soon(thread, reason, 0);
    }
}

/// A thread has come to a store that may change memory that is watched: it stands before the instruction.
pub fn at_store(thread: &Thread) {
    let mut engine = engine();
    let pc = thread.pc.get();
    engine.stop_at(thread, pc);
    thread.task.set(task::STORE);
    engine.step(thread, pc);
}

/// Puts the address that a thread has returned to below its stack, where a return that missed the tables has left
/// one of the engine's.
pub fn clean_below(thread: &Thread) {
    let below = thread.general[RSP].get().wrapping_sub(8);
    let mut engine = locked();
    let is_own = |left: u64| left == engine.cache.tables.missing || engine.cache.is_in_clone(left);
    if program::read::<u64>(below).is_some_and(is_own) {
        program::write(below, thread.next.get());
        // The entry for that address puts the address there from now on.
        engine.halts.returns.insert(thread.next.get());
    }
}

/// A thread is about to make a system call. Returns whether it reports that to the debugger first, and comes again.
pub fn at_call(thread: &Thread) -> bool {
    if !observers::is_debugged() || thread.is_vforked.get() != 0 {
        return false;
    }
    let number = thread.general[RAX].get();
    let has_told = thread.task.get() == task::CALL;
    thread.task.set(task::NONE);
    thread.number.set(number + 1);
    thread.is_caught.set(has_told);
    // Natively, a call that is stepped over is not reported.
    if has_told || thread.is_stepping() || !is_caught(&engine().control.debug, number) {
        return false;
    }
    thread.task.set(task::CALL);
    thread.pc.set(thread.pc.get() - SYSTEM_CALL_LENGTH);
    halt_soon(thread, reason::CALL, number);
    true
}

fn is_caught(debug: &CloneDebug, number: u64) -> bool {
    match debug.catches.load(Relaxed) {
        catches::NONE => false,
        catches::ALL => true,
        _ => debug
            .calls
            .get(number as usize / 64)
            .is_some_and(|calls| calls.load(Relaxed) >> (number % 64) & 1 != 0),
    }
}

/// A thread has executed an instruction by itself, or made a system call, behind which the program goes on at
/// `next`.
pub fn arrived(thread: &Thread, kind: u32, next: u64) {
    if thread.has_pending() && thread.task.get() == task::CALL {
        // It stands before the call.
        return;
    }
    let is_call = kind == left::SYSTEM_CALL;
    // The kernel reports a step that a call has ended before the signals that the call has brought; but where one
    // was reported in the call, the step is to the handler.
    let has_called = is_call && thread.pc.get() == next;
    let is_news = || thread.halt.told.get() != u64::from(thread.pending_info.get()[0] as u32);
    let is_over = thread.is_stepping() && !thread.goes_on();
    let is_step_first = || has_called && is_over && is_news();
    if thread.has_pending() && thread.is_single() && !is_step_first() {
        // A signal comes first, and is delivered where the thread is now.
        thread.task.set(task::NONE);
        thread.target.set(thread.pc.get());
        return;
    }
    if thread.halt.motion.get() == motion::STEP {
        thread.flags.set(thread.flags.get() & !TRAP_FLAG);
    }
    let was_store = thread.task.get() == task::STORE;
    if was_store {
        thread.task.set(task::NONE);
    }
    // In the middle of a repeated instruction.
    let is_single = was_store || thread.is_stepping();
    let is_amid = is_single && !is_call && thread.pc.get() != keys::real(next);
    let is_caught = thread.is_caught.take();
    let has_heard = thread.halt.heard.take() != 0;
    // A call that was abandoned for a signal is made again, and reported then.
    let is_told = has_called && is_caught && !thread.is_stepping() && !has_heard;
    if is_told && (!thread.has_pending() || is_news()) {
        return halt_soon(thread, reason::RETURN, thread.number.get() - 1);
    }
    let mut engine = engine();
    let touched = thread.touched.take();
    if is_call || was_store || thread.is_stepping() {
        let changed = engine.halts.watches.changed();
        if let Some(address) = changed.or((touched != 0).then_some(touched)) {
            drop(engine);
            return halt_soon(thread, reason::WATCHED, address);
        }
    }
    if !thread.is_stepping() {
        let pc = thread.pc.get();
        if is_amid {
            thread.task.set(task::STORE);
            engine.step(thread, pc);
        } else if was_store {
            engine.continue_at(thread, pc);
        }
        return;
    }
    let (pc, goes_on) = (thread.pc.get(), thread.goes_on());
    let is_at_breakpoint = !is_amid && engine.halts.contains(pc);
    if goes_on && !is_at_breakpoint && !thread.has_pending() {
        engine.step(thread, pc);
        return;
    }
    drop(engine);
    match goes_on && is_at_breakpoint {
        true => halt_soon(thread, reason::BREAKPOINT, 0),
        false => halt_soon(thread, reason::STEPPED, if is_call { thread.number.get() } else { 0 }),
    }
}

/// Halts a thread, which is in the agent, before it goes back to the clone.
pub fn halt_soon(thread: &Thread, reason: u64, about: u64) {
    thread.is_masked.store(true, Relaxed);
    let mask = signals::block();
    pending::keep_mask(thread, mask);
    // It leaves from an address of the program, not from the clone.
    thread.target.set(thread.pc.get());
    thread.pending_info.set(request(reason, about));
    thread.set_pending();
}

/// Reports a signal to the debugger, unless it passes that signal, or a halt. Returns whether the program gets a
/// signal: that one, or another by which the debugger has replaced it.
pub fn report_signal(
    mut engine: Guard,
    thread: &Thread,
    info: &mut [u64; 16],
    context: &mut Context,
) -> (Guard, bool) {
    engine.follow_halts();
    let requested = reason_of(info);
    if !observers::is_debugged() || thread.is_vforked.get() != 0 {
        return (engine, requested.is_none());
    }
    let signal = u64::from(info[0] as u32);
    let is_step = signal == SIGTRAP as u64 && info[1] as i32 == TRAP_TRACE;
    let requested = match is_step && thread.halt.motion.get() == motion::STEP {
        true => {
            context.rflags &= !TRAP_FLAG;
            *info = request(reason::STEPPED, 0);
            Some(reason::STEPPED)
        }
        false => requested,
    };
    let passed = engine.control.debug.passed.load(Relaxed);
    let reason = match requested {
        Some(reason) => reason,
        None if thread.halt.told.take() == signal => return (engine, true),
        // Natively, a step reports every signal.
        None if passed >> (signal - 1) & 1 != 0 && !thread.is_stepping() => return (engine, true),
        None => reason::SIGNAL,
    };
    drop(engine);
    thread.halt.told.set(0);
    let early = if thread.is_pending_early.swap(false, Relaxed) { EARLY } else { 0 };
    let about = if requested.is_some() { info[5] } else { signal | early };
    if requested.is_some() {
        *info = [0; 16];
    }
    if !stand_still(thread, (reason, about), info, context) {
        // A signal that nobody has taken is the program's.
        return (lock::engine(), requested.is_none());
    }
    let wanted = thread.halt.signal.get();
    // The debugger may have written a description of its own.
    if u64::from(info[0] as u32) != wanted {
        *info = [0; 16];
        info[0] = wanted;
    }
    if !(1..=SIGNALS).contains(&wanted) {
        return (lock::engine(), false);
    }
    // A signal that the debugger injects and that the program has blocked waits as any other.
    let is_given = requested.is_some() || wanted != signal;
    let is_blocked = (context.mask | thread.hidden_mask.get()) >> (wanted - 1) & 1 != 0;
    if is_given && is_blocked {
        send_again(info);
    }
    (lock::engine(), !(is_given && is_blocked))
}

/// Halts the thread until the debugger has set how it continues. Returns whether it has: it may be gone.
fn stand_still(
    thread: &Thread,
    (reason, about): (u64, u64),
    info: &mut [u64; 16],
    context: &mut Context,
) -> bool {
    // A second request is met by this halt.
    kept_signals::drop_halt_request(thread);
    let halt = &thread.halt;
    halt.about.set(about);
    halt.context.set(core::ptr::from_mut(context) as u64);
    halt.info.set(core::ptr::from_mut(info) as u64);
    halt.gs_base.set(thread.gs_base.get());
    halt.motion.set(motion::NONE);
    halt.signal.set(0);
    halt.reason.set(reason);
    // A trap that is forced while it is blocked ends the process.
    signals::let_traps_in();
    assembly::halt(halt);
    halt.reason.set(reason::NONE);
    thread.gs_base.set(halt.gs_base.get());
    let is_answered = halt.motion.get() != motion::NONE;
    if !is_answered {
        // The debugger is gone, without having detached.
        let mut engine = engine();
        engine.control.debug.pid.store(0, Relaxed);
        engine.forget_halts();
    }
    is_answered
}
