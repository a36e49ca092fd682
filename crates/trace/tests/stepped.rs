//! What a trace says that a program touches is what it touches, by the registers that it had.

#[path = "../examples/stepped_trace/stepping.rs"]
mod stepping;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use stepping::{Plain, Stepped};
use weft_trace::replay::Accesses;
use weft_trace::{Detail, Replay, Trace, Writer};

/// How many instructions of each program are stepped through, and of the odd one: all of it.
const STEPS: u64 = 150_000;
const ALL: u64 = 10_000_000;

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Traces a command, and says what it has touched: as it was, and as the trace has it.
fn traced(name: &str, command: &[&str], steps: u64) -> (Vec<Plain>, Vec<Plain>) {
    let file = scratch(&format!("{name}.weft-trace"));
    let mut writer =
        Writer::new(File::create(&file).expect("a new file"), Detail::Values).expect("a new file");
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let stepped = Stepped::run(&command, &mut writer, steps).expect("a program to step through");
    let plain = stepped.plain;
    writer.finish().expect("the file to be whole");
    let length = std::fs::metadata(&file).expect("the file").len();
    println!(
        "{name}: {} accesses, {length} bytes, {:.2} each",
        plain.len(),
        length as f64 / plain.len() as f64
    );
    let trace = Trace::open(&file).expect("a trace");
    assert!(!trace.is_cut);
    assert!(!trace.modules.is_empty());
    let mut replay = Replay::new(Arc::new(trace), &[]);
    let mut read = Vec::new();
    loop {
        let batch = Accesses::next(&mut replay, 1000).expect("a sound trace");
        if batch.thread.is_empty() {
            break;
        }
        for row in 0..batch.thread.len() {
            read.push(Plain {
                thread: batch.thread[row],
                instruction: batch.instruction[row],
                kind: batch.kind[row],
                size: batch.size[row].into(),
                address: (!batch.unknown.contains(&row)).then_some(batch.address[row]),
                value: batch.value[row],
            });
        }
    }
    let _ = std::fs::remove_file(file);
    (plain, read)
}

fn assert_same(name: &str, plain: &[Plain], read: &[Plain]) {
    let mut threads: Vec<u32> = plain.iter().map(|access| access.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for thread in threads {
        let of = |all: &[Plain]| -> Vec<Plain> {
            all.iter().filter(|access| access.thread == thread).copied().collect()
        };
        let (plain, read) = (of(plain), of(read));
        let mut known = 0;
        for (number, (plain, read)) in plain.iter().zip(&read).enumerate() {
            // What cannot be known is not said, and what cannot be read is not compared.
            let value = plain.value.and(read.value);
            known += usize::from(read.value.is_some());
            let plain = Plain { value: plain.value.filter(|_| value.is_some()), ..*plain };
            let read = Plain { value, ..*read };
            assert_eq!(plain, read, "{name}: access {number} of thread {thread}");
        }
        println!("{name}: {known} values of {}", read.len());
        assert!(known > read.len() * 9 / 10, "{name}: {known} values of {}", read.len());
        // Of a program that was killed, the instruction that was next is not executed.
        assert!(plain.len().abs_diff(read.len()) <= 2, "{name}: {} {}", plain.len(), read.len());
    }
    assert!(!read.is_empty(), "{name}");
}

#[test]
fn programs_touch_what_their_traces_say() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = text.to_str().expect("a path");
    let programs: &[&[&str]] = &[
        &["true"],
        &["seq", "40"],
        &["sort", text],
        &["md5sum", text],
        &["awk", "{ n += NF } END { print n }", text],
        &["sed", "s/a/b/g", text],
        &["perl", "-e", "my %h; $h{$_ * 7919 % 1009} .= $_ for 1..300; print scalar keys %h"],
        &["gzip", "-c", text],
        &["bash", "-c", "for i in 1 2 3; do echo $((i * i)); done"],
    ];
    for command in programs {
        let (plain, read) = traced(command[0], command, STEPS);
        assert_same(command[0], &plain, &read);
    }
}

/// Strings in both directions, gathers, bits, other segments, and threads that do all of it.
#[test]
fn odd_instructions_touch_what_their_trace_says() {
    let program = scratch("odd_accesses");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/odd_accesses.c");
    let built = Command::new("cc")
        .args(["-O1", "-mno-red-zone", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("a compiler");
    assert!(built.success());
    assert!(Command::new(&program).status().expect("the program").success());
    let (plain, read) = traced("odd", &[program.to_str().expect("a path")], ALL);
    assert_same("odd", &plain, &read);
    let threads = |all: &[Plain]| all.iter().map(|access| access.thread).max();
    assert_ne!(threads(&plain), Some(plain[0].thread), "more than one thread");
    assert!(plain.iter().any(|access| access.size == 77), "a repeated string");
    assert!(plain.iter().any(|access| access.address.is_none()), "what cannot be known");
}
