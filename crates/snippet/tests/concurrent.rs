//! Threads, forks, signals and readers: nothing is lost, nothing is torn, nothing hangs.
#![allow(missing_docs)]

mod common;

use common::{Machine, compiled, map, parse, places, site};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weft_snippet::layout::header::RETIRED;
use weft_snippet::layout::{Place, Region};
use weft_snippet::read::{self, Ring, Slab};
use weft_snippet::{Buckets, PointKind, Weave, renew};

fn region() -> Region {
    Region { count_log2: 7, stride_log2: 16, state_end: 4096, key_shift: 12 }
}

/// A snippet as a function: callable from any thread, again and again.
type Function = extern "C" fn(u64, u64, u64);

struct Woven {
    machine: Machine,
    weave: Weave,
    places: Vec<Place>,
}

impl Woven {
    fn new(region: Region, text: &str) -> Self {
        let machine = Machine::new(true, false, region);
        let weave = parse(text);
        let places = places(&machine.env.region, &weave.data);
        Self { machine, weave, places }
    }

    /// Compiles for a function's entry, with a return after it.
    fn function(&self, kind: PointKind) -> Function {
        let at = map(0x4000, true, false);
        let code = compiled(&self.machine, &self.weave, &site(kind));
        let (mut main, cold) = code.place(at, at + 0x2000);
        main.push(0xc3);
        // SAFETY: just mapped, large enough, and code that keeps the C ABI.
        unsafe {
            std::ptr::copy_nonoverlapping(main.as_ptr(), at as *mut u8, main.len());
            std::ptr::copy_nonoverlapping(cold.as_ptr(), (at + 0x2000) as *mut u8, cold.len());
            std::mem::transmute(at)
        }
    }

    fn words(&self) -> &[AtomicU64] {
        let size = self.machine.env.region.size() / 8;
        // SAFETY: mapped for as long as the machine lives, and only accessed as words.
        unsafe { std::slice::from_raw_parts(self.machine.slabs as *const AtomicU64, size) }
    }

    fn slabs(&self) -> impl Iterator<Item = Slab<'_>> {
        read::slabs(self.words(), &self.machine.env.region)
    }

    fn owned(&self) -> Vec<Slab<'_>> {
        self.slabs().filter(|slab| slab.thread().1 != 0).collect()
    }
}

const THREADS: u64 = 16;

#[test]
fn sixteen_threads_lose_nothing() {
    const TIMES: u64 = 50_000;
    let woven = Woven::new(
        region(),
        "counter c; histogram h log2; histogram l linear 0 10 8; map m[1] 32; map p[2] 32\n\
         c += 1; h << arg(0); l << arg(0); m[arg(0) & 15] += arg(1)\n\
         p[arg(0) & 3, thread] += 1",
    );
    let function = woven.function(PointKind::Entry);
    let start = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for number in 0..TIMES {
                    function(number, 3, 0);
                }
                // No stack may be used again while others are at work: its slab is one thread's.
                start.wait();
            });
        }
    });
    let slabs = woven.owned();
    assert_eq!(slabs.len() as u64, THREADS);
    let all = || slabs.iter().copied();
    assert_eq!(read::sum_counter(woven.slabs(), woven.places[0]) as u64, THREADS * TIMES);
    let log2 = read::sum_histogram(all(), woven.places[1], Buckets::Log2);
    assert_eq!(log2.sum as u64, THREADS * TIMES * (TIMES - 1) / 2);
    assert_eq!(log2.buckets[3], (4, 4 * THREADS));
    assert_eq!(log2.buckets.iter().map(|bucket| bucket.1).sum::<u64>(), THREADS * TIMES);
    let linear = Buckets::Linear { low: 0, step: 10, count: 8 };
    let linear = read::sum_histogram(all(), woven.places[2], linear);
    assert_eq!(linear.buckets[0], (i64::MIN, 0));
    assert_eq!(
        linear.buckets[1..9],
        [0, 10, 20, 30, 40, 50, 60, 70].map(|low| (low, 10 * THREADS))
    );
    assert_eq!(linear.buckets[9], (80, THREADS * (TIMES - 80)));
    let map = read::sum_map(all(), woven.places[3], 1, 32);
    assert_eq!(map.lost, 0);
    assert_eq!(map.entries.len(), 16);
    assert!(map.entries.values().all(|sum| *sum as u64 == 3 * THREADS * TIMES / 16));
    let pairs = read::sum_map(all(), woven.places[4], 2, 32);
    assert_eq!(pairs.entries.len() as u64, 4 * THREADS);
    assert!(pairs.entries.values().all(|sum| *sum as u64 == TIMES / 4));
    let threads: std::collections::BTreeSet<u32> =
        slabs.iter().map(|slab| slab.thread().0).collect();
    assert_eq!(threads.len() as u64, THREADS);
}

