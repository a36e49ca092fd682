//! Generated code against the interpreter: random bodies, sites and machine states.
//! `WEFT_CASES` says how many; all of the machine's state is compared.
#![allow(missing_docs)]

mod common;

use common::arbitrary::{Goals, Maker, choices, data};
use common::{ARITHMETIC, EXIT, Machine, STACK_SIZE, State, map, places, region};
use proptest::prop_assert_eq;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::ops::Range;
use weft_code::{Register, RegisterSet, Segment};
use weft_snippet::layout::RING_STALLED;
use weft_snippet::{
    Datum, PointKind, Section, Site, Source, Statement, Weave, World, compile, interpret,
};

/// What is called: it changes all that it may, and answers by its arguments.
extern "C" fn callee(a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> i64 {
    // SAFETY: only registers are written, and all of them are declared.
    unsafe {
        core::arch::asm!(
            "pxor xmm0, xmm0", "pxor xmm1, xmm1", "pxor xmm2, xmm2", "pxor xmm3, xmm3",
            "pxor xmm7, xmm7", "pxor xmm15, xmm15", "mov rcx, -1", "mov rsi, -2", "mov rdi, -3",
            "mov r8, -4", "mov r9, -5", "mov r10, -6", "mov r11, -7",
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _, out("r8") _,
            out("r9") _, out("r10") _, out("r11") _, out("xmm0") _, out("xmm1") _, out("xmm2") _,
            out("xmm3") _, out("xmm7") _, out("xmm15") _,
        );
    }
    answer(&[a, b, c, d, e, f])
}

fn answer(arguments: &[i64]) -> i64 {
    arguments.iter().fold(1, |sum: i64, argument| sum.wrapping_mul(31).wrapping_add(*argument))
}

fn read_memory(address: u64, bytes: usize) -> Option<u64> {
    let mut value = 0_u64;
    let local = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes };
    // SAFETY: the kernel checks both sides; the local one is `value`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (read == bytes as isize).then_some(value)
}

struct Oracle {
    state: State,
    /// What was written to the stack: where, and what.
    written: Vec<(u64, u64)>,
    clock: u64,
    slab: Vec<u8>,
    /// Memory that the code itself writes: who reads it may see anything.
    moving: [Range<u64>; 3],
    unsure: Cell<bool>,
}

impl World for Oracle {
    fn register(&self, register: Register) -> u64 {
        self.state.registers[register.0 as usize]
    }
    fn set_register(&mut self, register: Register, value: u64) {
        self.state.registers[register.0 as usize] = value;
    }
    fn write(&mut self, address: u64, value: u64) {
        self.written.push((address, value));
    }
    fn segment_base(&self, segment: Segment) -> u64 {
        let base: u64;
        // SAFETY: only a register is written.
        unsafe {
            match segment {
                Segment::Fs => core::arch::asm!("rdfsbase {}", out(reg) base),
                Segment::Gs => core::arch::asm!("rdgsbase {}", out(reg) base),
            }
        }
        base
    }
    fn read(&self, address: u64, bytes: usize) -> Option<u64> {
        let end = address.saturating_add(bytes as u64);
        let moves = |range: &Range<u64>| address < range.end && end > range.start;
        self.unsure.set(self.unsure.get() || self.moving.iter().any(moves));
        for (at, value) in self.written.iter().rev() {
            if (*at, 8) == (address, bytes) {
                return Some(*value);
            }
            if moves(&(*at..at + 8)) {
                self.unsure.set(true);
            }
        }
        read_memory(address, bytes)
    }
    fn ticks(&mut self) -> u64 {
        self.clock
    }
    fn cpu(&mut self) -> u64 {
        self.clock
    }
    fn call(&mut self, _: u64, arguments: &[i64]) -> i64 {
        answer(arguments)
    }
    fn slab(&mut self) -> &mut [u8] {
        &mut self.slab
    }
}

