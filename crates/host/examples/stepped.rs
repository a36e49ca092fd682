//! What snippets measure, found out the plain way: the program is executed one instruction at a time, and at each point
//! the snippet is interpreted.
//!
//! ```text
//! stepped POINTS FILL COMMAND...
//! ```
//!
//! The file has a snippet with one counter on a line of its own, `snippet counter c; c += 1`, and below it its points, each
//! `point` and an address. The counter's value for each point is printed, in the same order, from the program's
//! entry to its end. Addresses are the same each time, and what the kernel gives the program to be random with at its
//! start is on the first line: `random` and a number. What it asks the kernel for later is filled with a byte: what
//! depends on it is another number with another byte.

mod stepping;

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::ExitCode;

use stepping::{auxiliary, general_of, prepare, ptrace, read, registers, start, step, wait, write};
use weft_code::{Convention, FlagSet, Register, RegisterSet};
use weft_snippet::layout::Place;
use weft_snippet::{Clock, PointKind, Site, Source, Weave, World, interpret};

/// Where the one counter of a snippet is.
const COUNTER: Place = Place { state: 0, sums: 64 };
const CLOCK: Clock = Clock { source: Source::Processor, multiplier: 0, shift: 0, offset: 0 };

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let file = words.next().expect("a file with points");
    let text = std::fs::read_to_string(file).expect("points");
    let fill = words.next().and_then(|word| word.to_str()?.parse().ok()).expect("a byte");
    let mut points = Points::parse(&text);
    prepare();
    let command: Vec<OsString> = words.collect();
    let mut child = start(&command).expect("the program to start");
    let pid = child.id() as i32;
    let random = auxiliary(pid, libc::AT_RANDOM).expect("something random");
    write(pid, random, &points.random.to_le_bytes());
    run_to_entry(pid);
    let steps = points.follow(pid, fill);
    let _ = child.wait();
    for point in &points.all {
        println!("{}", point.value);
    }
    eprintln!("{steps} instructions");
    ExitCode::SUCCESS
}

struct Point {
    snippet: usize,
    address: u64,
    value: i64,
}

struct Points {
    random: u128,
    snippets: Vec<Weave>,
    all: Vec<Point>,
    at: HashMap<u64, Vec<usize>>,
}

impl Points {
    fn parse(text: &str) -> Self {
        let mut points =
            Self { random: 0, snippets: Vec::new(), all: Vec::new(), at: HashMap::new() };
        for line in text.lines() {
            match line.split_once(' ').expect("two words") {
                ("random", number) => points.random = number.parse().expect("a number"),
                ("snippet", text) => points.snippets.push(Weave::parse(text).expect("a snippet")),
                (_, address) => {
                    let address = address.parse().expect("an address");
                    points.at.entry(address).or_default().push(points.all.len());
                    let snippet = points.snippets.len() - 1;
                    points.all.push(Point { snippet, address, value: 0 });
                }
            }
        }
        points
    }

    /// Follows a program to its end; says how many steps that took.
    fn follow(&mut self, pid: i32, fill: u8) -> u64 {
        let mut before = 0;
        let mut calls = HashMap::new();
        for steps in 0.. {
            let mut now = registers(pid);
            // Each round of a repeated instruction is a step, but not an execution of it.
            if now.rip != before || !is_repeated(pid, now.rip) {
                for &index in self.at.get(&now.rip).into_iter().flatten() {
                    let point = &mut self.all[index];
                    point.pass(&self.snippets[point.snippet], pid, &mut now);
                }
            }
            before = now.rip;
            let is_call = *calls.entry(now.rip).or_insert_with(|| is_system_call(pid, now.rip));
            match step(pid) {
                Ok(status) if libc::WIFSTOPPED(status) => {}
                _ => return steps,
            }
            if is_call && now.rax == libc::SYS_getrandom as u64 {
                write(pid, now.rdi, &vec![fill; now.rsi as usize]);
            }
        }
        0
    }
}

impl Point {
    fn pass(&mut self, weave: &Weave, pid: i32, registers: &mut libc::user_regs_struct) {
        let site = Site {
            kind: PointKind::Insn,
            convention: Convention::Unknown,
            dead: RegisterSet::default(),
            live_flags: FlagSet::default(),
            red_zone: true,
            address: self.address,
            stack_shift: 0,
            access: None,
        };
        let general = general_of(registers).map(|register| *register);
        let mut world = Program { pid, general, slab: [0; 128] };
        let body = weave.body(PointKind::Insn).unwrap_or_default();
        interpret(&weave.data, body, &site, &CLOCK, &[COUNTER], &mut world);
        let sum = world.slab[COUNTER.sums as usize..].first_chunk().expect("a word");
        self.value = self.value.wrapping_add(i64::from_le_bytes(*sum));
    }
}

/// A program that stands at a point.
struct Program {
    pid: i32,
    general: [u64; 16],
    slab: [u8; 128],
}

impl World for Program {
    fn register(&self, register: Register) -> u64 {
        self.general[register.0 as usize]
    }
    fn read(&self, address: u64, bytes: usize) -> Option<u64> {
        let mut value = [0; 8];
        read(self.pid, address, &mut value[..bytes]).then(|| u64::from_le_bytes(value))
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

/// Whether the instruction at an address repeats itself.
fn is_repeated(pid: i32, address: u64) -> bool {
    let mut bytes = [0; 2];
    read(pid, address, &mut bytes) && bytes.iter().any(|byte| matches!(byte, 0xf2 | 0xf3))
}

fn is_system_call(pid: i32, address: u64) -> bool {
    let mut bytes = [0; 2];
    read(pid, address, &mut bytes) && bytes == [0x0f, 0x05]
}

/// Lets a program run to its entry.
fn run_to_entry(pid: i32) {
    const BREAKPOINT: u64 = 0xcc;
    let entry = auxiliary(pid, libc::AT_ENTRY).expect("an entry");
    let mut code = [0; 8];
    assert!(read(pid, entry, &mut code), "the code at the entry");
    let code = u64::from_ne_bytes(code);
    poke(pid, entry, code & !0xff | BREAKPOINT);
    ptrace(libc::PTRACE_CONT, pid, 0).expect("to go on");
    wait(pid).expect("it to come to its entry");
    poke(pid, entry, code);
    let mut at_entry = registers(pid);
    at_entry.rip = entry;
    let place = std::ptr::from_ref(&at_entry) as usize;
    ptrace(libc::PTRACE_SETREGS, pid, place).expect("registers");
}

fn poke(pid: i32, address: u64, word: u64) {
    // SAFETY: a word of the traced program.
    let result = unsafe { libc::ptrace(libc::PTRACE_POKEDATA, pid, address, word) };
    assert_eq!(result, 0, "memory to be written");
}
