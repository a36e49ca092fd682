//! How the processor's time stamp counter relates to time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weft_snippet::{Clock, Source};

/// How long the counter is watched. A longer time would be more exact than anybody needs.
const WATCH: Duration = Duration::from_millis(10);
/// How many of the multiplier's bits stand for fractions.
const SHIFT: u8 = 32;

/// The clock of this machine, found out once.
pub fn clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    *CLOCK.get_or_init(|| {
        let (ticks, time) = now();
        std::thread::sleep(WATCH);
        let (later_ticks, later_time) = now();
        let nanoseconds = (later_time - time).as_nanos();
        let elapsed = u128::from(later_ticks.wrapping_sub(ticks).max(1));
        let multiplier = ((nanoseconds << SHIFT) / elapsed) as u64;
        Clock { source: Source::Processor, multiplier, shift: SHIFT, offset: 0 }
    })
}

/// Both at one moment: of several tries the one that took least.
fn now() -> (u64, Instant) {
    let mut best = (Duration::MAX, 0, Instant::now());
    for _ in 0..16 {
        let before = Instant::now();
        // SAFETY: the instruction only reads the counter, and every x86-64 processor has it.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        let took = before.elapsed();
        if took < best.0 {
            best = (took, ticks, before + took / 2);
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_takes_as_long_as_it_takes() {
        let clock = clock();
        let (ticks, time) = now();
        std::thread::sleep(Duration::from_millis(50));
        let (later, end) = now();
        let measured = clock.nanoseconds(later - ticks) as f64;
        let real = (end - time).as_nanos() as f64;
        assert!((measured / real - 1.0).abs() < 0.01, "{measured} {real}");
    }
}