#[test]
fn a_forked_child_has_its_own_slab() {
    let woven = Woven::new(region(), "counter c; local x\nc += 1; x += 1");
    let function = woven.function(PointKind::Entry);
    // What the kernel does for a live process: the child finds the salt zeroed.
    // SAFETY: a page of this test's own.
    let wiped = unsafe {
        libc::madvise((woven.machine.env.salt & !4095) as *mut _, 4096, libc::MADV_WIPEONFORK)
    };
    assert_eq!(wiped, 0);
    function(0, 0, 0);
    let mut children = Vec::new();
    for _ in 0..3 {
        // SAFETY: the child runs the snippet and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            (0..1000).for_each(|_| function(0, 0, 0));
            // SAFETY: nothing of the parent's is run on the way out.
            unsafe { libc::_exit(0) };
        }
        children.push(child as u32);
    }
    for child in &children {
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(*child as i32, &mut status, 0) }, *child as i32);
        assert_eq!(status, 0);
    }
    function(0, 0, 0);
    let slabs = woven.owned();
    assert_eq!(slabs.len(), 4);
    for slab in slabs {
        let (tid, pid) = slab.thread();
        let count = slab.word(woven.places[0].sums);
        assert_eq!(slab.word(woven.places[1].state), count);
        assert_eq!(count, if pid == std::process::id() { 2 } else { 1000 });
        assert!(pid == std::process::id() || children.contains(&pid) && tid == pid);
    }
}

#[test]
fn threads_without_a_slab_share_the_last_one() {
    let woven = Woven::new(
        Region { count_log2: 3, stride_log2: 12, state_end: 1024, ..region() },
        "counter c\nc += 1",
    );
    let function = woven.function(PointKind::Entry);
    let start = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..1000).for_each(|_| function(0, 0, 0));
                start.wait();
            });
        }
    });
    let slabs: Vec<Slab> = woven.slabs().collect();
    assert_eq!(slabs.len(), 7);
    assert!(slabs[6].overflowed());
    let exact: u64 = slabs[..6].iter().map(|slab| slab.word(woven.places[0].sums)).sum();
    assert_eq!(exact, 6000, "those with a slab are exact");
    assert!(slabs[..6].iter().all(|slab| !slab.overflowed()));
    let shared = slabs[6].word(woven.places[0].sums);
    assert!((1000..=10_000).contains(&shared), "{shared}");
}

#[test]
fn a_retired_slab_is_used_again() {
    let woven = Woven::new(region(), "counter c; local x\nc += 1; x += 1");
    let function = woven.function(PointKind::Entry);
    let departed = Departed::new();
    function(0, 0, 0);
    let before = woven.owned()[0];
    departed.fold(before, &woven);
    before.retire(&woven.machine.env.region);
    assert!(woven.owned().is_empty());
    assert!(!before.is_used() && before.was_used());
    function(0, 0, 0);
    assert_eq!(woven.owned().len(), 1);
    assert_eq!(before.word(woven.places[0].sums), 1);
    assert_eq!(before.word(woven.places[1].state), 1);
    assert_eq!(departed.slab().word(woven.places[0].sums), 1);
    assert_eq!(read::claims(woven.words()), 2);
}

/// A slab that no thread has.
struct Departed(Vec<AtomicU64>);

impl Departed {
    fn new() -> Self {
        Self((0..region().stride() / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn slab(&self) -> Slab<'_> {
        Slab::new(&self.0)
    }

    fn fold(&self, slab: Slab<'_>, woven: &Woven) {
        for (datum, &place) in woven.weave.data.iter().zip(&woven.places) {
            slab.fold(self.slab(), datum, place);
        }
    }
}

#[test]
fn who_looks_for_its_slab_goes_past_those_that_were_given_back() {
    // All threads begin to look at the same slab.
    let region = Region { count_log2: 4, key_shift: 28, stride_log2: 12, state_end: 1024 };
    let woven = Woven::new(region, "local x\nx += 1");
    let function = woven.function(PointKind::Entry);
    let meet = std::sync::Barrier::new(13);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                function(0, 0, 0);
                meet.wait();
                meet.wait();
                function(0, 0, 0);
                meet.wait();
            });
        }
        meet.wait();
        let (gone, there): (Vec<_>, Vec<_>) =
            woven.owned().into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
        assert_eq!(gone.len() + there.len(), 12);
        gone.iter().for_each(|(_, slab)| slab.retire(&region));
        meet.wait();
        meet.wait();
        assert!(there.iter().all(|(_, slab)| slab.word(woven.places[0].state) == 2));
        assert_eq!(woven.owned().len(), 12, "each has one");
    });
}

