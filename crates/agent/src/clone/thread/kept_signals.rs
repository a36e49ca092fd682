//! Signals that come while another one waits.
//!
//! A thread that is in the agent has room for one signal, and all others are blocked until that is delivered. But
//! those that the engine needs itself are never blocked, nor are traps while a thread is led out of a snippet; and
//! a program can be sent any of them by `kill`. So each has a place of its own here. One that comes again before it
//! is delivered is merged with the first, as the kernel does.
//!
//! What is kept is sent once more as soon as nothing else waits and the mask is the program's again: at the end of
//! `deliver_pending`, or at the end of the handler that has interrupted the clone ([`send_after`]). Something is
//! kept only while one of these is still to come.

use crate::clone::base::context::Context;
use crate::clone::base::registers::RSP;
use crate::clone::base::signals::{NEEDED, SIGBUS, SIGSEGV, SIGTRAP, bit, block_all, send_again};
use crate::clone::thread::halt_requests;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::{KEPT_SIGNALS, Thread, stepping};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use weft_abi::halt::reason;

/// The signals that have a place, in this order.
const SIGNALS: [usize; KEPT_SIGNALS] = [SIGSEGV, SIGBUS, SIGTRAP];

/// In place of a signal: the debugger has requested that the thread stand still.
const HALT_REQUEST: u32 = 1 << KEPT_SIGNALS;

/// Whether a signal that has interrupted the agent there has to wait for something else: a signal that waits, one
/// that is being delivered, or a handler. Then the mask is not the program's.
pub fn is_waiting(thread: &Thread, context: &Context) -> bool {
    let (start, size) = thread.signal_stack();
    // The agent's own stack ends where that of handlers begins.
    let on_stack = context.general()[RSP].wrapping_sub(start as u64 + 1);
    on_stack < size as u64
        || thread.is_masked.load(Relaxed)
        || thread.has_pending()
        || thread.stepping.load(Relaxed) != stepping::NO
}

/// Keeps a signal, if it is one that has a place. Returns whether it is.
pub fn keep(thread: &Thread, info: &[u64; 16]) -> bool {
    if halt_requests::reason_of(info).is_some() {
        thread.kept_signals.fetch_or(HALT_REQUEST, SeqCst);
        return true;
    }
    let signal = info[0] as u32 as usize;
    let Some(place) = SIGNALS.iter().position(|&other| other == signal) else { return false };
    if thread.kept_signals.load(SeqCst) & 1 << place == 0 {
        thread.kept_infos[place].set(*info);
        if thread.kept_signals.fetch_or(1 << place, SeqCst) & 1 << place != 0 {
            // The same signal has come in the middle of that. From here on nothing else writes there.
            thread.kept_infos[place].set(*info);
        }
    }
    true
}

/// Sends what is kept once more. The kernel has room for one of a kind, too: what is like `sent`, which waits
/// there already, stays for the next time, that is when that one has been delivered.
pub fn send(thread: &Thread, mut sent: usize) {
    if thread.kept_signals.load(SeqCst) & HALT_REQUEST != 0 && sent != SIGSEGV {
        thread.kept_signals.fetch_and(!HALT_REQUEST, SeqCst);
        send_again(&halt_requests::request(reason::ASKED, 0));
        sent = SIGSEGV;
    }
    for (place, signal) in SIGNALS.into_iter().enumerate() {
        if thread.kept_signals.load(SeqCst) & 1 << place != 0 && signal != sent {
            // Nothing writes there while the bit is set. One that comes before it is cleared is this one.
            let info = thread.kept_infos[place].get();
            thread.kept_signals.fetch_and(!(1 << place), SeqCst);
            send_again(&info);
        }
    }
}

/// Drops a request to stand still: the thread does.
pub fn drop_halt_request(thread: &Thread) {
    thread.kept_signals.fetch_and(!HALT_REQUEST, SeqCst);
}

/// At the end of a handler that has kept something: sends it, unless what it goes back to does so. It comes when
/// the kernel has put the mask back.
pub extern "C" fn send_after(context: &Context) {
    let thread = Thread::current();
    if !is_waiting(thread, context) {
        block_all();
        send(thread, 0);
    }
}

/// Postpones a signal that has interrupted a handler behind its last look at what is kept. Returns whether it has.
pub fn is_after_last_look(info: &[u64; 16], context: &mut Context) -> bool {
    let last = Landmark::Handled.address()..=Landmark::HandledInstruction.address();
    if !last.contains(&context.rip) {
        return false;
    }
    // All that is left to do there is to restore the mask: the signal comes right after that.
    context.mask |= NEEDED | bit(SIGTRAP);
    block_all();
    send_again(info);
    true
}
