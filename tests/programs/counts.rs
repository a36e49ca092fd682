//! Rust that counts itself; obeys the same lines as `lockstep.h` describes. Frames are left by panics.
use std::cell::Cell;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex};

const NAMES: [&str; 9] = [
    "rust_tiny", "rust_recursive", "rust_matches", "rust_panics", "rust_passes", "rust_boxed",
    "rust_iterates", "rust_text", "rust_drops",
];

thread_local! {
    static COUNTS: [Cell<u64>; 9] = const { [const { Cell::new(0) }; 9] };
}

#[inline(always)]
fn count(number: usize) {
    COUNTS.with(|counts| counts[number].set(counts[number].get() + 1));
}

#[no_mangle]
#[inline(never)]
pub fn rust_tiny(x: u64) -> u64 {
    count(0);
    x + 1
}

#[no_mangle]
#[inline(never)]
pub fn rust_recursive(depth: u64) -> u64 {
    count(1);
    if depth == 0 { 0 } else { black_box(rust_recursive(depth - 1)) + depth }
}

#[no_mangle]
#[inline(never)]
pub fn rust_matches(x: u64) -> &'static str {
    count(2);
    match x % 7 {
        0 => "zero",
        1 => "one",
        2 => "two",
        3 => "three",
        4 => "four",
        5 => "five",
        _ => "six",
    }
}

/// Ends with the frame that it is in, however that is left.
struct Ends<'a>(&'a Cell<u64>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        rust_drops(self.0);
    }
}

#[no_mangle]
#[inline(never)]
pub fn rust_drops(ended: &Cell<u64>) {
    count(8);
    ended.set(ended.get() + 1);
}

#[no_mangle]
#[inline(never)]
pub fn rust_panics(x: u64) -> u64 {
    count(3);
    if x % 2 == 0 {
        // Like a panic, without a word on standard error.
        resume_unwind(Box::new(x));
    }
    x
}

#[no_mangle]
#[inline(never)]
pub fn rust_passes(x: u64, ended: &Cell<u64>) -> u64 {
    count(4);
    let _ends = Ends(ended);
    rust_panics(x) + 2
}

#[no_mangle]
#[inline(never)]
pub fn rust_boxed(work: &dyn Fn(u64) -> u64, x: u64) -> u64 {
    count(5);
    work(x)
}

#[no_mangle]
#[inline(never)]
pub fn rust_iterates(values: &[u64]) -> u64 {
    count(6);
    values.iter().filter(|x| *x % 3 != 0).map(|x| x * x).sum()
}

#[no_mangle]
#[inline(never)]
pub fn rust_text(x: u64) -> String {
    count(7);
    format!("{x:>5}|{:<4}", rust_matches(x))
}

fn one_round(number: u64) {
    let n = number % 1000;
    assert_eq!(rust_tiny(black_box(n)), n + 1);
    assert_eq!(rust_recursive(n % 7), (n % 7) * (n % 7 + 1) / 2);
    let ended = Cell::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| rust_passes(n, &ended)));
    match outcome {
        Ok(value) => assert!(n % 2 == 1 && value == n + 2),
        Err(payload) => assert_eq!(*payload.downcast::<u64>().unwrap(), n),
    }
    assert_eq!(ended.get(), 1);
    assert_eq!(rust_boxed(&|x| rust_tiny(x) * 2, n), 2 * n + 2);
    assert_eq!(rust_iterates(&[n % 3, 3, 4]), 16 + (n % 3) * (n % 3));
    assert!(rust_text(n).starts_with(&format!("{n:>5}|")));
}

#[derive(Default)]
struct State {
    batch: u64,
    rounds: u64,
    working: usize,
    stop: bool,
    counts: [u64; 9],
}

type Shared = Arc<(Mutex<State>, Condvar)>;

fn work(shared: &Shared) {
    let (lock, changed) = &**shared;
    for done in 0.. {
        let mut state = lock.lock().unwrap();
        while state.batch == done {
            state = changed.wait(state).unwrap();
        }
        let rounds = state.rounds;
        drop(state);
        for i in 0.. {
            // Whether to stop is asked seldom: the lock would be most of the work.
            if i == rounds && rounds > 0 || rounds == 0 && i % 16 == 0 && lock.lock().unwrap().stop {
                break;
            }
            one_round(i);
        }
        let mut state = lock.lock().unwrap();
        COUNTS.with(|counts| {
            for (sum, count) in state.counts.iter_mut().zip(counts) {
                *sum += count.replace(0);
            }
        });
        state.working -= 1;
        changed.notify_all();
    }
}

fn begin(shared: &Shared, threads: usize, rounds: u64) {
    let mut state = shared.0.lock().unwrap();
    (state.counts, state.rounds, state.working, state.stop) = ([0; 9], rounds, threads, false);
    state.batch += 1;
    shared.1.notify_all();
}

fn end(shared: &Shared, total: &mut [u64; 9]) -> [u64; 9] {
    let mut state = shared.0.lock().unwrap();
    while state.working > 0 {
        state = shared.1.wait(state).unwrap();
    }
    for (sum, count) in total.iter_mut().zip(state.counts) {
        *sum += count;
    }
    std::mem::take(&mut state.counts)
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

fn show(counts: &[u64; 9]) {
    let pairs: Vec<String> =
        NAMES.iter().zip(counts).map(|(name, count)| format!("\"{name}\": {count}")).collect();
    say(&format!("{{{}}}", pairs.join(", ")));
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().unwrap()).collect();
    let threads = arguments.first().copied().unwrap_or(1);
    let shared = Shared::default();
    for _ in 0..threads {
        let shared = shared.clone();
        std::thread::spawn(move || work(&shared));
    }
    let mut total = [0; 9];
    if let Some(&rounds) = arguments.get(1) {
        begin(&shared, threads, rounds as u64);
        end(&shared, &mut total);
    } else {
        say("ready");
        for line in std::io::stdin().lock().lines() {
            let line = line.unwrap();
            if let Some(rounds) = line.strip_prefix("batch ") {
                begin(&shared, threads, rounds.parse().unwrap());
                show(&end(&shared, &mut total));
            } else if line == "go" {
                begin(&shared, threads, 0);
                say("going");
            } else {
                assert_eq!(line, "rest");
                shared.0.lock().unwrap().stop = true;
                show(&end(&shared, &mut total));
            }
        }
        shared.0.lock().unwrap().stop = true;
        end(&shared, &mut total);
    }
    show(&total);
    std::process::exit(7);
}
