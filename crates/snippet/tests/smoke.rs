//! The first things: a counter is eight instructions, and code does what it says.
#![allow(missing_docs)]

mod common;

use common::{Machine, STACK_SIZE, compiled, disassemble, parse, region, site};
use weft_code::{FlagSet, RegisterSet};
use weft_snippet::PointKind;
use weft_snippet::layout::Allocator;

fn word(slab: &[u8], at: u32) -> u64 {
    u64::from_le_bytes(slab[at as usize..at as usize + 8].try_into().unwrap())
}

#[test]
fn a_counter_is_eight_instructions() {
    let machine = Machine::new(true, true, region());
    let weave = parse("counter calls\ncalls += 1");
    let code = compiled(&machine, &weave, &site(PointKind::Entry));
    let (main, _) = code.place(0, 0x1000);
    assert_eq!(disassemble(&main, 0).len(), 8, "{:#?}", disassemble(&main, 0));
}

#[test]
fn counts_and_decides() {
    for bmi2 in [true, false] {
        for dead in [RegisterSet::NONE, site(PointKind::Entry).dead, RegisterSet::ALL] {
            for flags in [FlagSet::NONE, FlagSet::ARITHMETIC] {
                let machine = Machine::new(bmi2, true, region());
                let weave = parse(
                    "counter calls; counter big; counter sum; local deep\n\
                     calls += 1; deep += 1\n\
                     if arg(2) > 4096 { big += 1; sum += arg(2) * 3 - arg(0) / 7 }\n\
                     else { sum += (arg(1) << 3) % 1000 }",
                );
                let mut site = site(PointKind::Entry);
                site.dead = dead;
                site.live_flags = flags;
                machine.install(&compiled(&machine, &weave, &site));
                let mut allocator = Allocator::new(&machine.env.region);
                let places: Vec<_> =
                    weave.data.iter().map(|datum| allocator.place(datum).unwrap()).collect();
                let mut state = machine.state();
                state.flags = 0x8d5;
                let mut expected = 0_i64;
                for size in [100_u64, 5000] {
                    state.registers[2] = size;
                    let after = machine.run(&state);
                    if size > 4096 {
                        expected += size as i64 * 3 - state.registers[7] as i64 / 7;
                    } else {
                        expected += ((state.registers[6] as i64) << 3) % 1000;
                    }
                    for register in 0..16 {
                        if !dead.contains(weft_code::Register(register)) {
                            let index = register as usize;
                            assert_eq!(after.registers[index], state.registers[index], "{index}");
                        }
                    }
                    assert_eq!(after.registers[4], state.registers[4]);
                    assert_eq!(after.flags & u64::from(flags.0), 0x8d5 & u64::from(flags.0));
                    assert_eq!(after.xmm, state.xmm);
                }
                let slab = machine.slab();
                assert_eq!(word(slab, places[0].sums), 2);
                assert_eq!(word(slab, places[1].sums), 1);
                assert_eq!(word(slab, places[2].sums) as i64, expected);
                assert_eq!(word(slab, places[3].state), 2);
            }
        }
    }
}

#[test]
fn times() {
    let machine = Machine::new(true, true, region());
    let weave = parse("timer busy wall\nat entry { start busy }\nat exit { stop busy }");
    let place = common::places(&machine.env.region, &weave.data)[0];
    let entry = compiled(&machine, &weave, &site(PointKind::Entry));
    let exit = compiled(&machine, &weave, &site(PointKind::Exit));
    let run = |code, ticks, below: u64| {
        machine.install(code);
        machine.set_clock(ticks);
        let mut state = machine.state();
        assert!(below < STACK_SIZE as u64 / 2);
        state.registers[4] -= below;
        machine.run(&state);
    };
    run(&entry, 100, 0);
    run(&entry, 110, 64);
    run(&exit, 120, 64);
    run(&exit, 150, 0);
    assert_eq!(word(machine.slab(), place.sums), 50);
    assert_eq!(word(machine.slab(), place.sums + 8), 1);
    // The inner frame vanishes.
    run(&entry, 200, 0);
    run(&entry, 210, 64);
    run(&exit, 230, 0);
    assert_eq!(word(machine.slab(), place.sums), 80);
    // The outer frame vanishes.
    run(&entry, 300, 64);
    run(&entry, 310, 0);
    run(&exit, 320, 0);
    assert_eq!(word(machine.slab(), place.sums), 90);
    run(&exit, 330, 0);
    assert_eq!(word(machine.slab(), place.sums), 90);
    assert_eq!(word(machine.slab(), place.sums + 8), 3);
}

