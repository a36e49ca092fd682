//! A function laid out anew as a whole, for points of it that have no room for a jump. Pure.
//!
//! All of its instructions are copied. What is left of the original is what control still comes to from
//! outside of the copy: the entry, the addresses that calls return to, landing pads, targets of jump tables.
//! A jump to the copy stands at each of these *re-entries*. Nothing runs the rest of the original any
//! more, so its bytes are free: a re-entry with room for two bytes only jumps to a long jump among them.
//!
//! Calls and system calls are not copied: the copy jumps to them, they run where they are, and
//! control comes back by the re-entry behind. So return addresses are what they were, the processor can
//! predict them, and a thread that sleeps or calls is in the original, not in memory of weft's. Only a call
//! whose bytes a re-entry needs is copied; it pushes the original return address.

use super::window::{Body, HOP, JUMP, Reentry, Step, Terrain, Window};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Functions with more instructions are not laid out anew.
const MOST: usize = 20_000;

/// The window that is the whole function.
pub fn relocated(terrain: &impl Terrain, body: Body) -> Result<Window, &'static str> {
    let Body { mut steps, reentries, calls, unused } = body;
    if steps.len() > MOST {
        return Err("the function is too long to be laid out anew");
    }
    let start = steps.first().ok_or("there is no code")?.at;
    if steps.iter().any(|step| terrain.is_foreign(step.at..step.end())) {
        return Err("another probe's window is too close");
    }
    let mut room = Room { free: HashSet::new(), starts: &reentries, padding: Vec::new() };
    room.free.extend(unused.into_iter().flatten());
    for (index, step) in steps.iter().enumerate() {
        if !step.stays {
            room.free.extend(step.at..step.end());
        }
        let is_followed = steps.get(index + 1).is_some_and(|next| next.at == step.end());
        if !step.falls_through && !is_followed {
            let padding = step.end()..step.end() + terrain.padding(step.end());
            room.free.extend(padding.clone());
            room.padding.push(padding);
        }
    }
    let mut found = Vec::with_capacity(reentries.len());
    let mut short = Vec::new();
    for &at in &reentries {
        if room.take(at..at + JUMP) {
            found.push(Reentry { at, hole: None });
        } else {
            short.push((at, room.take(at..at + HOP)));
        }
    }
    for (at, is_short) in short {
        let hole = if is_short { room.hole(terrain, at) } else { None };
        if hole.is_some() {
            found.push(Reentry { at, hole });
            continue;
        }
        // With the bytes of calls there is more room: of those right there, or else of any in reach.
        if is_short {
            room.free.extend(at..at + HOP);
        }
        room.free_calls(&mut steps, &calls, at..at + JUMP);
        if room.take(at..at + JUMP) {
            found.push(Reentry { at, hole: None });
            continue;
        }
        if !room.take(at..at + HOP) {
            return Err(NO_ROOM);
        }
        let hole = room.hole(terrain, at).or_else(|| {
            room.free_calls(&mut steps, &calls, reach(at));
            room.hole(terrain, at)
        });
        found.push(Reentry { at, hole: Some(hole.ok_or(NO_ROOM)?) });
    }
    found.sort_unstable_by_key(|reentry| reentry.at);
    let tactic = "relocated";
    Ok(Window { start, steps, reentries: found, hole: None, second: None, tactic })
}

const NO_ROOM: &str = "a call comes back to a place that has no room for a jump";

/// Where a short jump from an address can go.
fn reach(at: u64) -> Range<u64> {
    let end = at + HOP;
    end.saturating_sub(128)..end + 128
}

/// Bytes of the original that nothing runs any more.
struct Room<'a> {
    free: HashSet<u64>,
    /// The re-entries: none may be in the middle of anything.
    starts: &'a BTreeSet<u64>,
    /// The padding behind the function that is among the free bytes, or was.
    padding: Vec<Range<u64>>,
}

