//! Goroutines that Go's runtime has interrupted anywhere, and that will go on from there.
//!
//! The runtime interrupts a goroutine by a signal, whose handler makes it look as if the goroutine had called
//! `runtime.asyncPreempt`; that saves all registers and lets others run. Where it goes on is the return address
//! of that call. No thread is there, so only the runtime's own list of goroutines tells.

use crate::process::memory;
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use crate::{Result, TargetAddr};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::ops::Range;
use weft_symbols::ModuleSymbols;

/// What the runtime calls, by one name or another.
const PREEMPT: [&str; 2] = ["runtime.asyncPreempt.abi0", "runtime.asyncPreempt"];
const PARK: [&str; 2] = ["runtime.asyncPreempt2.abi0", "runtime.asyncPreempt2"];
const LIST: &str = "runtime.allgs";

/// Where a goroutine's description has its stack pointer and its instruction pointer, while it does not run.
const SAVED: u64 = 56;
/// How many pages of a stack are looked at.
const PAGES: u64 = 3;

/// How a program's goroutines are found.
#[derive(Debug)]
pub struct Goroutines {
    /// Where the runtime has the list of them.
    list: u64,
    /// What an interrupted goroutine is sent to.
    preempt: Range<u64>,
    /// What that waits in.
    park: Vec<Range<u64>>,
    /// From where the address is to which `park` returns to where the one is to which `preempt` returns.
    distance: u64,
}

impl Goroutines {
    /// Learns it of a module; `None` where not everything has a name, as in a stripped program.
    pub fn of(pid: Tid, symbols: &ModuleSymbols, bias: u64) -> Option<Self> {
        let ranges = |names: [&str; 2]| -> Vec<Range<u64>> {
            let found = names.iter().flat_map(|name| symbols.find(name));
            let functions = found.filter_map(|index| symbols.functions().get(index as usize));
            functions
                .map(|f| (bias.wrapping_add(f.offset()), f.size()))
                .map(|(start, size)| start..start + size)
                .collect()
        };
        let preempt = ranges(PREEMPT).into_iter().next()?;
        let list = bias.wrapping_add(symbols.variables(LIST).ok()?.first()?.0);
        let distance = frame_size(pid, preempt.start)?;
        Some(Self { list, preempt, park: ranges(PARK), distance })
    }

    /// The addresses at which goroutines of a stopped process will go on that were interrupted; and, now and
    /// then, others.
    pub fn interrupted(&self, held: &Stopped) -> Vec<u64> {
        let pid = held.pid();
        let mut found = Vec::new();
        let mut places = Vec::new();
        let mut look = |stack: TargetAddr| {
            let words = memory::words_above(pid, stack, PAGES);
            for index in 1..words.len() {
                if self.preempt.contains(&words[index]) {
                    places.push(stack.0 + 8 * index as u64 + self.distance);
                    // Or a signal's frame: the goroutine was sent there, and has not begun. Its stack pointer
                    // is right before.
                    places.push(words[index - 1]);
                }
            }
        };
        self.parked(pid).unwrap_or_default().into_iter().for_each(&mut look);
        for registers in held.threads().values() {
            look(registers.stack());
            if self.preempt.contains(&registers.instruction().0) {
                found.extend(memory::words_above(pid, registers.stack(), 2));
            }
        }
        held.sleepers().filter_map(proc::sleeping_at).for_each(|(_, stack)| look(stack));
        let places: Vec<_> = places.into_iter().map(|at| (TargetAddr(at), 8)).collect();
        let words = memory::read_many(pid, &places).unwrap_or_default();
        found.extend(words.into_iter().flatten().flat_map(|bytes| memory::words(&bytes)));
        found
    }

    /// The stack pointers of goroutines that wait after they were interrupted.
    fn parked(&self, pid: Tid) -> Result<Vec<TargetAddr>> {
        let list = memory::words(&memory::read(pid, TargetAddr(self.list), 16)?);
        let [start, length] = list[..] else { return Ok(Vec::new()) };
        let goroutines = memory::words(&memory::read(pid, TargetAddr(start), 8 * length as usize)?);
        let saved: Vec<_> = goroutines.iter().map(|at| (TargetAddr(at + SAVED), 16)).collect();
        let saved = memory::read_many(pid, &saved)?;
        let waits = |words: Vec<u64>| {
            let [stack, at] = words[..] else { return None };
            self.park.iter().any(|range| range.contains(&at)).then_some(TargetAddr(stack))
        };
        Ok(saved.into_iter().flatten().filter_map(|bytes| waits(memory::words(&bytes))).collect())
    }
}

/// How many bytes there are on the stack of a function that saves the flags and all registers, from what it
/// calls to what it returns to.
fn frame_size(pid: Tid, start: u64) -> Option<u64> {
    let bytes = memory::read(pid, TargetAddr(start), 32).ok()?;
    let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
    // Its own return address, and what is pushed.
    let mut size = 8;
    for instruction in &mut decoder {
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => size += 8,
            Mnemonic::Mov => {}
            Mnemonic::Sub => return Some(size + instruction.immediate(1)),
            _ => break,
        }
    }
    None
}