#[test]
fn what_was_given_back_becomes_fresh_where_nobody_goes_past_it() {
    let owners = [7, RETIRED, RETIRED, 0, RETIRED, 9, RETIRED, 0];
    let words: Vec<AtomicU64> = owners.into_iter().map(AtomicU64::new).collect();
    renew(words.chunks(1).map(Slab::new));
    let now: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!(now, [7, 0, 0, 0, RETIRED, 9, 0, 0]);
}

#[test]
fn what_ended_threads_measured_is_kept_together() {
    let woven = Woven::new(
        region(),
        "counter c; histogram h log2; map m[1] 8; map p[2] 8; ring r(a) 16\n\
         c += 1; h << arg(0); m[arg(0)] += 2; p[arg(0), arg(1)] += 3; emit r(arg(0))",
    );
    let function = woven.function(PointKind::Entry);
    let departed = Departed::new();
    for number in 0..4_u64 {
        std::thread::scope(|scope| {
            scope.spawn(|| (number..number + 4).for_each(|key| function(key, key & 1, 0)));
        });
        for slab in woven.owned() {
            departed.fold(slab, &woven);
            slab.retire(&woven.machine.env.region);
        }
        assert!(woven.slabs().all(|slab| slab.word(woven.places[0].sums) == 0));
    }
    let all = || [departed.slab()].into_iter();
    assert_eq!(read::sum_counter(all(), woven.places[0]), 16);
    let histogram = read::sum_histogram(all(), woven.places[1], Buckets::Log2);
    assert_eq!(histogram.sum, (0..4).map(|n| 4 * n + 6).sum::<i64>());
    let map = read::sum_map(all(), woven.places[2], 1, 8);
    let often = [1, 2, 3, 4, 3, 2, 1];
    assert_eq!(
        map.entries.into_iter().collect::<Vec<_>>(),
        (0..7).map(|key| ([key, 0], 2 * often[key as usize])).collect::<Vec<_>>()
    );
    let pairs = read::sum_map(all(), woven.places[3], 2, 8);
    assert_eq!(
        pairs.entries.into_iter().collect::<Vec<_>>(),
        (0..7).map(|key| ([key, key & 1], 3 * often[key as usize])).collect::<Vec<_>>()
    );
    assert_eq!((map.lost, pairs.lost), (0, 0));
    assert_eq!(read::ring_written(departed.slab(), woven.places[4]), (16, 0));
}

#[test]
fn what_finds_no_room_among_the_ended_is_counted() {
    let woven = Woven::new(region(), "map m[1] 8\nm[arg(0)] += 2");
    let function = woven.function(PointKind::Entry);
    let departed = Departed::new();
    for number in 0..8 {
        (0..8).for_each(|key| function(8 * number + key, 0, 0));
        for slab in woven.owned() {
            departed.fold(slab, &woven);
            slab.retire(&woven.machine.env.region);
        }
    }
    let map = read::sum_map([departed.slab()].into_iter(), woven.places[0], 1, 8);
    assert!(map.lost > 0);
    assert_eq!(map.entries.values().sum::<i64>() + map.lost_sum, 2 * 64);
}

static HANDLER: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the test stores functions of this type, and takes the handler away before they go.
    let function: Function = unsafe { std::mem::transmute(HANDLER.load(Relaxed)) };
    let number = HANDLED.fetch_add(1, Relaxed);
    for step in 0..3 {
        function(number.wrapping_mul(7) + step, 3, 0);
    }
}

/// How many signals make a storm.
const ENOUGH: u64 = 1000;

