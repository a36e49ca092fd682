//! What the kernel calls for a signal: whether it is the engine's or the program's, and when the program gets it.

use crate::clone::base::context::{Context, Fault};
use crate::clone::base::image::image;
use crate::clone::base::keys::inner;
use crate::clone::base::signals::{
    DEBUGGED, FAULT_OF_THE_KERNEL, NEEDED, SEGV_ACCERR, SIGILL, SIGSEGV, SIGTRAP, TRAP_FLAG,
    TRAP_TRACE, WATCHED, bit, fault, is_fault, send_again, set_mask,
};
use crate::clone::base::{observers, program};
use crate::clone::cache::program_state::State;
use crate::clone::cache::{integrity, program_state};
use crate::clone::engine::Engine;
use crate::clone::engine::lock::{Guard, engine, locked, out_of_clone};
use crate::clone::failure::give_up;
use crate::clone::kernel::debugger;
use crate::clone::kernel::signals::frames::enter_handler;
use crate::clone::kernel::signals::leading_out;
use crate::clone::thread::actions::{Actions, SIG_DFL, SIG_IGN, end_by};
use crate::clone::thread::assembly::{abandonable_call, abandonable_return, halted};
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::native::native_context;
use crate::clone::thread::record::{Thread, stepping, task};
use crate::clone::thread::vectors::{VectorState, xmm};
use crate::clone::thread::{halt_requests, kept_signals, repeated};
use crate::clone::tools::tracing;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;
use weft_abi::halt::reason;

/// The most bytes of an instruction.
const LONGEST: u64 = 15;

/// The flags with all clear but the one that is always set.
const NO_FLAGS: u64 = 2;

/// The engine's handler of all signals. It runs on the stack for frames, with everything blocked but [`NEEDED`].
pub extern "C" fn handler(signal: usize, info: &mut [u64; 16], context: &mut Context) {
    let thread = Thread::current();
    let pc = context.rip;
    if signal == SIGSEGV && info[1] as i32 > 0 && tracing::has_filled_buffer(thread, info[2]) {
        // A record of a trace did not fit: it goes to the next buffer.
        let mut general = context.general();
        general[tracing::base_of(pc)] = tracing::turn_buffer(thread);
        context.set_general(&general);
        return;
    }
    if signal == SIGTRAP && pc == halted() {
        // The trap by which the thread stands still, which no debugger has caught: it is gone, which the thread
        // detects.
        return;
    }
    let is_step = signal == SIGTRAP && info[1] as i32 == TRAP_TRACE;
    let (signal, is_step) = match thread.stepping.load(Relaxed) {
        stepping::NO => (signal, is_step),
        _ if !is_step => (signal, false),
        _ => match leading_out::step(thread, info, context) {
            Some(waiting) => (waiting, false),
            None => return,
        },
    };
    if image().contains(&pc) {
        if !is_step {
            interrupted_agent(thread, signal, info, context);
        }
        return;
    }
    let mut engine = locked();
    if engine.cache.is_gate(pc) {
        drop(engine);
        if !is_step {
            interrupted_agent(thread, signal, info, context);
        }
        return;
    }
    if let Some(next) = leading_out::after_fault(&engine, info, pc) {
        context.rip = next;
        return;
    }
    if is_step && thread.task.get() == task::WAY {
        thread.task.set(task::NONE);
        return;
    }
    // Where a program single-steps itself, one step of its own is several of the clone, of which only the last is
    // delivered. A thread that is at the same place again is in a repeated instruction, behind any snippet before
    // that.
    let was_here = thread.trapped.replace(if is_step { pc } else { 0 }) == pc;
    if is_step && context.rflags & TRAP_FLAG != 0 {
        if !was_here && !program_state::is_between(&engine.cache, pc) {
            return;
        }
        thread.trapped.set(0);
    }
    if leading_out::has_begun(&engine, thread, info, context) {
        leading_out::lead_out(&mut engine, thread, info, context);
        return;
    }
    let mut state = State { general: context.general(), pc, stacked: None };
    let is_fault = is_fault(info);
    if signal == SIGSEGV && is_fault {
        if let Some(page) = engine.cache.pages.guarded(info[2]) {
            written(engine, thread, context, state, page);
            return;
        }
        // Another thread has written to the same page first, and released it: the write is repeated.
        let is_denied = info[1] as i32 == SEGV_ACCERR && context.error & fault::WRITE != 0;
        if is_denied && engine.cache.is_writable(info[2]) {
            return;
        }
    }
    let is_at_instruction = is_fault && info[2] == pc;
    // Whether the thread faulted because its code was flushed. The fault may be in the middle of an instruction,
    // where the processor still had the first page in its TLB; or at the abort handler of a restartable sequence.
    let is_fetch = context.error & fault::FETCH != 0
        && (info[2].wrapping_sub(pc) < LONGEST || engine.cache.is_in_clone(info[2]));
    let is_retired = engine.cache.is_in_clone(pc) && !engine.cache.is_current(pc);
    let is_step_over = thread.is_stepping() && engine.is_stop(pc);
    let is_suspect = is_fault && WATCHED & bit(signal) != 0;
    let is_broken = is_suspect && !integrity::is_explained(&engine.cache, pc, signal == SIGILL);
    let is_certain = is_broken && integrity::is_certain(&engine.cache, pc);
    program_state::restore(&mut engine.cache, thread, &mut state);
    let is_inner = program_state::is_inner(&engine.cache, pc, state.pc);
    engine.cut(pc, state.pc);
    engine.trace_cut(thread, pc, (state.pc, &state.general));
    state.pc = repeated::rejoin(thread, state.pc, &mut state.general, context.rflags);
    if is_broken {
        thread.set_general(&state.general);
        thread.pc.set(state.pc);
        thread.flags.set(context.rflags);
        // SAFETY: the kernel has written the vector state there.
        thread.vectors.set(unsafe { xmm(context.vectors) });
        thread.native_pc.set(if is_certain { state.pc } else { 0 });
        engine = give_up::broken(engine, thread, Fault { signal, info, context });
    }
    let mut engine = out_of_clone(engine, thread);
    context.set_general(&state.general);
    context.rip = state.pc;
    if is_retired && signal == SIGSEGV && is_fault && is_fetch {
        // Its code was flushed: it continues in new code for the same address.
        let key = if is_inner { inner(state.pc) } else { state.pc };
        context.rip = engine.continue_as(thread, key);
        engine.entered(thread, key);
        return;
    }
    if is_at_instruction {
        info[2] = state.pc;
    }
    if is_step_over && halt_requests::reason_of(info).is_none() {
        // One event after the other is reported to the debugger.
        send_again(info);
        *info = halt_requests::request(reason::STEPPED, 0);
    }
    pass_on_in_clone(engine, thread, info, context);
}

