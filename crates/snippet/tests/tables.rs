//! Full tables and deep recursion, and costs: what the random tests reach too rarely.
#![allow(missing_docs)]

mod common;

use common::{Machine, compiled, parse, places, region, site};
use weft_code::{FlagSet, Register, RegisterSet};
use weft_snippet::read::{self, Slab};
use weft_snippet::{Costs, Operation, PointKind, Site, World, compile, cost, interpret};

fn word(slab: &[u8], at: u32) -> u64 {
    u64::from_le_bytes(slab[at as usize..at as usize + 8].try_into().unwrap())
}

struct Marked {
    machine: Machine,
    codes: [weft_snippet::Compiled; 2],
}

impl Marked {
    fn new() -> Self {
        let mut machine = Machine::new(true, true, region());
        machine.env.clock.multiplier = 3;
        machine.env.clock.shift = 1;
        let weave = parse("mark m; local l\nat entry { stamp m }\nat exit { l = since(m) }");
        let codes =
            [PointKind::Entry, PointKind::Exit].map(|kind| compiled(&machine, &weave, &site(kind)));
        Self { machine, codes }
    }

    fn run(&self, which: usize, depth: u64, ticks: u64) -> i64 {
        self.machine.install(&self.codes[which]);
        self.machine.set_clock(ticks);
        let mut state = self.machine.state();
        state.registers[4] -= depth;
        self.machine.run(&state);
        let weave = parse("mark m; local l");
        let place = places(&region(), &weave.data)[1];
        word(self.machine.slab(), place.state) as i64
    }

    fn lost(&self) -> u64 {
        let weave = parse("mark m; local l");
        word(self.machine.slab(), places(&region(), &weave.data)[0].sums)
    }
}

#[test]
fn recursion_has_a_stamp_for_each_frame() {
    for step in [16, 48, 64, 128, 144] {
        let marked = Marked::new();
        let depth = if step == 128 { 15 } else { 40 };
        for frame in 0..depth {
            marked.run(0, frame * step, 100 * frame);
        }
        for frame in (0..depth).rev() {
            // 3 halves of a nanosecond for each tick.
            let expected = (10_000 - 100 * frame) * 3 / 2;
            assert_eq!(marked.run(1, frame * step, 10_000), expected as i64, "{step} {frame}");
        }
        assert_eq!(marked.lost(), 0);
        assert_eq!(marked.run(1, 0, 10_000), -1, "it is taken away");
        assert_eq!(marked.lost(), 1);
    }
}

#[test]
fn frames_that_vanish_make_room() {
    let marked = Marked::new();
    // A hundred thousand frames are entered and never left, as by longjmp.
    for turn in 0..2000_u64 {
        marked.run(0, 0, turn);
        marked.run(0, 64 + turn % 50 * 128, turn);
        assert_eq!(marked.run(1, 0, turn + 10), 15, "the frame that lives is found");
    }
    assert_eq!(marked.lost(), 0);
}

#[test]
fn costs_add_up() {
    let mut costs = Costs::default();
    for operation in Operation::ALL {
        costs.set(operation, 0.0);
    }
    let entry = site(PointKind::Entry);
    let of = |costs: &Costs, text: &str, site: &Site| {
        let weave = parse(text);
        cost(&weave.data, weave.body(site.kind).unwrap_or(&[]), site, costs)
    };
    costs.set(Operation::Slab, 100.0);
    costs.set(Operation::Count, 1.0);
    assert_eq!(of(&costs, "counter c\nc += 1\nc += 1", &entry), 102.0);
    assert_eq!(of(&costs, "", &entry), 0.0);
    let branches = "counter c\nif arg(0) { c += 1; c += 1 } else { c += 1 }";
    assert_eq!(of(&costs, branches, &entry), 102.0, "the dearer branch");
    costs.set(Operation::Flags, 10.0);
    costs.set(Operation::Save, 5.0);
    let crowded = Site { dead: RegisterSet::NONE, live_flags: FlagSet::ALL, ..entry };
    assert_eq!(of(&costs, "counter c\nc += 1", &crowded), 121.0);
    costs.set(Operation::Ticks, 1000.0);
    assert_eq!(of(&costs, "timer t wall\nstart t", &entry), 1000.0 + 103.0 + 5.0);
    for operation in Operation::ALL {
        if let Some((text, times)) = operation.probe() {
            parse(&text);
            assert!(times > 0);
        }
    }
}

struct Keys {
    registers: [u64; 16],
    slab: Vec<u8>,
}

impl World for Keys {
    fn register(&self, register: Register) -> u64 {
        self.registers[register.0 as usize]
    }
    fn read(&self, _: u64, _: usize) -> Option<u64> {
        None
    }
    fn ticks(&mut self) -> u64 {
        0
    }
    fn cpu(&mut self) -> u64 {
        0
    }
    fn call(&mut self, _: u64, _: &[i64]) -> i64 {
        0
    }
    fn slab(&mut self) -> &mut [u8] {
        &mut self.slab
    }
}

/// What a map cannot hold is counted, and code and interpreter agree on what that is.
#[test]
fn full_maps_count_what_they_lose() {
    let text = "map one[1] 4; map two[2] 8; map tiny[1] 1\n\
        one[arg(0)] += arg(1); two[arg(0), arg(1) & 3] += 2; tiny[arg(0) & 31] += -1";
    let machine = Machine::new(true, true, region());
    let weave = parse(text);
    let places = places(&region(), &weave.data);
    let entry = site(PointKind::Entry);
    let body = weave.body(PointKind::Entry).unwrap();
    let code = compile(&weave.data, body, &entry, &machine.env, &places).unwrap();
    machine.install(&code);
    let mut state = machine.state();
    let mut sum = 0_i64;
    let mut key = 1_u64;
    for turn in 0..600_u64 {
        key = key.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(turn);
        // Some keys again and again, some once; one that cannot be held.
        state.registers[7] = match turn % 4 {
            0 => turn % 24,
            1 => key,
            2 => 0x9e37_79b9_7f4a_7c15,
            _ => turn % 7,
        };
        state.registers[6] = turn;
        sum += turn as i64;
        let ready = turn > 0;
        let slab = if ready { machine.slab().to_vec() } else { Vec::new() };
        machine.run(&state);
        if ready {
            let mut world = Keys { registers: state.registers, slab };
            interpret(&weave.data, body, &entry, &machine.env.clock, &places, &mut world);
            assert!(world.slab == machine.slab(), "turn {turn}");
        }
    }
    let slab = machine.slab();
    // SAFETY: aligned as slabs are, and nothing writes it now.
    let words = unsafe { std::slice::from_raw_parts(slab.as_ptr().cast(), slab.len() / 8) };
    let all = || std::iter::once(Slab::new(words));
    let one = read::sum_map(all(), places[0], 1, 4);
    assert!(one.entries.len() >= 16, "all that is probed is used: {}", one.entries.len());
    assert_eq!(one.entries.values().sum::<i64>() + one.lost_sum, sum);
    assert!(one.lost >= 150, "the key that cannot be held is lost each time");
    let two = read::sum_map(all(), places[1], 2, 8);
    assert_eq!(two.entries.values().sum::<i64>() + two.lost_sum, 1200);
    assert!(two.lost > 0);
    let tiny = read::sum_map(all(), places[2], 1, 1);
    assert_eq!(tiny.entries.len(), 16);
    assert_eq!(tiny.entries.values().sum::<i64>() + tiny.lost_sum, -600);
}