/// However many values wait and however few registers are left, code comes out.
#[test]
fn registers_never_run_out() {
    let mut text = String::from("ring r(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) 16\n");
    text += "map q[2] 64; histogram s linear 0 3 9\n";
    for number in 0..40 {
        text += &format!("let v{number} = reg(r{}) * {number} + now\n", 8 + number % 8);
    }
    let deep = |number: usize| {
        let mut expr = format!("reg(rax) + v{number}");
        for level in 0..6 {
            let register = ["rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"][level % 7];
            expr = format!("reg({register}) / (v{} - ({expr}))", (number + level) % 40);
        }
        expr
    };
    let values: Vec<String> = (0..16).map(deep).collect();
    text += &format!("emit r({})\n", values.join(", "));
    text += &format!("q[{}, {}] += {}; s << {}\n", deep(1), deep(2), deep(3), deep(4));
    text += &format!("call 0x1000({}, {}, {})\n", deep(5), deep(6), deep(7));
    let weave = parse(&text);
    let region = weft_snippet::layout::Region { stride_log2: 14, ..region() };
    let mut dead = 1_u32;
    for turn in 0..400 {
        dead = dead.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let places = common::places(&region, &weave.data);
        let mut site = site(PointKind::Block);
        site.dead = RegisterSet((dead >> 13) as u16).without(weft_code::Register::RSP);
        site.live_flags = if turn % 3 == 0 { FlagSet::NONE } else { FlagSet::ALL };
        let env = common::env(turn % 2 == 0, region);
        let body = weave.body(PointKind::Block).unwrap();
        let code = weft_snippet::compile(&weave.data, body, &site, &env, &places).unwrap();
        assert!(code.main_len() > 1000);
        assert!(code.stack_use() < 2048, "{}", code.stack_use());
    }
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    use weft_snippet::layout::Place;
    use weft_snippet::{Refusal, compile};
    let weave = parse("counter c; timer t wall\nc += 1");
    let env = common::env(true, region());
    let body = weave.body(PointKind::Entry).unwrap();
    let entry = site(PointKind::Entry);
    let good = common::places(&region(), &weave.data);
    let with = |places: &[Place]| compile(&weave.data, body, &entry, &env, places).err();
    assert_eq!(with(&good), None);
    assert_eq!(with(&good[..1]), Some(Refusal::Places));
    let outside = Place { sums: region().stride() as u32, ..good[0] };
    assert_eq!(with(&[outside, good[1]]), Some(Refusal::Places));
    let in_state = Place { sums: 64, ..good[0] };
    assert_eq!(with(&[in_state, good[1]]), Some(Refusal::Places));
    let far = weft_snippet::Site { stack_shift: 1 << 40, ..entry };
    assert_eq!(compile(&weave.data, body, &far, &env, &good).err(), Some(Refusal::StackShift));
    let mut odd = env;
    odd.region.count_log2 = 0;
    assert_eq!(compile(&weave.data, body, &entry, &odd, &good).err(), Some(Refusal::Env));
    for (text, kind, convention, what) in [
        (
            "counter c\nc += arg(0)",
            PointKind::Block,
            weft_code::Convention::SystemV,
            "there is no argument at block",
        ),
        (
            "counter c\nc += arg(0)",
            PointKind::Entry,
            weft_code::Convention::Unknown,
            "how arguments are passed here is unknown",
        ),
        (
            "counter c\nc += arg(9)",
            PointKind::Entry,
            weft_code::Convention::Go,
            "argument 9 is out of reach",
        ),
        (
            "call 5()",
            PointKind::Entry,
            weft_code::Convention::Go,
            "a goroutine's stack has no room for a call",
        ),
        (
            "mark m\nstamp m",
            PointKind::Edge,
            weft_code::Convention::SystemV,
            "there is no frame for a mark at edge",
        ),
        (
            "counter c\nc += caller",
            PointKind::Insn,
            weft_code::Convention::SystemV,
            "there is no return address at insn",
        ),
    ] {
        let weave = parse(text);
        let places = common::places(&region(), &weave.data);
        let there = weft_snippet::Site { convention, ..site(kind) };
        match compile(&weave.data, weave.body(kind).unwrap(), &there, &env, &places) {
            Err(Refusal::Problem(problem)) => assert_eq!(problem.what, what),
            other => panic!("{text}: {other:?}"),
        }
    }
}
