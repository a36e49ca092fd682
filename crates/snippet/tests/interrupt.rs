//! A signal at every single instruction, whose handler runs the same snippet on the same thread:
//! the processor's trap flag steps through the code, and the handler strikes at one step after the
//! other. Nothing may be lost, torn or counted twice, wherever it strikes.
#![allow(missing_docs)]

mod common;

use common::{ENTER, EXIT, Machine, compiled, map, parse, places, site};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use weft_snippet::layout::{Place, Region};
use weft_snippet::read::{self, Ring, Slab};
use weft_snippet::{Buckets, Compiled, PointKind, Weave};

type Function = extern "C" fn(u64, u64, u64);

static STEP: AtomicU64 = AtomicU64::new(0);
static STRIKE: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
static ENTRANCE: AtomicU64 = AtomicU64::new(0);
static FUNCTIONS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

const TRAP: u64 = 1 << 8;

/// Both in the frame of one caller.
#[inline(never)]
fn pair(functions: [Function; 2]) {
    functions[0](21, 4, 0);
    functions[1](21, 4, 0);
    // Or the second call would become a jump, from another frame.
    std::hint::black_box(());
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel gives a valid context, and the test stored functions of this type.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        if registers[libc::REG_RIP as usize] as u64 == END.load(Relaxed) {
            registers[libc::REG_EFL as usize] &= !(TRAP as i64);
            return;
        }
        // Not in the switch to the machine's stack: a handler on another one is another matter.
        if registers[libc::REG_RIP as usize] as u64 & !0xfff == ENTRANCE.load(Relaxed) {
            return;
        }
        if STEP.fetch_add(1, Relaxed) == STRIKE.load(Relaxed) {
            pair(std::mem::transmute::<[u64; 2], [Function; 2]>(
                FUNCTIONS.each_ref().map(|word| word.load(Relaxed)),
            ));
        }
    }
}

fn function(code: &Compiled) -> u64 {
    let at = map(0x4000, true, false);
    let (mut main, cold) = code.place(at, at + 0x2000);
    main.push(0xc3);
    // SAFETY: just mapped and large enough.
    unsafe {
        std::ptr::copy_nonoverlapping(main.as_ptr(), at as *mut u8, main.len());
        std::ptr::copy_nonoverlapping(cold.as_ptr(), (at + 0x2000) as *mut u8, cold.len());
    }
    at
}

struct Struck {
    machine: Machine,
    weave: Weave,
    places: Vec<Place>,
}

impl Struck {
    fn new(state_end: u32, text: &str) -> Self {
        let region = Region { count_log2: 3, stride_log2: 13, state_end, key_shift: 12 };
        let machine = Machine::new(true, true, region);
        let weave = parse(text);
        let places = places(&region, &weave.data);
        Self { machine, weave, places }
    }

    fn reset(&self, keep_owner: bool) {
        for index in 1..7 {
            let slab = self.machine.slab_at(index);
            let owner = slab[..16].to_vec();
            slab.fill(0);
            if keep_owner {
                slab[..16].copy_from_slice(&owner);
            }
        }
    }

    /// Runs code on the machine, with a strike at a step; gives how many steps there were.
    fn run(&self, code: &Compiled, ticks: u64, strike: Option<u64>) -> u64 {
        self.machine.install(code);
        self.machine.set_clock(ticks);
        let mut state = self.machine.state();
        state.registers[7] = 21;
        state.registers[6] = 4;
        if let Some(strike) = strike {
            STEP.store(0, Relaxed);
            STRIKE.store(strike, Relaxed);
            ENTRANCE.store(self.machine.code + ENTER, Relaxed);
            END.store(self.machine.code + EXIT, Relaxed);
            state.flags |= TRAP;
        }
        let after = self.machine.run(&state);
        assert_eq!(after.registers[4], state.registers[4]);
        for index in [1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 14, 15] {
            assert_eq!(after.registers[index], state.registers[index], "r{index}");
        }
        STEP.load(Relaxed)
    }

    fn slab(&self) -> Slab<'_> {
        let slab = self.machine.slab();
        // SAFETY: aligned as slabs are, and nothing writes it now.
        let words = unsafe { std::slice::from_raw_parts(slab.as_ptr().cast(), slab.len() / 8) };
        Slab::new(words)
    }
}

#[test]
fn a_signal_may_come_at_any_instruction() {
    // SAFETY: the handler runs snippets only, and they are made for that.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
    }
    sums();
    times();
    full_rings();
}