#[test]
fn a_storm_of_signals_loses_nothing() {
    let woven = Woven::new(
        Region { stride_log2: 20, count_log2: 7, ..region() },
        "counter c; histogram h log2; map m[1] 4096; map p[2] 4096; ring r(a, b, c) 8192\n\
         local x\n\
         x += 1; c += arg(1); h << arg(0); m[arg(0) & 1023] += 1; p[arg(0) & 255, arg(0) & 3] += 1\n\
         emit r(arg(0), ~arg(0), arg(0) * 3); x -= 1",
    );
    let function = woven.function(PointKind::Entry);
    HANDLER.store(function as usize as u64, Relaxed);
    let stop = AtomicU64::new(0);
    let (mut calls, mut received) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, woven) = (&stop, &woven);
        let worker = scope.spawn(move || {
            // SAFETY: the handler only runs the snippet, which is made for that.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                // Each may come while the other is handled.
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
                libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
                sender.send(libc::pthread_self() as u64).unwrap();
            }
            let mut calls = 0_u64;
            while stop.load(Relaxed) == 0 {
                function(calls, 3, 0);
                calls += 1;
            }
            calls
        });
        let target = receiver.recv().unwrap();
        // On a busy machine it takes longer until enough have come.
        let began = Instant::now();
        let goes_on = move || {
            let is_enough = HANDLED.load(Relaxed) > ENOUGH;
            let seconds = began.elapsed().as_secs();
            seconds < 2 || !is_enough && seconds < 60
        };
        let mut records = 0_u64;
        let mut consume = || {
            for slab in woven.owned() {
                let ring = Ring::new(slab, woven.places[4], &woven.weave.data[4].kind).unwrap();
                ring.consume(|record| {
                    assert_eq!(record[1], !record[0]);
                    assert_eq!(record[2], record[0].wrapping_mul(3));
                    records += 1;
                });
            }
        };
        let killer = scope.spawn(move || {
            while goes_on() {
                // SAFETY: the worker runs until told to stop, after this thread.
                unsafe {
                    libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR1);
                    libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR2);
                }
            }
        });
        while !killer.is_finished() {
            consume();
        }
        stop.store(1, Relaxed);
        calls = worker.join().unwrap();
        consume();
        received = records;
    });
    let handled = HANDLED.load(Relaxed);
    let total = calls + 3 * handled;
    println!("{calls} calls, {handled} signals, {received} records");
    assert!(handled > ENOUGH, "{handled} signals");
    assert_eq!(woven.owned().len(), 1);
    let slab = woven.owned()[0];
    assert_eq!(slab.word(woven.places[0].sums), 3 * total);
    assert_eq!(slab.word(woven.places[5].state), 0);
    let one = || std::iter::once(slab);
    let histogram = read::sum_histogram(one(), woven.places[1], Buckets::Log2);
    assert_eq!(histogram.buckets.iter().map(|bucket| bucket.1).sum::<u64>(), total);
    for (place, keys) in [(woven.places[2], 1), (woven.places[3], 2)] {
        let map = read::sum_map(one(), place, keys, 4096);
        assert_eq!(map.entries.values().sum::<i64>() as u64 + map.lost_sum as u64, total);
        assert_eq!(map.lost, 0);
    }
    let lost = Ring::new(slab, woven.places[4], &woven.weave.data[4].kind).unwrap().lost();
    assert_eq!(received + lost, total, "{received} received, {lost} lost");
}

#[test]
fn timers_survive_a_storm() {
    let woven = Woven::new(
        region(),
        "timer t wall; mark m; counter lost; counter n\n\
         at entry { start t; stamp m }\n\
         at exit { stop t; n += 1; if since(m) < 0 { lost += 1 } }",
    );
    let (enter, leave) = (woven.function(PointKind::Entry), woven.function(PointKind::Exit));
    #[inline(never)]
    extern "C" fn pair(enter: Function, leave: Function) {
        enter(0, 0, 0);
        leave(0, 0, 0);
        // Or the second call would become a jump, from another frame.
        std::hint::black_box(());
    }
    static PAIR: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    extern "C" fn on_alarm(_: libc::c_int) {
        // SAFETY: as above.
        let [enter, leave]: [Function; 2] =
            unsafe { std::mem::transmute(PAIR.each_ref().map(|word| word.load(Relaxed))) };
        pair(enter, leave);
    }
    PAIR[0].store(enter as usize as u64, Relaxed);
    PAIR[1].store(leave as usize as u64, Relaxed);
    let mut times = 0_u64;
    let began = Instant::now();
    // SAFETY: the handler only runs snippets; the timer is taken away again.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
        let mut interval: libc::itimerval = std::mem::zeroed();
        interval.it_interval.tv_usec = 50;
        interval.it_value.tv_usec = 50;
        libc::setitimer(libc::ITIMER_PROF, &interval, std::ptr::null_mut());
        while began.elapsed() < Duration::from_millis(500) {
            (0..1000).for_each(|_| pair(enter, leave));
            times += 1000;
        }
        interval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_PROF, &interval, std::ptr::null_mut());
    }
    // The alarm goes to any thread of the process: one may still be at it.
    std::thread::sleep(Duration::from_millis(20));
    let sum = read::sum_timer(woven.slabs(), woven.places[0], weft_snippet::TimerClock::Wall, 0);
    assert_eq!(sum.running, 0);
    assert!(sum.count <= read::sum_counter(woven.slabs(), woven.places[3]) as u64);
    assert!(sum.count >= times);
    assert_eq!(read::sum_counter(woven.slabs(), woven.places[2]), 0, "no stamp was lost");
    // For an alarm that comes later still.
    std::mem::forget(woven);
}

