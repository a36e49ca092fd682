//! Where in the target's address space weft's memory may go.

use crate::proc::Mapping;
use crate::room::PAGE;
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

/// A free range of that length near the program's own code; where there is none, anywhere.
pub fn find(maps: &[Mapping], length: u64) -> Result<TargetAddr> {
    let near = maps.iter().find(|m| m.execute && m.inode != 0).map_or(LOWEST, |m| m.start.0);
    find_near(maps, TargetAddr(near), length)
}

/// The free range of that length that is nearest to an address.
pub fn find_near(maps: &[Mapping], near: TargetAddr, length: u64) -> Result<TargetAddr> {
    let near = near.0;
    let mut best: Option<u64> = None;
    let mut consider = |candidate: u64| {
        if best.is_none_or(|b| candidate.abs_diff(near) < b.abs_diff(near)) {
            best = Some(candidate);
        }
    };
    let mut free_from = LOWEST;
    let edges = maps.iter().map(|m| (m.start.0, m.end.0)).filter(|&(start, _)| start < HIGHEST);
    for (start, end) in edges.chain([(HIGHEST, HIGHEST)]) {
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
        let found = find(&maps, 0x5_0000).unwrap().0;
        assert!(found + 0x5_0000 <= code && code - found <= MARGIN + 0x5_1000, "{found:#x}");
    }

    #[test]
    fn a_program_at_a_fixed_low_address() {
        let maps = [mapping(0x40_0000, 0x50_0000, true), mapping(0x200_0000, 0x300_0000, false)];
        let found = find(&maps, 0x5_0000).unwrap().0;
        assert!(found >= LOWEST && found + 0x5_0000 < 0x40_0000, "{found:#x}");
    }

    #[test]
    fn nothing_below_means_far_above() {
        let maps = [mapping(LOWEST, 0x50_0000, true), mapping(0x50_0000, 0x900_0000, false)];
        let found = find(&maps, 0x5_0000).unwrap().0;
        assert!((0x900_0000 + HEAP..0x900_0000 + 2 * REACH).contains(&found), "{found:#x}");
    }
}