/// All kinds of sums, by a thread that has a slab and by one that must claim one.
fn sums() {
    let struck = Struck::new(
        128,
        "counter c; histogram h log2; map m[1] 4; map p[2] 4; ring r(a, b, c) 16; local x\n\
         x += 1; c += arg(1); h << arg(0); m[arg(0)] += 1; p[arg(0), arg(1)] += 1\n\
         emit r(arg(0), ~arg(0), arg(0) * 3); if x > 9 { c += 1000 }",
    );
    let entry = site(PointKind::Entry);
    let code = compiled(&struck.machine, &struck.weave, &entry);
    let copy = function(&code);
    FUNCTIONS.iter().for_each(|word| word.store(copy, Relaxed));
    for claimed in [true, false] {
        struck.run(&code, 0, None);
        let mut strike = 0;
        loop {
            struck.reset(claimed);
            let steps = struck.run(&code, 0, Some(strike));
            if strike >= steps {
                println!("{steps} steps, claimed: {claimed}");
                break;
            }
            let slab = struck.slab();
            let one = || std::iter::once(slab);
            let places = &struck.places;
            assert_eq!(slab.word(places[0].sums), 12, "counter, step {strike}");
            assert_eq!(slab.word(places[5].state), 3, "local, step {strike}");
            let histogram = read::sum_histogram(one(), places[1], Buckets::Log2);
            assert_eq!(histogram.buckets[5], (16, 3), "histogram, step {strike}");
            assert_eq!(histogram.sum, 63);
            let map = read::sum_map(one(), places[2], 1, 4);
            assert_eq!(map.entries.into_iter().collect::<Vec<_>>(), [([21, 0], 3)]);
            let map = read::sum_map(one(), places[3], 2, 4);
            assert_eq!(map.entries.into_iter().collect::<Vec<_>>(), [([21, 4], 3)]);
            let ring = Ring::new(slab, places[4], &struck.weave.data[4].kind).unwrap();
            let received = ring.consume(|record| assert_eq!(record, [21, !21, 63]));
            assert_eq!((received, ring.lost()), (3, 0), "ring, step {strike}");
            strike += 1;
        }
        assert!(strike > 50);
    }
}

/// Timers and marks: the handler's own start and stop take no time, so the sum is known.
fn times() {
    let struck = Struck::new(
        1280,
        "timer t wall; mark m; local l; counter n\n\
         at entry { start t; stamp m }\nat exit { stop t; l = since(m); n += 1 }",
    );
    let codes = [PointKind::Entry, PointKind::Exit]
        .map(|kind| compiled(&struck.machine, &struck.weave, &site(kind)));
    for (word, code) in FUNCTIONS.iter().zip(&codes) {
        word.store(function(code), Relaxed);
    }
    let nanoseconds = struck.machine.env.clock.nanoseconds(50);
    for struck_one in [0, 1] {
        struck.run(&codes[0], 0, None);
        for strike in 0.. {
            struck.reset(true);
            let strike_at = |which| (which == struck_one).then_some(strike);
            let first = struck.run(&codes[0], 100, strike_at(0));
            let second = struck.run(&codes[1], 150, strike_at(1));
            if strike >= [first, second][struck_one] {
                assert!(strike > 20);
                break;
            }
            let slab = struck.slab();
            let sum = read::sum_timer(
                std::iter::once(slab),
                struck.places[0],
                weft_snippet::TimerClock::Wall,
                0,
            );
            assert_eq!((sum.total, sum.running), (50, 0), "timer {struck_one}, step {strike}");
            assert!((1..=2).contains(&sum.count));
            assert_eq!(slab.word(struck.places[1].sums), 0, "no stamp is lost, step {strike}");
            assert_eq!(slab.word(struck.places[3].sums), 2);
            // The handler's own exit writes the local too, before or after.
            let local = slab.word(struck.places[2].state);
            assert!(
                local == nanoseconds || local == 0 && struck_one == 1,
                "{local}, step {strike}"
            );
        }
    }
}

/// A ring with room for one more when three records come.
fn full_rings() {
    let struck = Struck::new(128, "ring r(a, b) 2\nemit r(arg(0), ~arg(0))");
    let code = compiled(&struck.machine, &struck.weave, &site(PointKind::Entry));
    let copy = function(&code);
    FUNCTIONS.iter().for_each(|word| word.store(copy, Relaxed));
    struck.run(&code, 0, None);
    for before in 0..=2 {
        for strike in 0.. {
            struck.reset(true);
            (0..before).for_each(|_| {
                struck.run(&code, 0, None);
            });
            let steps = struck.run(&code, 0, Some(strike));
            if strike >= steps {
                assert!(strike > 15);
                break;
            }
            let slab = struck.slab();
            let ring = Ring::new(slab, struck.places[0], &struck.weave.data[0].kind).unwrap();
            let received = ring.consume(|record| assert_eq!(record, [21, !21]));
            assert_eq!(received, 2, "{before} before, step {strike}");
            assert_eq!(ring.lost(), before + 1, "{before} before, step {strike}");
        }
    }
}
