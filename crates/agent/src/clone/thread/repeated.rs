//! Repeated instructions of which a thread executes a piece at a time.

use crate::clone::base::instructions::{compares, instruction_at};
use crate::clone::base::registers::RCX;
use crate::clone::thread::record::Thread;

/// Gives a thread back what is left of a repeated instruction of which it has executed a piece, if it has:
/// `general` are its registers when it was at `pc`. Returns where it is then.
pub fn rejoin(thread: &Thread, pc: u64, general: &mut [u64; 16], flags: u64) -> u64 {
    const ZERO: u64 = 0x40;
    let [start, rest] = thread.rest.take();
    if start == 0 {
        return pc;
    }
    let left = &mut general[RCX];
    if pc == start || *left != 0 {
        // It has not come to what ends the piece.
        thread.touched.set(0);
    }
    // One that compares may have found what it looks for.
    let is_found = instruction_at(start)
        .is_some_and(|it| compares(it) && (flags & ZERO != 0) == it.has_repne_prefix());
    let is_over = pc != start && (rest == 0 || *left != 0 || is_found);
    *left = left.wrapping_add(rest);
    if is_over { pc } else { start }
}

/// Does the same for a thread that is in the agent.
pub fn rejoin_in_agent(thread: &Thread, pc: u64) {
    let mut general = thread.general();
    thread.pc.set(rejoin(thread, pc, &mut general, thread.flags.get()));
    thread.set_general(&general);
}
