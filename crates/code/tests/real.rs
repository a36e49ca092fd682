//! Programs that happen to be installed: nothing may go wrong, and most must be understood.

mod support;

use std::time::{Duration, Instant};

use support::File;
use weft_code::{Liveness, Program, Reason, Why, graph, relocate, sweep};

/// Enough to be representative; the rest of a large program is more of the same.
const MOST_FUNCTIONS: usize = if cfg!(debug_assertions) { 500 } else { 5000 };
/// How many bytes of code are enough.
const MOST_BYTES: usize = if cfg!(debug_assertions) { 4 << 20 } else { 32 << 20 };

const PROGRAMS: &[&str] = &[
    "/bin/bash",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/bin/redis-server",
    "/usr/bin/node",
    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
    "/usr/bin/go",
];

/// Whether a file is small enough to be looked at without optimisation.
fn is_small(path: &&&str) -> bool {
    !cfg!(debug_assertions)
        || std::fs::metadata(path).is_ok_and(|metadata| metadata.len() < 20_000_000)
}

/// The programs to look at; others if the environment says so.
fn programs() -> Vec<String> {
    match std::env::var("WEFT_PROGRAMS") {
        Ok(list) => list.split(':').map(String::from).collect(),
        Err(_) => PROGRAMS.iter().filter(is_small).map(|path| String::from(*path)).collect(),
    }
}

#[test]
fn control_flow_of_installed_programs() {
    for path in programs() {
        let Some(file) = File::open(&path) else {
            println!("{path}: not there");
            continue;
        };
        let (mut whole, mut count, mut bytes) = (0, 0, 0);
        let (mut tables, mut guessed, mut unknown, mut stray, mut bad) = (0, 0, 0, 0, 0);
        let step = (file.functions.len() / MOST_FUNCTIONS).max(1);
        let addresses: Vec<u64> = file.functions.keys().copied().step_by(step).collect();
        let start = Instant::now();
        for &address in &addresses {
            let function = file.function(address);
            let graph = graph(&file, &function);
            count += 1;
            bytes += function.ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            whole += usize::from(graph.is_complete());
            tables += graph.tables.iter().filter(|table| !table.guessed).count();
            for each in &graph.unknown {
                match each.why {
                    Why::GuessedTable => guessed += 1,
                    Why::IndirectJump => unknown += 1,
                    Why::StrayJump => stray += 1,
                    Why::Undecodable => bad += 1,
                }
                if std::env::var_os("WEFT_SHOW_UNKNOWN").is_some() {
                    println!(
                        "  {} {:#x}: {:?}",
                        file.functions[&address].0, each.address, each.why
                    );
                }
            }
        }
        let took = start.elapsed();
        if count == 0 {
            println!("{path}: no symbols");
            continue;
        }
        let start = Instant::now();
        for &address in &addresses[..addresses.len().min(500)] {
            let graph = graph(&file, &file.function(address));
            Liveness::of(&graph, file.convention);
        }
        let liveness = start.elapsed();
        println!(
            "{path}: {whole} of {count} functions complete ({:.2} %), {tables} tables, {guessed} guessed, \
             {unknown} unknown jumps, {stray} stray, {bad} undecodable; {:.1} MB/s, graph and liveness {:.0} us each",
            whole as f64 * 100.0 / count as f64,
            bytes as f64 / 1e6 / took.as_secs_f64(),
            liveness.as_secs_f64() * 1e6 / addresses.len().min(500) as f64,
        );
    }
}

#[test]
fn copies_of_installed_programs() {
    for path in programs() {
        let Some(file) = File::open(&path) else { continue };
        let step = (file.functions.len() / MOST_FUNCTIONS).max(1);
        let (mut copied, mut bytes, mut refused) = (0, [0, 0], Vec::new());
        let mut took = Duration::ZERO;
        for &address in file.functions.keys().step_by(step) {
            let graph = graph(&file, &file.function(address));
            for (far, to) in [(0, address ^ 0x1000_0000), (1, address ^ 0x4000_0000_0000)] {
                let start = Instant::now();
                for block in &graph.blocks {
                    let code = &file.bytes(block.start)[..(block.end - block.start) as usize];
                    match relocate(code, block.start, to, &|_, _| None) {
                        Ok(copy) => {
                            copied += code.len();
                            bytes[far] += copy.bytes.len();
                        }
                        Err(refusal) => refused.push(refusal),
                    }
                }
                took += start.elapsed();
            }
        }
        let half = copied as f64 / 2.0;
        println!(
            "{path}: {:.1} MB copied block by block, {:.2} times as long near, {:.2} times far; {} refused; {:.0} MB/s",
            half / 1e6,
            bytes[0] as f64 / half,
            bytes[1] as f64 / half,
            refused.len(),
            copied as f64 / 1e6 / took.as_secs_f64()
        );
        assert!(
            refused.iter().all(|refusal| refusal.reason == Reason::OddTransfer),
            "{path}: {refused:?}"
        );
    }
}

#[test]
fn sweep_of_installed_programs() {
    for path in programs() {
        let Some(file) = File::open(&path) else { continue };
        let starts: Vec<u64> = file.functions.keys().copied().collect();
        for (address, bytes) in file.text() {
            let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
            let start = Instant::now();
            let found = sweep(bytes, address, &starts);
            let took = start.elapsed();
            assert!(found.branches.is_sorted_by_key(|branch| branch.source));
            println!(
                "{path}: {:.1} MB, {} branches, {:.0} MB/s",
                bytes.len() as f64 / 1e6,
                found.branches.len(),
                bytes.len() as f64 / 1e6 / took.as_secs_f64()
            );
            for branch in found.branches.iter().step_by(1009) {
                assert!(
                    found
                        .branches_into(branch.target..branch.target + 1)
                        .any(|each| each == branch)
                );
            }
        }
    }
}