impl Room<'_> {
    /// Takes bytes, if all of them are free and control comes to none of them but the first.
    fn take(&mut self, range: Range<u64>) -> bool {
        let is_entered = self.starts.range(range.start + 1..range.end).next().is_some();
        let is_free = !is_entered && range.clone().all(|at| self.free.contains(&at));
        if is_free {
            range.for_each(|at| _ = self.free.remove(&at));
        }
        is_free
    }

    /// Moves the calls in a range to the copy, so that nothing runs their bytes any more either.
    fn free_calls(&mut self, steps: &mut [Step], calls: &BTreeSet<u64>, range: Range<u64>) {
        let first = steps.partition_point(|step| step.end() <= range.start);
        let near = steps[first..].iter_mut().take_while(|step| step.at < range.end);
        for step in near.filter(|step| step.stays && calls.contains(&step.at)) {
            step.stays = false;
            self.free.extend(step.at..step.end());
        }
    }

    /// Takes the room for a long jump that a short one reaches.
    fn hole(&mut self, terrain: &impl Terrain, at: u64) -> Option<u64> {
        let reach = reach(at);
        let inside = reach
            .clone()
            .find(|&hole| !self.starts.contains(&hole) && self.take(hole..hole + JUMP));
        inside.or_else(|| {
            let outside = terrain.hole(reach, &self.padding)?;
            self.padding.push(outside..outside + JUMP);
            Some(outside)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::plan_tests::{BASE, Field};
    use super::super::window::Spot;
    use super::*;
    use iced_x86::IcedError;
    use iced_x86::code_asm::*;

    fn window(field: &Field) -> Result<Window, &'static str> {
        relocated(field, field.body()?)
    }

    /// What is overwritten: it does not overlap, and nothing that stays is in it.
    fn overwritten(window: &Window) -> Vec<Range<u64>> {
        let mut all: Vec<_> = window.reentries.iter().flat_map(Reentry::overwritten).collect();
        all.sort_unstable_by_key(|range| range.start);
        assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:x?}");
        for step in window.steps.iter().filter(|step| step.stays) {
            assert!(all.iter().all(|range| range.end <= step.at || step.end() <= range.start));
        }
        all
    }

    fn ends_behind_a_call(a: &mut CodeAssembler) -> Result<(), IcedError> {
        a.push(rbx)?;
        a.mov(rbx, rdi)?;
        a.mov(eax, 7)?;
        a.mov(ecx, 7)?;
        a.call(BASE + 0x1000)?;
        a.pop(rbx)?;
        a.ret()
    }

    #[test]
    fn the_exit_behind_a_call_hops_to_bytes_that_nothing_runs() {
        let field = Field::new(0, ends_behind_a_call);
        let spots = [Spot::Entry(BASE), Spot::Before(field.function.end - 1)];
        let plan = Plan::default().extended(&field, &spots, &spots, &[]);
        assert_eq!(plan.refused.len(), 1, "{plan:?}");
        let plan = Plan::relocated(&field, &[]).unwrap();
        assert!(plan.extended(&field, &spots, &spots, &[]).refused.is_empty());
        let window = &plan.windows[&BASE];
        let behind = field.function.end - 2;
        assert_eq!(window.reentries[0], Reentry { at: BASE, hole: None });
        assert_eq!(window.reentries[1].at, behind);
        let hole = window.reentries[1].hole.unwrap();
        assert!(BASE + JUMP <= hole && hole + JUMP <= behind - 5, "{window:x?}");
        overwritten(window);
        // The call stays, and with it its return address.
        assert!(window.step(behind - 5).unwrap().stays);
        assert_eq!(plan.claims(), std::slice::from_ref(&field.function));
        assert_eq!(plan.stepping_stones(), [hole]);
    }

    #[test]
    fn a_call_moves_where_its_bytes_are_needed() {
        let field = Field::new(0, |a| {
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.mov(eax, 7)?;
            a.call(BASE + 0x1000)?;
            a.pop(rbx)?;
            a.ret()
        });
        let window = window(&field).unwrap();
        overwritten(&window);
        assert!(!window.step(BASE + 9).unwrap().stays, "{window:x?}");
    }

    #[test]
    fn calls_back_to_back_are_each_re_entered() {
        let field = Field::new(0, |a| {
            a.sub(rsp, 8)?;
            a.call(BASE + 0x1000)?;
            a.call(BASE + 0x1000)?;
            a.add(rsp, 8)?;
            a.ret()
        });
        let window = window(&field).unwrap();
        overwritten(&window);
        let at: Vec<u64> = window.reentries.iter().map(|reentry| reentry.at - BASE).collect();
        assert_eq!(at, [0, 9, 14]);
    }

    #[test]
    fn nothing_is_overwritten_that_is_jumped_to_from_elsewhere() {
        let mut field = Field::new(0, |a| {
            a.mov(eax, 1)?;
            a.xor(ecx, ecx)?;
            a.xor(edx, edx)?;
            a.xor(esi, esi)?;
            a.mov(edi, 1)?;
            a.ret()
        });
        field.fixed = vec![BASE + 5, BASE + 7];
        let window = window(&field).unwrap();
        let all = overwritten(&window);
        for reentry in [BASE, BASE + 5, BASE + 7] {
            assert!(all.iter().any(|range| range.start == reentry));
            assert!(all.iter().all(|range| !(range.start + 1..range.end).contains(&reentry)));
        }
    }

    #[test]
    fn one_byte_behind_a_call_is_not_enough() {
        let field = Field::new(0, |a| {
            a.mov(eax, 1)?;
            a.mov(ecx, 1)?;
            a.call(BASE + 0x1000)?;
            a.ret()
        });
        assert_eq!(window(&field), Err(NO_ROOM));
        let padded = Field::new(1, |a| {
            a.mov(eax, 1)?;
            a.mov(ecx, 1)?;
            a.call(BASE + 0x1000)?;
            a.ret()
        });
        overwritten(&window(&padded).unwrap());
    }
}
