//! The time, also for programs whose system calls are filtered: the engine makes none of its own then, and goes by
//! the processor's cycles.

use crate::clone::{cycles, system};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The same moment by the kernel's clock and by the processor's.
struct Moment {
    nanoseconds: AtomicU64,
    cycles: AtomicU64,
}

impl Moment {
    const fn none() -> Self {
        Self { nanoseconds: AtomicU64::new(0), cycles: AtomicU64::new(0) }
    }

    fn set(&self) -> u64 {
        let nanoseconds = system::now();
        self.cycles.store(cycles(), Relaxed);
        self.nanoseconds.store(nanoseconds, Relaxed);
        nanoseconds
    }

    fn get(&self) -> (u64, u64) {
        (self.nanoseconds.load(Relaxed), self.cycles.load(Relaxed))
    }
}

/// When the time was asked for first, and when the program's calls became filtered.
static FIRST: Moment = Moment::none();
static SEALED: Moment = Moment::none();

/// About how often a processor can rest in a millisecond.
const RESTS: u64 = 20_000;

/// System calls are about to be filtered.
pub fn seal() {
    SEALED.set();
}

/// The time, in nanoseconds since the machine has started.
pub fn now() -> u64 {
    let (then, at) = SEALED.get();
    let (first, begun) = FIRST.get();
    if then == 0 {
        return if first == 0 { FIRST.set() } else { system::now() };
    }
    let passed = u128::from(cycles().saturating_sub(at)) * u128::from(then.saturating_sub(first));
    match at.saturating_sub(begun) {
        all if first != 0 && all != 0 => then + (passed / u128::from(all)) as u64,
        _ => then,
    }
}

/// Waits while a word has a value, for at most some milliseconds.
pub fn wait_for(word: &AtomicU32, value: u32, milliseconds: u64) {
    if SEALED.get().0 == 0 {
        return system::futex_wait_for(word, value, milliseconds);
    }
    for _ in 0..milliseconds * RESTS {
        if word.load(Relaxed) != value {
            return;
        }
        core::hint::spin_loop();
    }
}
