//! Leading threads out of snippets.
//!
//! In the middle of a snippet the program's registers are not known, and what it has counted cannot be taken
//! back. So whatever comes there waits until the snippet is over, and with it the instruction that it
//! belongs to: else the program would go on before the snippet and execute it once more. The thread gets
//! there by itself, with a trap after each instruction.
//!
//! The same goes for a thread at the start of a function that it has reached from within. A program that has
//! interrupted it there may go on with it elsewhere, as Go does, and then it looks as if it entered the
//! function.

use crate::clone::base::context::Context;
use crate::clone::base::fail::fail_with;
use crate::clone::base::image::image;
use crate::clone::base::program;
use crate::clone::base::signals::{
    ALL, NEEDED, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP, TRAP_FLAG, bit, fault, set_mask,
};
use crate::clone::cache::program_state;
use crate::clone::cache::program_state::{Progress, State};
use crate::clone::engine::Engine;
use crate::clone::engine::lock::locked;
use crate::clone::thread::actions::{FOR_THE_ENGINE, install};
use crate::clone::thread::kept_signals;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::{Thread, stepping};
use crate::clone::tools::tracing;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Whether a thread that is interrupted has begun with a snippet, and not come to its end.
pub fn has_begun(engine: &Engine, thread: &Thread, info: &[u64; 16], context: &Context) -> bool {
    match program_state::progress(&engine.cache, context.rip) {
        Progress::Outside if is_own_fault(info) => false,
        Progress::Outside => is_at_inner(engine, thread, context),
        Progress::Within => true,
        // What the instruction itself does wrong is the program's.
        Progress::Behind(_) if is_own_fault(info) && !is_retired(engine, info, context) => false,
        Progress::Behind(address) => is_before(engine, thread, context, address),
    }
}

/// Where a thread goes on that has read where nothing is, for a snippet.
pub fn after_fault(engine: &Engine, info: &[u64; 16], pc: u64) -> Option<u64> {
    if !engine.cache.is_in_clone(pc) {
        return None;
    }
    let before =
        is_own_fault(info).then(|| program::read(pc - size_of::<u64>() as u64)).flatten()?;
    weft_snippet::after_fault(u64::to_le_bytes(before), pc)
}

/// Whether a signal was caused by what the thread has just done.
fn is_own_fault(info: &[u64; 16]) -> bool {
    let signal = info[0] as u32 as usize;
    info[1] as i32 > 0 && matches!(signal, SIGSEGV | SIGBUS | SIGFPE | SIGILL | SIGTRAP)
}

/// Whether a thread cannot go on because the code cache was flushed around it.
fn is_retired(engine: &Engine, info: &[u64; 16], context: &Context) -> bool {
    let is_fetch = context.error & fault::FETCH != 0;
    is_own_fault(info) && is_fetch && !engine.cache.is_current(context.rip)
}

/// Whether an instruction has not been executed yet.
fn is_before(engine: &Engine, thread: &Thread, context: &Context, address: u64) -> bool {
    let mut state = State { general: context.general(), pc: context.rip, stacked: None };
    program_state::find(&engine.cache, thread, &mut state);
    // Not where a trap would get into what the program keeps.
    state.pc == address && !saves_flags(address)
}

/// Whether a thread is at the start of a function that it has reached from within.
fn is_at_inner(engine: &Engine, thread: &Thread, context: &Context) -> bool {
    let mut state = State { general: context.general(), pc: context.rip, stacked: None };
    program_state::find(&engine.cache, thread, &mut state);
    program_state::is_inner(&engine.cache, context.rip, state.pc) && !saves_flags(state.pc)
}

/// Defers a signal that has come before a thread continues at the start of a function that it reaches from within.
/// Returns whether it has to.
pub fn defer(thread: &Thread) -> bool {
    let mut engine = locked();
    if !program_state::is_inner(&engine.cache, thread.target.get(), thread.pc.get())
        || saves_flags(thread.pc.get())
    {
        return false;
    }
    // In this order: what comes now must see that another one waits.
    thread.stepping.store(stepping::FOR_SIGNAL, SeqCst);
    thread.clear_pending();
    thread.pending_trap.set(thread.flags.get() & TRAP_FLAG);
    thread.flags.set(thread.flags.get() | TRAP_FLAG);
    watch_traps(&mut engine);
    set_mask(ALL & !bit(SIGTRAP));
    true
}

