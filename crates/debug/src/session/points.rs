//! Where a debugger wants the program to stop, and what of it the engine has been told.

use crate::debuggee::{Breakpoint, WatchKind, Watchpoint};
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::halt::{BREAKPOINT_COUNT, CONDITIONS_SIZE, CloneDebug, WATCH_COUNT};

/// Breakpoints, one at each address and in their order, and watched memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    breakpoints: Vec<Breakpoint>,
    pub watches: Vec<Watchpoint>,
}

/// What is wanted, and what the engine knows: a debugger takes its breakpoints out and puts them in again whenever the
/// program stops.
#[derive(Debug, Default)]
pub struct Points {
    pub wanted: Wanted,
    known: Wanted,
    /// Where memory that may be code was written to since the program last ran.
    written: Option<(u64, u64)>,
}

impl Points {
    /// Replaces all breakpoints.
    pub fn set_breakpoints(&mut self, mut all: Vec<Breakpoint>) {
        all.sort_by_key(|breakpoint| breakpoint.address);
        // Of several at one place, one without a condition is enough.
        all.dedup_by(|next, kept| {
            let is_same = next.address == kept.address;
            if is_same && (next.conditions.is_empty() || kept.conditions.is_empty()) {
                kept.conditions.clear();
            } else if is_same {
                kept.conditions.append(&mut next.conditions);
            }
            is_same
        });
        self.wanted.breakpoints = all;
    }

    /// Remembers that memory was written to.
    pub fn has_written(&mut self, start: u64, end: u64) {
        let (first, last) = self.written.unwrap_or((start, end));
        self.written = Some((first.min(start), last.max(end)));
    }

    /// How memory is watched.
    pub fn kind_at(&self, address: u64) -> WatchKind {
        let is_it =
            |watch: &&Watchpoint| (watch.address..watch.address + watch.length).contains(&address);
        self.wanted.watches.iter().find(is_it).map_or(WatchKind::Write, |watch| watch.kind)
    }

    /// Whether the engine does not know yet what concerns even a single step.
    pub fn is_step_concerned(&self) -> bool {
        self.written.is_some() || self.wanted.watches != self.known.watches
    }

    /// Delivers to the engine where to stop from now on, and what to watch.
    pub fn settle(&mut self, debug: &CloneDebug) {
        let written = self.written.take();
        if self.known == self.wanted && written.is_none() {
            return;
        }
        let Wanted { breakpoints, watches } = &self.wanted;
        // Offset 0 stands for no condition.
        let mut texts = vec![0];
        let places = debug.breakpoints.iter().zip(&debug.conditions);
        for ((address, condition), breakpoint) in places.zip(breakpoints) {
            address.store(breakpoint.address, Relaxed);
            condition.store(add_conditions(&mut texts, &breakpoint.conditions), Relaxed);
        }
        for (place, &byte) in debug.texts.iter().zip(&texts) {
            place.store(byte, Relaxed);
        }
        debug.count.store(breakpoints.len().min(BREAKPOINT_COUNT) as u32, Relaxed);
        for ([start, length, is_any], watch) in debug.watches.iter().zip(watches) {
            start.store(watch.address, Relaxed);
            length.store(watch.length, Relaxed);
            is_any.store((watch.kind != WatchKind::Write).into(), Relaxed);
        }
        debug.watch_count.store(watches.len().min(WATCH_COUNT) as u32, Relaxed);
        let (start, end) = written.unwrap_or_default();
        debug.written[0].store(start, Relaxed);
        debug.written[1].store(end, Relaxed);
        debug.version.fetch_add(1, Release);
        self.known = self.wanted.clone();
    }
}

/// Adds the conditions of a breakpoint to those of others; says where they are, or 0 if there are none, or no room: then
/// it is for the debugger to look.
fn add_conditions(texts: &mut Vec<u8>, conditions: &[Vec<u8>]) -> u32 {
    let half = |length: usize| (length as u16).to_le_bytes();
    let total: usize = conditions.iter().map(|code| code.len() + 2).sum();
    if conditions.is_empty() || texts.len() + total + 2 > CONDITIONS_SIZE {
        return 0;
    }
    let place = texts.len() as u32;
    texts.extend(half(conditions.len()));
    for code in conditions {
        texts.extend(half(code.len()));
        texts.extend(code);
    }
    place
}
