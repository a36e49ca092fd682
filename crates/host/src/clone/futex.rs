//! Waiting for words that a program shares with weft.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// How long to wait at most: the program may be gone, and wake nobody.
const ROUND: Duration = Duration::from_millis(200);

/// Waits until a word is woken that has a value, but not for long.
pub fn wait_for(word: &AtomicU32, value: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time);
    }
}

/// Wakes all that wait for a word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the call takes an address, and reads nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
