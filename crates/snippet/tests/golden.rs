//! The machine code of the usual snippets, as it should be. `WEFT_BLESS=1` writes it anew.
#![allow(missing_docs)]

mod common;

use common::{disassemble, parse, places, site};
use std::fmt::Write;
use std::path::Path;
use weft_code::{FlagSet, RegisterSet};
use weft_snippet::layout::Region;
use weft_snippet::{Env, PointKind, Site, compile};

const BASE: u64 = 0x1000_0000;
const SALT: u64 = 0x1000_1000;
const MAIN: u64 = 0x1001_0000;
const COLD: u64 = 0x1002_0000;

fn env() -> Env {
    let region = Region { count_log2: 10, stride_log2: 14, state_end: 4096, key_shift: 12 };
    common::env(true, region)
}

/// Code with names for what it refers to.
fn listing(env: &Env, text: &str, site: &Site) -> String {
    let weave = parse(text);
    let places = places(&env.region, &weave.data);
    let body = weave.body(site.kind).expect("a body");
    let code = compile(&weave.data, body, site, env, &places).expect("it compiles");
    let (main, cold) = code.place(MAIN, COLD);
    let routines = &env.routines;
    let names = [
        (BASE, "base"),
        (SALT, "salt"),
        (routines.claim, "claim"),
        (routines.map1, "map1"),
        (routines.map2, "map2"),
        (routines.stamp, "stamp"),
        (routines.since, "since"),
        (routines.leave, "leave"),
        (routines.wait, "wait"),
        (routines.load[3], "load64"),
    ];
    let mut listing = String::new();
    for (title, at, code) in [("main", MAIN, main), ("cold", COLD, cold)] {
        writeln!(listing, "  {title}:").unwrap();
        for (offset, mut line) in disassemble(&code, at) {
            for (address, name) in names {
                line = line.replace(&format!("{address:#x}"), name);
            }
            for (piece, start) in [("main", MAIN), ("cold", COLD)] {
                for target in 0..0x200 {
                    let address = format!("{:#x}", start + target);
                    if line.ends_with(&address) {
                        line = line.replace(&address, &format!("{piece}+{target:#x}"));
                    }
                }
            }
            writeln!(listing, "    {offset:3x}  {line}").unwrap();
        }
    }
    listing
}

fn check(name: &str, cases: &[(&str, &str, Site, bool)]) {
    let mut text = String::new();
    for (title, source, site, bmi2) in cases {
        let env = Env { bmi2: *bmi2, ..env() };
        writeln!(text, "{title}\n{}", listing(&env, source, site)).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).expect("WEFT_BLESS=1 writes it");
    assert_eq!(text, wanted, "{name} differs: WEFT_BLESS=1 takes it as it is");
}

#[test]
fn counter() {
    let text = "counter calls\ncalls += 1";
    let entry = site(PointKind::Entry);
    let flags = Site { live_flags: FlagSet::ALL, ..entry };
    let crowded = Site { dead: RegisterSet::NONE, ..flags };
    check(
        "counter.txt",
        &[
            ("registers and flags are dead", text, entry, true),
            ("the same without BMI2", text, entry, false),
            ("flags are live", text, flags, true),
            ("all is live", text, crowded, true),
            ("all is live, no red zone", text, Site { red_zone: false, ..crowded }, true),
        ],
    );
}

#[test]
fn timer() {
    let text = "timer busy wall\nat entry { start busy }\nat exit { stop busy }";
    check(
        "timer.txt",
        &[
            ("start", text, site(PointKind::Entry), true),
            ("stop", text, site(PointKind::Exit), true),
        ],
    );
}

#[test]
fn mark() {
    let text = "mark m; histogram h log2\nat entry { stamp m }\nat exit { h << since(m) }";
    check(
        "mark.txt",
        &[
            ("stamp", text, site(PointKind::Entry), true),
            ("since", text, site(PointKind::Exit), true),
        ],
    );
}

#[test]
fn histogram() {
    let entry = site(PointKind::Entry);
    check(
        "histogram.txt",
        &[
            ("log2", "histogram h log2\nh << arg(2)", entry, true),
            ("log2 without BMI2", "histogram h log2\nh << arg(2)", entry, false),
            ("fine", "histogram h fine\nh << arg(2)", entry, true),
            ("fine without BMI2", "histogram h fine\nh << arg(2)", entry, false),
            ("linear", "histogram h linear 0 64 16\nh << arg(2)", entry, true),
        ],
    );
}

#[test]
fn map() {
    let entry = site(PointKind::Entry);
    check(
        "map.txt",
        &[
            ("one key", "map m[1] 64\nm[arg(0)] += 1", entry, true),
            ("two keys", "map m[2] 64\nm[caller, arg(0)] += arg(1)", entry, true),
        ],
    );
}

#[test]
fn record() {
    let entry = site(PointKind::Entry);
    check(
        "record.txt",
        &[
            ("three fields", "ring r(a, b, c) 256\nemit r(arg(0), caller, 7)", entry, true),
            ("blocking", "ring r(a) 256 blocking\nemit r(arg(0))", entry, true),
        ],
    );
}

#[test]
fn decision() {
    let text = "counter c; histogram h log2\nif arg(2) > 4096 && arg(0) != 1 { h << arg(2) }";
    check("decision.txt", &[("the slab is looked up late", text, site(PointKind::Entry), true)]);
}
