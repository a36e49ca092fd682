//! The signal that waits for a thread to be out of the agent.

use crate::clone::base::signals::{ALL, FAULT_OF_THE_KERNEL, NEEDED, send_again, set_mask};
use crate::clone::thread::kept_signals;
use crate::clone::thread::record::Thread;
use core::sync::atomic::Ordering::Relaxed;

/// Keeps the mask of a thread that leaves the clone, with all signals blocked. One that waits comes to the
/// program when it is out.
pub fn keep_mask(thread: &Thread, mask: u64) {
    if !thread.has_pending() {
        thread.pending_mask.set(mask & !NEEDED);
        kept_signals::send(thread, 0);
    } else {
        send_waiting_again(thread);
    }
}

/// Sends the signal that waits once more, and those that have come since.
pub fn send_waiting_again(thread: &Thread) {
    let info = thread.pending_info.get();
    thread.clear_pending();
    send_again(&info);
    kept_signals::send(thread, info[0] as u32 as usize);
}

/// Makes the fault wait that the kernel would have sent for a frame that is not there. Returns the result of the
/// call.
pub fn fault(thread: &Thread) -> isize {
    thread.is_masked.store(true, Relaxed);
    let mask = set_mask(ALL);
    if !thread.has_pending() {
        thread.pending_mask.set(mask);
    } else {
        send_waiting_again(thread);
    }
    thread.pending_info.set(FAULT_OF_THE_KERNEL);
    thread.set_pending();
    0
}
