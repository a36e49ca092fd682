//! What a program executes, found out the plain way: one instruction at a time.
//!
//! ```text
//! visited COMMAND...
//! ```
//!
//! Prints for each instruction how often it was executed, its length, how far it is from the start of its module, and that
//! module's path, from the program's very first instruction to its end. An instruction that repeats itself is one, however often it does.

#[expect(dead_code, reason = "others need more of it")]
mod stepping;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use iced_x86::{Decoder, DecoderOptions};
use stepping::{prepare, read, registers, start, step};

struct Instruction {
    module: String,
    offset: u64,
    length: usize,
    repeats: bool,
    count: u64,
}

fn main() -> ExitCode {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    prepare();
    let mut child = start(&command).expect("the program to start");
    let pid = child.id() as i32;
    let mut visited: BTreeMap<u64, Instruction> = BTreeMap::new();
    let mut before = 0;
    loop {
        let pc = registers(pid).rip;
        let instruction = visited.entry(pc).or_insert_with(|| decode(pid, pc));
        instruction.count += u64::from(!(instruction.repeats && before == pc));
        before = pc;
        match step(pid) {
            Ok(status) if libc::WIFSTOPPED(status) => {}
            _ => break,
        }
    }
    let _ = child.wait();
    for Instruction { module, offset, length, count, .. } in visited.values() {
        println!("{count} {length} {offset} {module}");
    }
    ExitCode::SUCCESS
}

fn decode(pid: i32, pc: u64) -> Instruction {
    let mut bytes = [0; 15];
    // It may be at the end of what is mapped.
    let known = (1..=bytes.len()).rev().find(|&length| read(pid, pc, &mut bytes[..length]));
    let bytes = &bytes[..known.unwrap_or(0)];
    let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let repeats = repeats && instruction.is_string_instruction();
    let (module, start) = module_of(pid, pc);
    Instruction { module, offset: pc - start, length: instruction.len(), repeats, count: 0 }
}

/// The file that is mapped at an address, and where its front is.
fn module_of(pid: i32, pc: u64) -> (String, u64) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let mut front = (String::new(), 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').expect("a range");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let path = words.get(5).copied().unwrap_or_default();
        if number(words[2]) == 0 {
            front = (path.to_owned(), number(start));
        }
        if (number(start)..number(end)).contains(&pc) {
            break;
        }
    }
    front
}
