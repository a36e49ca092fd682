//! Nanoseconds for each operation: `cargo test --release -- --ignored --nocapture bench`.
#![allow(missing_docs)]

mod common;

use common::{Machine, compiled, map, parse, places, site};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use weft_code::{FlagSet, RegisterSet};
use weft_snippet::layout::{RING_HEAD, RING_TAIL, Region};
use weft_snippet::{Compiled, PointKind, Site, Weave, compile};

fn region() -> Region {
    Region { count_log2: 8, stride_log2: 22, state_end: 8192, key_shift: 12 }
}

/// A loop around pieces of code, each of them as a point would have it.
struct Loop {
    at: u64,
}

impl Loop {
    /// `push rbx; mov rbx, rdi`: the loop counts in a register that snippets keep.
    const START: [u8; 4] = [0x53, 0x48, 0x89, 0xfb];

    fn new(pieces: &[Compiled]) -> Self {
        let at = map(0x10000, true, false);
        let mut cold_at = at + 0x8000;
        let mut code = Self::START.to_vec();
        for piece in pieces {
            let (main, cold) = piece.place(at + code.len() as u64, cold_at);
            code.extend_from_slice(&main);
            // SAFETY: just mapped, and large enough.
            unsafe {
                std::ptr::copy_nonoverlapping(cold.as_ptr(), cold_at as *mut u8, cold.len());
            }
            cold_at += cold.len() as u64;
        }
        Self::close(at, code)
    }

    fn of(body: &[u8]) -> Self {
        Self::close(map(0x1000, true, false), [&Self::START, body].concat())
    }

    /// `dec rbx; jnz; pop rbx; ret`.
    fn close(at: u64, mut code: Vec<u8>) -> Self {
        code.extend_from_slice(&[0x48, 0xff, 0xcb, 0x0f, 0x85]);
        let back = Self::START.len() as i32 - (code.len() as i32 + 4);
        code.extend_from_slice(&back.to_le_bytes());
        code.extend_from_slice(&[0x5b, 0xc3]);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
        Self { at }
    }

    /// Nanoseconds a turn.
    fn run(&self, times: u64) -> f64 {
        self.timed(times, |began: &Instant| began.elapsed().as_nanos() as f64, Instant::now())
    }

    /// The same by the thread's own clock: for when others want the processor too.
    fn run_alone(&self, times: u64) -> f64 {
        self.timed(times, |began: &f64| thread_time() - began, thread_time())
    }

    fn timed<T>(&self, times: u64, elapsed: impl Fn(&T) -> f64, began: T) -> f64 {
        // SAFETY: the loop keeps the C ABI: rbx is saved, and dead registers are its to change.
        let function: extern "C" fn(u64, u64, u64) = unsafe { std::mem::transmute(self.at) };
        function(times, 12345, 678);
        elapsed(&began) / times as f64
    }

    fn best(&self, times: u64) -> f64 {
        (0..7).map(|_| self.run(times)).fold(f64::INFINITY, f64::min)
    }
}

fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn woven(machine: &Machine, weave: &Weave, sites: &[Site]) -> Loop {
    let pieces: Vec<Compiled> = sites.iter().map(|site| compiled(machine, weave, site)).collect();
    Loop::new(&pieces)
}

