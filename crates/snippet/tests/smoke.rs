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