/// Delivers a signal to a thread that it has interrupted in the clone. The context has the program's registers.
fn pass_on_in_clone(mut engine: Guard, thread: &Thread, info: &[u64; 16], context: &mut Context) {
    thread.is_masked.store(true, Relaxed);
    // SAFETY: the kernel has written the vector state there.
    match unsafe { deliver(engine, thread, info, context) } {
        Ok((kept, _)) => engine = kept,
        // The lock is free again: the parent of a vforked child that ends here goes on with the engine.
        Err(Deadly(signal)) => {
            tracing::signal(thread, signal, is_fault(info));
            end_by(signal)
        }
    }
    context.rip = engine.set_out(thread, context);
    compiler_fence(SeqCst);
    thread.is_masked.store(false, Relaxed);
}

/// Reports a signal to the debugger, if there is one, and then delivers it to the program. Returns whether the
/// program's handler has begun.
///
/// # Safety
/// The context's vector state must be there.
unsafe fn deliver(
    mut engine: Guard,
    thread: &Thread,
    info: &[u64; 16],
    context: &mut Context,
) -> Result<(Guard, bool), Deadly> {
    let mut info = *info;
    let mut has_begun = false;
    loop {
        let is_wanted;
        (engine, is_wanted) = debugger::report_signal(engine, thread, &mut info, context);
        // SAFETY: the caller vouches for it.
        if !is_wanted || !unsafe { pass_on(&mut engine, thread, &info, context)? } {
            return Ok((engine, has_begun));
        }
        has_begun = true;
        if !thread.is_stepping() {
            return Ok((engine, has_begun));
        }
        // A step into a handler ends before the first instruction of that.
        info = halt_requests::request(reason::STEPPED, 0);
    }
}

/// A signal by which the program ends.
struct Deadly(usize);

/// Does with a signal what the program wants done. Returns whether its handler has begun.
///
/// # Safety
/// The context's vector state must be there.
unsafe fn pass_on(
    engine: &mut Engine,
    thread: &Thread,
    info: &[u64; 16],
    context: &mut Context,
) -> Result<bool, Deadly> {
    let signal = info[0] as u32 as usize;
    let is_fault = is_fault(info);
    let is_needed = NEEDED & bit(signal) != 0 || engine.has_trap && signal == SIGTRAP;
    let is_watched = (WATCHED | DEBUGGED) & bit(signal) != 0;
    match Actions::get(thread, signal).handler {
        SIG_DFL if is_watched => return Err(Deadly(signal)),
        // The action has changed since it came, and is the kernel's own: the kernel does it when the signal comes
        // again.
        SIG_DFL | SIG_IGN if !is_needed => send_again(info),
        SIG_IGN if !is_fault => {}
        SIG_IGN => return Err(Deadly(signal)),
        // A fault that the program has blocked ends it, as natively.
        _ if is_fault && thread.hidden_mask.get() & bit(signal) != 0 => return Err(Deadly(signal)),
        _ => {
            // SAFETY: the caller vouches for it.
            let has_entered = unsafe { enter_handler(engine, thread, signal, info, context) };
            if !has_entered && signal == SIGSEGV {
                return Err(Deadly(SIGSEGV));
            }
            if !has_entered {
                // SAFETY: the same.
                return unsafe { pass_on(engine, thread, &FAULT_OF_THE_KERNEL, context) };
            }
            engine.control.stats.signals.fetch_add(1, Relaxed);
            tracing::signal(thread, signal, is_fault);
            return Ok(true);
        }
    }
    Ok(false)
}

