//! Requests to a thread to stand still for a debugger: signals that look like no other.

use crate::clone::base::signals::SIGSEGV;
use weft_abi::halt::{HALT_MAGIC, reason};

/// How the kernel marks a signal that a process has queued.
const SI_QUEUE: i32 = -1;

/// A signal that requests that a thread stand still.
pub fn request(reason: u64, about: u64) -> [u64; 16] {
    let mut info = [0; 16];
    let words = [SIGSEGV as u64, u64::from(SI_QUEUE as u32), 0, HALT_MAGIC, reason, about];
    info[..words.len()].copy_from_slice(&words);
    info
}

/// Why a signal requests that a thread stand still; `None` if it is another signal.
pub fn reason_of(info: &[u64; 16]) -> Option<u64> {
    let is_request =
        info[0] as u32 as usize == SIGSEGV && info[1] as i32 == SI_QUEUE && info[3] == HALT_MAGIC;
    is_request.then(|| if info[4] == reason::NONE { reason::ASKED } else { info[4] })
}
