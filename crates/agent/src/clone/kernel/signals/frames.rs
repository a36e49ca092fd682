//! Frames of the program's handlers: written where and as the kernel would have.

use crate::clone::base::context::{Context, Frame};
use crate::clone::base::program;
use crate::clone::base::registers::{RAX, RDI, RDX, RSI, RSP};
use crate::clone::base::signals::{NEEDED, bit, block_all};
use crate::clone::cache::coprocessor;
use crate::clone::engine::Engine;
use crate::clone::engine::lock::engine;
use crate::clone::thread::actions::{
    Action, Actions, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTORER, SIG_DFL, install_as_wanted,
};
use crate::clone::thread::alternate_stack::{SS_AUTODISARM, SS_DISABLE, is_on_stack};
use crate::clone::thread::assembly;
use crate::clone::thread::pending::{fault, send_waiting_again};
use crate::clone::thread::record::Thread;
use crate::clone::thread::vectors::{start_afresh, vector_size};
use core::mem::offset_of;

/// Begins the program's handler: writes its frame, and makes the context that of the handler. If there is no room
/// for a frame, nothing has happened. Returns whether there was.
///
/// # Safety
/// The context's vector state must be there.
pub unsafe fn enter_handler(
    engine: &mut Engine,
    thread: &Thread,
    signal: usize,
    info: &[u64; 16],
    context: &mut Context,
) -> bool {
    let action = Actions::get(thread, signal);
    let mask = context.mask;
    let rsp = context.general()[RSP];
    let alternate = thread.altstack.get();
    let is_on = is_on_stack(&alternate, rsp);
    let uses = action.flags & SA_ONSTACK != 0 && alternate[1] & SS_DISABLE == 0 && !is_on;
    // Below the red zone, unless the stack is a fresh one.
    let mut sp = if uses { alternate[0] + alternate[2] } else { rsp.wrapping_sub(128) };
    let size = vector_size(context.vectors);
    sp = sp.wrapping_sub(size as u64) & !63;
    let vectors = sp;
    sp = (sp.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
    // The kernel would rather not write beyond it, nor have a handler return to nowhere.
    let is_beyond = (uses || is_on) && (sp <= alternate[0] || sp - alternate[0] > alternate[2]);
    if is_beyond || action.flags & SA_RESTORER == 0 {
        return false;
    }
    coprocessor::put_original_in_frame(&engine.cache, context.vectors);
    // A native frame, but for what is the engine's.
    let mut shown = *context;
    shown.vectors = vectors;
    shown.mask = mask & !NEEDED | thread.hidden_mask.get();
    shown.old_mask = shown.mask;
    // As it was set, wherever the thread is: the kernel does not set `SS_ONSTACK` here.
    shown.stack = alternate;
    // The kernel writes the flags, and leaves what lies beside them as it is.
    let beside = sp + (offset_of!(Frame, context) + offset_of!(Context, stack) + 12) as u64;
    shown.stack[1] |= u64::from(program::read::<u32>(beside).unwrap_or(0)) << 32;
    let frame = Frame { restorer: action.restorer, context: shown, info: *info };
    for page in engine.cache.pages.guarded_after(sp, 3) {
        engine.cache.release(page);
    }
    // SAFETY: the program's stack, where that is one.
    let is_written = unsafe {
        program::copy(sp, &raw const frame as u64, size_of::<Frame>())
            && program::copy(vectors, context.vectors, size)
    };
    if !is_written {
        return false;
    }
    if uses && alternate[1] & SS_AUTODISARM != 0 {
        thread.altstack.set([0, SS_DISABLE, 0]);
    }
    let mut general = context.general();
    general[RAX] = 0;
    general[RDI] = signal as u64;
    general[RSI] = sp + offset_of!(Frame, info) as u64;
    general[RDX] = sp + offset_of!(Frame, context) as u64;
    general[RSP] = sp;
    context.set_general(&general);
    context.rip = action.handler;
    // No single steps, no backward copies, no resumption.
    context.rflags &= !(0x100 | 0x400 | 0x1_0000);
    // SAFETY: the caller vouches for it: the state is the kernel's copy, or ours.
    unsafe { start_afresh(context.vectors) };
    let mut blocked = mask | thread.hidden_mask.get() | action.mask;
    if action.flags & SA_NODEFER == 0 {
        blocked |= bit(signal);
    }
    thread.hidden_mask.set(blocked & NEEDED);
    context.mask = blocked & !NEEDED;
    if action.flags & SA_RESETHAND != 0 {
        Actions::of(thread).0[signal] = Action { handler: SIG_DFL, ..action };
        if NEEDED & bit(signal) == 0 {
            install_as_wanted(signal, &Action::default());
        }
    }
    true
}

/// `rt_sigreturn`: the program's handler has ended. It returns to the caller where there is no frame.
pub fn return_from_handler(thread: &Thread) -> isize {
    let at = thread.general[RSP].get();
    let mut frame = Frame::default();
    let context = &mut frame.context;
    // SAFETY: the program's stack, where that is one.
    if !unsafe { program::copy(&raw mut *context as u64, at, size_of::<Context>()) } {
        return fault(thread);
    }
    thread.hidden_mask.set(context.mask & NEEDED);
    context.mask &= !NEEDED;
    let [start, flags, size] = context.stack;
    if flags & SS_DISABLE != 0 {
        thread.altstack.set([0, SS_DISABLE, 0]);
    } else {
        thread.altstack.set([start, flags & SS_AUTODISARM, size]);
    }
    let (start, size) = thread.signal_stack();
    context.stack = [start as u64, 0, size as u64];
    let mut engine = engine();
    context.rip = match thread.is_stepping() {
        true => engine.stop_before(thread, context.rip),
        false => engine.continue_at(thread, context.rip),
    };
    drop(engine);
    loop {
        assembly::return_from_signal(&raw const frame as u64 + 8);
        // A signal came. It comes again when it is let in, by the frame's mask: even one that the engine needs.
        block_all();
        send_waiting_again(thread);
    }
}