/// A write to code that has been translated.
fn written(mut engine: Guard, thread: &Thread, context: &mut Context, mut state: State, page: u64) {
    engine.control.stats.protection_faults.fetch_add(1, Relaxed);
    let is_in_clone = program_state::restore(&mut engine.cache, thread, &mut state);
    let ends = engine.cache.release(page);
    engine.cache.pages.count_write(page);
    // A thread that writes to the page that it executes must not continue in code that is out of date: it executes
    // one instruction, the writer, and what follows is translated anew.
    if is_in_clone && ends.contains(&state.pc) {
        engine.cut(context.rip, state.pc);
        engine.trace_cut(thread, context.rip, (state.pc, &state.general));
        let mut engine = out_of_clone(engine, thread);
        context.set_general(&state.general);
        context.rip = engine.single(thread, state.pc);
    }
}

/// A signal while the thread is in the agent: it waits until the thread goes back to the clone, and code that could
/// wait itself (a system call of the program's) is abandoned.
fn interrupted_agent(thread: &Thread, signal: usize, info: &[u64; 16], context: &mut Context) {
    if (info[1] as i32) > 0 && WATCHED & bit(signal) != 0 {
        if let Some(next) = program::after_fault(context.rip) {
            context.rip = next;
            return;
        }
        if context.rip == Landmark::ResumeJump.address() {
            // The jump to the clone has faulted: the program goes to an address without code. All registers are the
            // program's by now.
            thread.epoch.store(u64::MAX, Release);
            context.rip = thread.target.get();
            pass_on_in_clone(engine(), thread, info, context);
            return;
        }
        give_up::faulted(thread, Fault { signal, info, context });
    }
    if kept_signals::is_after_last_look(info, context)
        || kept_signals::is_waiting(thread, context) && kept_signals::keep(thread, info)
    {
        return;
    }
    thread.pending_info.set(*info);
    thread.pending_mask.set(context.mask & !NEEDED);
    thread.is_pending_early.store(thread.is_beginning.load(Relaxed), Relaxed);
    thread.set_pending();
    context.mask = leading_out::all_but_traps(context);
    let pc = context.rip;
    let resume = Landmark::Resume.address();
    let (call, returning) = (abandonable_call(), abandonable_return());
    if (resume..Landmark::ResumeEnd.address()).contains(&pc) {
        context.rip = resume;
        // They may be the program's already, with traps or alignment checks, which the agent must not run with.
        context.rflags = NO_FLAGS;
    } else if call.contains(pc) {
        context.rip = call.abandoned;
    } else if returning.contains(pc) {
        context.rip = returning.abandoned;
    } else if (Landmark::Missing.address()..Landmark::MissingOut.address()).contains(&pc) {
        // What it finds in the second table would lead it back to the clone: it leaves instead, and the signal is
        // delivered.
        thread.target.set(Landmark::MissingOut.address());
    }
}

/// Delivers the signal that waits. The thread is on its way back to the clone.
pub extern "C" fn deliver_pending(thread: &Thread) {
    if leading_out::defer(thread) {
        return;
    }
    // It was about to enter the clone, but is not in it.
    thread.epoch.store(u64::MAX, Release);
    let info = thread.pending_info.get();
    let mut vectors = VectorState::save(&thread.vectors.get());
    let mut context = native_context(thread, vectors.at());
    thread.is_masked.store(true, Relaxed);
    compiler_fence(SeqCst);
    thread.clear_pending();
    let has_begun;
    {
        let mut engine = engine();
        engine.cut(thread.target.get(), thread.pc.get());
        engine.trace_cut(thread, thread.target.get(), (thread.pc.get(), &thread.general()));
        // SAFETY: the vector state was just saved.
        (engine, has_begun) = match unsafe { deliver(engine, thread, &info, &mut context) } {
            Ok(delivered) => delivered,
            Err(Deadly(signal)) => {
                tracing::signal(thread, signal, is_fault(&info));
                end_by(signal)
            }
        };
        // A handler begins afresh, and a debugger may have changed them.
        if has_begun || observers::is_debugged() {
            vectors.load();
            thread.vectors.set(if has_begun { [0; 16] } else { vectors.xmm() });
        }
        let was_trapping = context.rflags & TRAP_FLAG != 0;
        engine.set_out(thread, &mut context);
        if thread.task.get() == task::WAY {
            // It goes on elsewhere than where it was on its way to.
            thread.task.set(task::NONE);
        }
        if !was_trapping {
            thread.expect_trap_on_way();
        }
    }
    thread.is_beginning.store(has_begun, Relaxed);
    set_mask(context.mask);
    thread.is_beginning.store(false, Relaxed);
    thread.is_masked.store(false, Relaxed);
    // What comes from here on interrupts the agent with the program's mask, and waits in its turn.
    compiler_fence(SeqCst);
    kept_signals::send(thread, 0);
}
