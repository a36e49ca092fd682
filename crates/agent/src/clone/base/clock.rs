//! The time, also for programs whose system calls are filtered: the engine makes none of its own then, and goes by
//! the processor's cycles.

use crate::clone::base::system;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Whether the program has forbidden itself to read the time stamp counter.
static IS_COUNTER_FORBIDDEN: AtomicU32 = AtomicU32::new(0);

/// Whether the program has forbidden itself to read the time stamp counter.
pub fn is_counter_forbidden() -> bool {
    IS_COUNTER_FORBIDDEN.load(Relaxed) != 0
}

/// The time stamp counter; 0 if the program has forbidden itself to read it.
pub fn cycles() -> u64 {
    if is_counter_forbidden() {
        return 0;
    }
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Stops reading the time stamp counter: that is about to be a fault.
pub fn forbid_counter() {
    IS_COUNTER_FORBIDDEN.store(1, Relaxed);
}

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

/// When the time was read first, and when the program's calls became filtered.
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