#[test]
#[ignore = "measures; run it alone and with --release"]
fn bench_operations() {
    let machine = Machine::new(true, false, region());
    let entry = site(PointKind::Entry);
    let empty = Loop::new(&[]).best(10_000_000);
    let show = |name: &str, ns: f64| println!("{name:<42} {:8.2} ns", ns - empty);
    println!("{:<42} {empty:8.2} ns", "empty loop (taken off)");
    // What the processor itself takes: no snippet can be faster.
    for (name, code) in
        [("rdtsc alone", &[0x0f, 0x31][..]), ("rdfsbase alone", &[0xf3, 0x48, 0x0f, 0xae, 0xc0])]
    {
        show(name, Loop::of(code).best(1_000_000));
    }
    let one = |name: &str, text: &str, sites: &[Site], times| {
        show(name, woven(&machine, &parse(text), sites).best(times));
    };
    let count = "counter c\nc += 1";
    one("counter", count, &[entry], 10_000_000);
    let mut quick = Machine::new(true, false, region());
    quick.env.thread_pointer = true;
    show("counter, by fs:0", woven(&quick, &parse(count), &[entry]).best(10_000_000));
    let flags = Site { live_flags: FlagSet::ALL, ..entry };
    one("counter, flags live", count, &[flags], 10_000_000);
    let crowded = Site { dead: RegisterSet::NONE, ..flags };
    one("counter, all live", count, &[crowded], 10_000_000);
    one("two counters", "counter c; counter d\nc += 1; d += 1", &[entry], 10_000_000);
    one("decision, not taken", "counter c\nif arg(1) > 99999 { c += 1 }", &[entry], 10_000_000);
    let pair = [entry, site(PointKind::Exit)];
    let timer = "timer t wall\nat entry { start t }\nat exit { stop t }";
    one("wall timer, start and stop", timer, &pair, 1_000_000);
    let quick_pair = woven(&quick, &parse(timer), &pair).best(1_000_000);
    show("wall timer, start and stop, by fs:0", quick_pair);
    let timer = "timer t cpu\nat entry { start t }\nat exit { stop t }";
    one("cpu timer, start and stop", timer, &pair, 100_000);
    one("histogram log2", "histogram h log2\nh << arg(1)", &[entry], 10_000_000);
    one("histogram linear", "histogram h linear 0 1000 64\nh << arg(1)", &[entry], 10_000_000);
    one("map, one key", "map m[1] 64\nm[arg(1)] += 1", &[entry], 10_000_000);
    one("map, two keys", "map m[2] 64\nm[arg(1), arg(2)] += 1", &[entry], 10_000_000);
    let mark = "mark m; counter c\nat entry { stamp m }\nat exit { c += since(m) }";
    one("mark, stamp and since", mark, &pair, 1_000_000);
    one("ticks", "counter c\nc += ticks", &[entry], 1_000_000);
    one("now", "counter c\nc += now", &[entry], 1_000_000);
    one("division", "counter c\nc += arg(1) / arg(2)", &[entry], 10_000_000);
    one(
        "double: c += int(float(a) * 1.5)",
        "counter c\nc += int(float(arg(1)) * 1.5)",
        &[entry],
        1_000_000,
    );
    one("load64 of the stack", "counter c\nc += load64(frame)", &[entry], 1_000_000);
    one(
        "load64 of the heap",
        &format!("counter c\nc += load64({})", machine.slabs),
        &[entry],
        100_000,
    );
    one("load64 of nothing", "counter c\nc += load64(8)", &[entry], 100_000);
    extern "C" fn nothing() {}
    let call = format!("counter c\ncall {}(1)", nothing as *const () as u64);
    one("call of an empty function", &call, &[entry], 1_000_000);

    for (name, fields, values) in [
        ("record, two fields", "a, b", "arg(1), arg(2)"),
        ("record, ticks and two fields", "t, a, b", "ticks, arg(1), arg(2)"),
    ] {
        const RECORDS: u64 = 65536;
        let weave = parse(&format!("ring r({fields}) {RECORDS}\nemit r({values})"));
        let place = places(&machine.env.region, &weave.data)[0].sums as usize;
        let turns = woven(&machine, &weave, &[entry]);
        let mut best = f64::INFINITY;
        for _ in 0..50 {
            let ring = &mut machine.slab()[place..];
            let head = ring[RING_HEAD as usize..][..8].to_vec();
            ring[RING_TAIL as usize..][..8].copy_from_slice(&head);
            best = best.min(turns.run(RECORDS));
        }
        show(name, best);
    }
}

#[test]
#[ignore = "measures; run it alone and with --release"]
fn bench_two_threads() {
    let machine = Machine::new(true, false, region());
    let turns = woven(&machine, &parse("counter c\nc += 1"), &[site(PointKind::Entry)]);
    const TIMES: u64 = 50_000_000;
    let nothing = Loop::new(&[]);
    for (name, turns, times) in
        [("counter", &turns, TIMES), ("no memory at all", &nothing, 8 * TIMES)]
    {
        let alone = (0..5).map(|_| turns.run_alone(times));
        let single = alone.fold(f64::INFINITY, f64::min);
        let mut best = [0.0_f64; 2];
        for _ in 0..5 {
            let start = std::sync::Barrier::new(2);
            let run = || {
                start.wait();
                turns.run_alone(times)
            };
            let both = std::thread::scope(|scope| {
                let threads = [scope.spawn(run), scope.spawn(run)];
                threads.map(|thread| single / thread.join().unwrap())
            });
            if both[0].min(both[1]) > best[0].min(best[1]) {
                best = both;
            }
        }
        println!(
            "{name}: {single:.2} ns alone; two threads at once keep {:.0}% and {:.0}% of the rate",
            100.0 * best[0],
            100.0 * best[1]
        );
    }
}

#[test]
#[ignore = "measures; run it alone and with --release"]
fn bench_compile() {
    let machine = Machine::new(true, false, region());
    let weave = parse("counter c\nc += 1");
    let places = places(&machine.env.region, &weave.data);
    let body = weave.body(PointKind::Entry).unwrap();
    let flags =
        Site { live_flags: FlagSet::ALL, dead: RegisterSet::NONE, ..site(PointKind::Entry) };
    for (name, site) in [("dead registers", site(PointKind::Entry)), ("nothing dead", flags)] {
        let total = AtomicU64::new(0);
        let began = Instant::now();
        for index in 0..50_000 {
            let code = compile(&weave.data, body, &site, &machine.env, &places).unwrap();
            let at = machine.code + 64 * index;
            let (main, cold) = code.place(at, at + 64);
            total.fetch_add((main.len() + cold.len()) as u64, Relaxed);
        }
        println!(
            "50,000 counters compiled and placed, {name}: {:?}, {} bytes each",
            began.elapsed(),
            total.load(Relaxed) / 50_000
        );
    }
}