fn watch_traps(engine: &mut Engine) {
    engine.has_trap = true;
    install(SIGTRAP, &FOR_THE_ENGINE);
}

/// Leads a thread out of the snippet that it was interrupted in: it traps after each instruction until it is out.
pub fn lead_out(engine: &mut Engine, thread: &Thread, info: &[u64; 16], context: &mut Context) {
    let stepping = thread.stepping.load(Relaxed);
    let is_led_already = stepping != stepping::NO;
    let is_led_for_signal = stepping & stepping::FOR_SIGNAL != 0;
    if is_retired(engine, info, context) {
        // The code cache was flushed around it.
        engine.cache.let_retired_run(true);
        thread.stepping.fetch_or(stepping::FOR_FLUSH, Relaxed);
    } else if is_own_fault(info) && tracing::skip_lookup(thread, context) {
        return;
    } else if is_own_fault(info) {
        fail_with(format_args!(
            "signal {} in a snippet for address {:#x}",
            info[0] as u32, info[2]
        ));
    } else if is_led_for_signal && kept_signals::keep(thread, info) {
        return;
    } else {
        thread.pending_info.set(*info);
        thread.stepping.fetch_or(stepping::FOR_SIGNAL, Relaxed);
    }
    if is_led_already {
        return;
    }
    thread.pending_mask.set(context.mask & !NEEDED);
    thread.pending_trap.set(context.rflags & TRAP_FLAG);
    watch_traps(engine);
    context.mask = ALL & !bit(SIGTRAP);
    context.rflags |= TRAP_FLAG;
}

/// A thread that is led out has executed another instruction. When it is out, returns the signal that has
/// waited, with its description in `info`.
pub fn step(thread: &Thread, info: &mut [u64; 16], context: &mut Context) -> Option<usize> {
    let pc = context.rip;
    let way_back = Landmark::Resume.address()..=Landmark::ResumeJump.address();
    if way_back.contains(&pc) {
        // It has not come to the clone yet.
        return None;
    }
    let is_in_agent = image().contains(&pc) || locked().cache.is_gate(pc);
    if !is_in_agent && !is_out(thread, context) {
        return None;
    }
    context.rflags = context.rflags & !TRAP_FLAG | thread.pending_trap.get();
    let why = thread.stepping.swap(stepping::NO, Relaxed);
    if why & stepping::FOR_FLUSH != 0 {
        // If it is not in the agent, it will find out that it is where nothing can be executed.
        locked().cache.let_retired_run(false);
    }
    if why & stepping::FOR_SIGNAL == 0 {
        context.mask = thread.pending_mask.get();
        return None;
    }
    if is_in_agent {
        // Which looks for what has come before it goes back.
        context.mask = all_but_traps(context);
        thread.set_pending();
        return None;
    }
    context.mask = thread.pending_mask.get();
    *info = thread.pending_info.get();
    Some(info[0] as u32 as usize)
}

/// All signals but the traps of a program that steps itself, and was interrupted before the agent has put its flags aside:
/// the kernel ends a process that traps with traps blocked.
pub fn all_but_traps(context: &Context) -> u64 {
    if context.rflags & TRAP_FLAG != 0 { ALL & !bit(SIGTRAP) } else { ALL }
}

/// Whether a thread is behind the snippet and its instruction.
fn is_out(thread: &Thread, context: &Context) -> bool {
    let engine = locked();
    match program_state::progress(&engine.cache, context.rip) {
        Progress::Within => false,
        Progress::Behind(address) => !is_before(&engine, thread, context, address),
        Progress::Outside => !is_at_inner(&engine, thread, context),
    }
}

/// Whether an instruction puts the flags somewhere, or gets them from there.
fn saves_flags(address: u64) -> bool {
    // SAFETY: the program's own code, which is just being executed.
    let bytes = unsafe { *(address as *const [u8; 2]) };
    let is_prefix = matches!(bytes[0], 0x66 | 0x40..=0x4f);
    matches!(bytes[usize::from(is_prefix)], 0x9c | 0x9d | 0xcf)
}
