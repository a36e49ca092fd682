//! Where in the target's address space weft's memory may go.

use crate::base::page::PAGE;
use crate::process::proc::{self, Mapping, Tid};
use crate::{Error, ErrorKind, Result, TargetAddr};

/// A jump reaches two gigabytes; what weft maps stays well within that of the program's code.
const REACH: u64 = 1 << 30;
/// What is kept free around the program's own mappings, so that its heap, its stacks and its guard
/// pages can grow as they would without weft.
const MARGIN: u64 = 16 << 20;
/// What the heap right above a program may grow to before weft would be in its way.
const HEAP: u64 = REACH / 2;
/// Below this the kernel maps nothing for ordinary users.
const LOWEST: u64 = 1 << 16;
/// The end of what user programs can map with four-level page tables.
const HIGHEST: u64 = 1 << 47;

/// A free range of that length near a process's own code; where there is none, anywhere.
pub fn find(pid: Tid, maps: &[Mapping], length: u64) -> Result<TargetAddr> {
    let near = maps.iter().find(|m| m.execute && m.inode != 0).map_or(LOWEST, |m| m.start.0);
    find_near(pid, maps, TargetAddr(near), length)
}

/// The free range of that length in a process that is nearest to an address.
pub fn find_near(pid: Tid, maps: &[Mapping], near: TargetAddr, length: u64) -> Result<TargetAddr> {
    room_near(maps, proc::stat(pid)?.heap_start, near.0, length)
}

/// The same, of what is mapped and of where the heap is, which begins some way above the program and is not mapped
/// before the program asks for the first of it.
fn room_near(maps: &[Mapping], heap: u64, near: u64, length: u64) -> Result<TargetAddr> {
    let mut best: Option<u64> = None;
    let mut consider = |candidate: u64| {
        if best.is_none_or(|b| candidate.abs_diff(near) < b.abs_diff(near)) {
            best = Some(candidate);
        }
    };
    let mut free_from = LOWEST;
    let mut edges: Vec<_> = maps.iter().map(|m| (m.start.0, m.end.0)).collect();
    edges.extend([(heap, heap), (HIGHEST, HIGHEST)]);
    edges.retain(|&(start, _)| start <= HIGHEST);
    edges.sort_unstable();
    for (start, end) in edges {
        // Just below what is there; a gap that small programs leave under their code is enough.
        let margin = if start.saturating_sub(free_from) > 2 * MARGIN { MARGIN } else { PAGE };
        if let Some(candidate) = start.checked_sub(margin + length)
            && candidate >= free_from + PAGE
        {
            consider(candidate);
        }
        // Or above it, but not where a heap or a stack grows.
        let above = free_from + HEAP;
        if free_from > LOWEST && above + length + MARGIN <= start {
            consider(above);
        }
        free_from = free_from.max(end);
    }
    best.map(|address| TargetAddr(address / PAGE * PAGE)).ok_or_else(|| {
        Error::new(ErrorKind::UnsupportedTarget, "the target's address space is full")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, execute: bool) -> Mapping {
        Mapping {
            start: TargetAddr(start),
            end: TargetAddr(end),
            read: true,
            write: false,
            execute,
            shared: false,
            offset: 0,
            device: (0, 0),
            inode: 1,
            path: String::new(),
        }
    }

    #[test]
    fn below_a_position_independent_program() {
        let code = 0x5555_5555_4000;
        let maps = [
            mapping(code, code + 0x1000, true),
            mapping(code + 0x2000, code + 0x9_0000, false),
            mapping(0x7fff_f000_0000, 0x7fff_f002_0000, false),
        ];
        let found = room_near(&maps, 0, code, 0x5_0000).unwrap().0;
        assert!(found + 0x5_0000 <= code && code - found <= MARGIN + 0x5_1000, "{found:#x}");
    }

    #[test]
    fn a_program_at_a_fixed_low_address() {
        let maps = [mapping(0x40_0000, 0x50_0000, true), mapping(0x200_0000, 0x300_0000, false)];
        let found = room_near(&maps, 0, 0x40_0000, 0x5_0000).unwrap().0;
        assert!(found >= LOWEST && found + 0x5_0000 < 0x40_0000, "{found:#x}");
    }

    #[test]
    fn nothing_below_means_far_above() {
        let maps = [mapping(LOWEST, 0x50_0000, true), mapping(0x50_0000, 0x900_0000, false)];
        let found = room_near(&maps, 0, LOWEST, 0x5_0000).unwrap().0;
        assert!((0x900_0000 + HEAP..0x900_0000 + 2 * REACH).contains(&found), "{found:#x}");
    }

    #[test]
    fn a_heap_that_is_not_mapped_yet_has_room() {
        let maps = [mapping(LOWEST, 0x50_0000, true)];
        for heap in [0x50_0000, HEAP, HEAP + 0x52_0000, 2 * HEAP] {
            let found = room_near(&maps, heap, LOWEST, 0x5_0000).unwrap().0;
            assert!(found + 0x5_0000 < heap || found >= heap + HEAP, "{found:#x} for {heap:#x}");
        }
    }
}
