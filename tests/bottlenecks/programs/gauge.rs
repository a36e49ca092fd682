// Shows each value of a gauge that another thread reads from its device every three milliseconds.
#[path = "operations.rs"]
mod operations;

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);
static VALUE: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn next_value(seen: u64) -> (u64, u64) {
    loop {
        let sequence = SEQUENCE.load(Ordering::Acquire);
        if sequence != seen {
            return (sequence, VALUE.load(Ordering::Relaxed));
        }
        spin_loop();
    }
}

fn main() {
    let operations = operations::counter();
    thread::spawn(|| {
        for value in 0.. {
            thread::sleep(Duration::from_millis(3));
            VALUE.store(value, Ordering::Relaxed);
            SEQUENCE.fetch_add(1, Ordering::Release);
        }
    });
    let (mut seen, mut sum) = (0, 0u64);
    loop {
        let (sequence, value) = next_value(seen);
        seen = sequence;
        sum = sum.wrapping_add(value);
        std::hint::black_box(sum);
        operations::count(operations);
    }
}