#[derive(Clone, Debug)]
struct Run {
    registers: [i64; 16],
    rsp: u64,
    flags: u64,
    mxcsr: u32,
    xmm: [u128; 16],
    clock: u32,
}

fn run(maker: &mut Maker) -> Run {
    const MODES: [u32; 6] = [0x1f80, 0x7fbf, 0xffc0, 0x0000, 0x3f80, 0x9fc0];
    Run {
        registers: std::array::from_fn(|_| maker.number()),
        rsp: 8 * maker.pick(64) as u64,
        flags: u64::from(maker.word()) & (ARITHMETIC | 1 << 10),
        mxcsr: MODES[maker.pick(6)],
        xmm: [0x0123_4567_89ab_cdef_u128 * u128::from(maker.word() | 1); 16],
        clock: maker.word(),
    }
}

struct Bench {
    machine: Machine,
    index: usize,
    header: [u8; 16],
}

fn bench(bmi2: bool) -> Bench {
    let mut machine = Machine::new(bmi2, true, region());
    machine.env.thread_pointer = bmi2;
    // Claim a slab once, to know which it is.
    let weave = common::parse("counter c\nc += 1");
    machine.install(&common::compiled(&machine, &weave, &common::site(PointKind::Entry)));
    machine.run(&machine.state());
    let slab = machine.slab();
    let header = slab[..16].try_into().unwrap();
    let index = (slab.as_ptr() as u64 - machine.slabs) as usize / region().stride();
    Bench { machine, index, header }
}