#[test]
fn a_ring_tears_nothing_and_counts_its_losses() {
    for blocking in ["", " blocking"] {
        const TIMES: u64 = 300_000;
        let text = format!("ring r(a, b, c) 256{blocking}\nemit r(arg(0), arg(0) * 5, ~arg(0))");
        let woven = Woven::new(region(), &text);
        let function = woven.function(PointKind::Entry);
        let done = AtomicU64::new(0);
        let mut received = 0_u64;
        let mut last = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..TIMES).for_each(|number| function(number, 0, 0));
                done.store(1, Relaxed);
            });
            loop {
                let over = done.load(Relaxed) == 1;
                for slab in woven.slabs() {
                    let ring = Ring::new(slab, woven.places[0], &woven.weave.data[0].kind).unwrap();
                    received += ring.consume(|record| {
                        assert_eq!(record[1], record[0].wrapping_mul(5));
                        assert_eq!(record[2], !record[0]);
                        assert!(last < Some(record[0]), "in order");
                        last = Some(record[0]);
                    });
                }
                if over {
                    break;
                }
            }
        });
        let slab = woven.owned()[0];
        let lost = Ring::new(slab, woven.places[0], &woven.weave.data[0].kind).unwrap().lost();
        println!("{received} received, {lost} lost{blocking}");
        assert_eq!(received + lost, TIMES);
        if !blocking.is_empty() {
            assert_eq!(lost, 0, "a writer waits for a reader that lives");
        }
    }
}

#[test]
fn a_dead_reader_hangs_nobody() {
    let woven = Woven::new(region(), "ring r(a) 16 blocking\nemit r(arg(0))");
    let function = woven.function(PointKind::Entry);
    let began = Instant::now();
    (0..100_000).for_each(|number| function(number, 0, 0));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(90), "it waits once: {took:?}");
    assert!(took < Duration::from_millis(1000), "and only once: {took:?}");
    let slab = woven.owned()[0];
    let ring = Ring::new(slab, woven.places[0], &woven.weave.data[0].kind).unwrap();
    assert_eq!(ring.lost(), 100_000 - 16);
    assert_eq!(ring.consume(|_| {}), 16);
    // It has moved: there is room, and the next full ring is waited for again.
    let began = Instant::now();
    (0..17).for_each(|number| function(number, 0, 0));
    assert!(began.elapsed() >= Duration::from_millis(90));
}

#[test]
fn what_cannot_be_read_is_nothing() {
    let woven = Woven::new(
        region(),
        "counter a; counter b; counter c; counter d; counter e\n\
         a += load64(8); b += load8(-1); c += loads16(arg(0)); d += load32(0x800000000000)\n\
         e += load64(arg(1))",
    );
    let function = woven.function(PointKind::Entry);
    let value: i16 = -1234;
    let page = map(8192, false, false);
    // SAFETY: just mapped. The second page goes, so that the last word crosses into nothing.
    unsafe { libc::munmap((page + 4096) as *mut _, 4096) };
    function(&raw const value as u64, page + 4092, 0);
    let slab = woven.owned()[0];
    let values: Vec<i64> = woven.places.iter().map(|place| slab.word(place.sums) as i64).collect();
    assert_eq!(values, [0, 0, -1234, 0, 0]);
    assert_eq!(slab.faults(), 4);
}