/// Runs a body twice and compares all there is.
fn check(
    bench: &Bench,
    data: &[Datum],
    body: &[Statement],
    site: &Site,
    runs: &[Run],
    claimed: bool,
    seed: u8,
) -> Result<(), TestCaseError> {
    let machine = &bench.machine;
    let places = places(&machine.env.region, data);
    let compiled = match compile(data, body, site, &machine.env, &places) {
        Ok(compiled) => compiled,
        // Nothing else is wrong with random bodies.
        Err(refusal) if refusal.to_string().starts_with("too many operations") => return Ok(()),
        Err(refusal) => return Err(TestCaseError::fail(format!("refused: {refusal}"))),
    };
    machine.install(&compiled);
    let slab = machine.slab_at(bench.index);
    slab.fill(0);
    // The blocking ring's reader has been given up, or the test would wait for it.
    let stalled = data.iter().position(|datum| datum.name == "q").map(|index| places[index]);
    let stalled = stalled.map(|place| place.sums + RING_STALLED).unwrap() as usize;
    slab[stalled] = 1;
    if claimed {
        slab[..16].copy_from_slice(&bench.header);
    }
    for run in runs {
        // SAFETY: the machine's own stack, which nothing runs on now.
        let stack = unsafe { std::slice::from_raw_parts_mut(machine.stack as *mut u8, STACK_SIZE) };
        stack.fill(seed);
        let top = STACK_SIZE - 0xb00;
        for (index, byte) in stack[top..].iter_mut().enumerate() {
            *byte = (index as u8).wrapping_mul(seed).wrapping_add(index as u8 >> 3);
        }
        let mut state = machine.state();
        state.registers = run.registers.map(|value| value as u64);
        state.registers[4] = machine.stack + STACK_SIZE as u64 - 0x800 - run.rsp;
        state.flags = run.flags;
        state.mxcsr = run.mxcsr;
        state.xmm = run.xmm;
        machine.set_clock(run.clock.into());
        if site.kind == PointKind::Entry {
            // What a function returns to.
            let top = (state.registers[4] - machine.stack) as usize;
            stack[top..top + 8].copy_from_slice(&(machine.code + EXIT).to_le_bytes());
        }
        let mut before = stack.to_vec();

        let mut ready = slab.to_vec();
        if slab[..8] == [0; 8] {
            ready[..16].copy_from_slice(&bench.header);
        }
        let zone = if site.red_zone { 128 } else { 0 };
        let kept = (state.registers[4] - machine.stack) as usize - zone;
        let mut oracle = Oracle {
            state: state.clone(),
            written: Vec::new(),
            clock: run.clock.into(),
            slab: ready.clone(),
            moving: [
                machine.stack..machine.stack + kept as u64,
                machine.slabs..machine.slabs + machine.env.region.size() as u64,
                machine.code..machine.code + 0x1000,
            ],
            unsure: Cell::new(false),
        };
        let returned = interpret(data, body, site, &machine.env.clock, &places, &mut oracle);
        if oracle.unsure.get() {
            return Ok(());
        }
        let expected = oracle.slab;
        let mut wanted = oracle.state;
        for (at, value) in oracle.written {
            let at = (at - machine.stack) as usize;
            before[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if returned.is_some() {
            wanted.registers[4] += 8;
        }

        let changed = wanted.registers.iter().zip(&state.registers).enumerate();
        let changed = changed.filter(|(_, (a, b))| a != b);
        let changed = changed.map(|(index, _)| Register(index as u8));
        let changed = changed.fold(RegisterSet::NONE, RegisterSet::with);
        let after = machine.run(&state);
        if slab[..8] == [0; 8] {
            // Looked up only where it is needed: then nothing may have changed.
            prop_assert_eq!(first_difference(&expected, &ready), None, "not claimed");
        } else {
            prop_assert_eq!(first_difference(&expected, slab), None, "slab");
        }
        for index in 0..16 {
            let is_changed = changed.contains(Register(index));
            if !site.dead.contains(Register(index)) || is_changed {
                let index = index as usize;
                prop_assert_eq!(after.registers[index], wanted.registers[index], "r{}", index);
            }
        }
        let live = u64::from(site.live_flags.0) & ARITHMETIC | 1 << 10;
        prop_assert_eq!(after.flags & live, state.flags & live, "flags");
        prop_assert_eq!(after.xmm, state.xmm);
        prop_assert_eq!(after.mxcsr, state.mxcsr);
        prop_assert_eq!(first_difference(&before[kept..], &stack[kept..]), None, "stack");
    }
    Ok(())
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<(usize, u8, u8)> {
    if a == b {
        return None;
    }
    let index = a.iter().zip(b).position(|(a, b)| a != b)?;
    Some((index, a[index], b[index]))
}

#[test]
fn code_does_what_the_interpreter_does() {
    let cases = std::env::var("WEFT_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(20_000),
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..Config::default()
    };
    let benches = [bench(true), bench(false)];
    let Source::Word(_) = benches[0].machine.env.clock.source else { panic!("a word") };
    let buffer = map(8192, false, false);
    // SAFETY: just mapped; the second page is taken away, so that loads may cross into nothing.
    unsafe {
        for at in 0..4096 {
            *((buffer + at) as *mut u8) = (at as u8).wrapping_mul(37);
        }
        libc::munmap((buffer + 4096) as *mut _, 4096);
    }
    let address = callee as *const () as u64;
    let goals = Goals { callee: address, buffer };
    let data = data();
    let mut runner = TestRunner::new(config);
    let result = runner.run(&(choices(), choices()), |(settings, choices)| {
        let mut maker = Maker::new(&settings, &data, goals);
        let (bmi2, claimed, seed) = (maker.pick(2), maker.pick(8) != 7, maker.word() as u8);
        let site = maker.site();
        let runs: Vec<Run> = (0..maker.pick(2) + 1).map(|_| run(&mut maker)).collect();
        let body = Maker::new(&choices, &data, goals).at(site).body();
        check(&benches[bmi2], &data, &body, &site, &runs, claimed, seed).map_err(|why| {
            let section = Section { at: None, body };
            let text = Weave { data: data.clone(), sections: vec![section] };
            TestCaseError::fail(format!("{why}\n{text}{site:?}\n{runs:?}"))
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
