//! Finding a window for a place, in the ways that [`super::plan`] lists. Pure.

use super::plan::{Plan, Reaim, Refused};
use super::relocated::relocated;
use super::window::{HOP, JUMP, Jump, Spot, Step, Terrain, Window, overlap};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many instructions before a point are tried as the start of its window.
const NEIGHBOURS: usize = 4;

impl Plan {
    /// This plan with windows for more places. What was planned before stays as it is: threads may be
    /// in it. `all` are the places that the function has then, these included; `reserved` are ranges
    /// that threads may still come back to.
    #[must_use]
    pub fn extended(
        &self,
        terrain: &impl Terrain,
        more: &[Spot],
        all: &[Spot],
        reserved: &[Range<u64>],
    ) -> Self {
        let mut refused: Vec<Refused> = Vec::new();
        loop {
            let mut plan = self.clone();
            let accepted = |spot: &&Spot| refused.iter().all(|r| r.spot != **spot);
            let failure = more.iter().filter(accepted).find_map(|&spot| {
                let added = add(terrain, &mut plan, spot, all, reserved);
                added.err().map(|why| Refused { spot, why })
            });
            match failure {
                // What the refused place had taken may be what another needs: again, without it.
                Some(failure) => refused.push(failure),
                None => {
                    plan.refused = refused;
                    return plan;
                }
            }
        }
    }

    /// The function laid out anew as a whole: then nothing of it is refused.
    pub fn relocated(
        terrain: &impl Terrain,
        reserved: &[Range<u64>],
    ) -> Result<Self, &'static str> {
        if !reserved.is_empty() {
            return Err(STILL_INSIDE);
        }
        let window = relocated(terrain, terrain.body()?)?;
        Ok(Self { windows: BTreeMap::from([(window.start, window)]), ..Self::default() })
    }
}

/// Finds a window for a place.
fn add(
    terrain: &impl Terrain,
    plan: &mut Plan,
    spot: Spot,
    spots: &[Spot],
    reserved: &[Range<u64>],
) -> Result<(), &'static str> {
    let at = spot.instruction();
    if let Some(window) = plan.window_of(at) {
        if !spot.is_passed_by_jumps() {
            return Ok(());
        }
        // A window that begins before a function's entry would be entered by no caller.
        if !window.entered_at().contains(&at) {
            return Err("another probe's window covers it");
        }
        let window = window.clone();
        return lead_past(terrain, plan, window, spots);
    }
    let mut first_reason = None;
    let mut attempt = |plan: &mut Plan, start: u64, room: u64, tactic: &'static str| {
        let found = window(terrain, plan, start..at + 1, room, tactic)
            .and_then(|w| {
                let range = w.start..w.end();
                let clashes = reserved.iter().any(|r| *r != range && overlap(r, &range));
                if clashes { Err(STILL_INSIDE) } else { Ok(w) }
            })
            .and_then(|w| settle(terrain, plan, w, spots));
        match found {
            Ok(()) => true,
            Err(why) => {
                first_reason.get_or_insert(why);
                false
            }
        }
    };
    if attempt(plan, at, JUMP, "jump") {
        return Ok(());
    }
    if !matches!(spot, Spot::Entry(_)) {
        let mut start = at;
        for _ in 0..NEIGHBOURS {
            let Some(before) = terrain.before(start) else { break };
            start = before;
            if let Some(neighbour) = plan.window_of(start).cloned() {
                return match widen(terrain, plan, &neighbour, at, spots) {
                    Ok(()) => Ok(()),
                    Err(why) => Err(first_reason.unwrap_or(why)),
                };
            }
            if attempt(plan, start, JUMP, "neighbours") {
                return Ok(());
            }
        }
    }
    if attempt(plan, at, HOP, "hop") {
        return Ok(());
    }
    if !matches!(spot, Spot::Entry(_))
        && let Some(before) = terrain.before(at)
        && attempt(plan, before, HOP, "hop")
    {
        return Ok(());
    }
    Err(first_reason.unwrap_or("there is no code"))
}

/// Leads the jumps to the start of a window past what is inserted only for entries and returns.
fn lead_past(
    terrain: &impl Terrain,
    plan: &mut Plan,
    window: Window,
    spots: &[Spot],
) -> Result<(), &'static str> {
    let start = window.start;
    let is_led_past = |jump: &Jump| {
        !terrain.contains(jump.source)
            || plan.window_of(jump.source).is_some()
            || plan.reaims.iter().any(|reaim| reaim.jump == *jump)
    };
    if window.is_relocated() || terrain.jumps_into(start..start + 1).iter().all(is_led_past) {
        return Ok(());
    }
    let kept = plan.clone();
    plan.windows.remove(&start);
    plan.reaims.retain(|reaim| !window.has(reaim.jump.target));
    let settled = settle(terrain, plan, window, spots);
    if settled.is_err() {
        *plan = kept;
    }
    settled
}

/// Extends a window by the instruction behind it.
fn widen(
    terrain: &impl Terrain,
    plan: &mut Plan,
    narrow: &Window,
    at: u64,
    spots: &[Spot],
) -> Result<(), &'static str> {
    let kept = plan.clone();
    plan.windows.remove(&narrow.start);
    plan.reaims.retain(|reaim| !narrow.has(reaim.jump.target));
    let room = narrow.overwritten().end - narrow.start;
    let widened = window(terrain, plan, narrow.start..at + 1, room, narrow.tactic)
        .and_then(|wide| settle(terrain, plan, wide, spots));
    if widened.is_err() {
        *plan = kept;
    }
    widened
}

/// The window of at least that many bytes whose instructions cover a range from its start on.
fn window(
    terrain: &impl Terrain,
    plan: &Plan,
    covered: Range<u64>,
    room: u64,
    tactic: &'static str,
) -> Result<Window, &'static str> {
    let start = covered.start;
    let end = covered.end.max(start + room);
    let mut steps: Vec<Step> = Vec::new();
    let mut at = start;
    while at < end {
        let dead_end = steps.last().is_some_and(|last| !last.falls_through);
        if dead_end && at >= covered.end && terrain.padding(at) >= end - at {
            break;
        }
        let step = terrain
            .step(at)
            .filter(|step| terrain.contains(step.at))
            .ok_or("the function is too short and nothing behind it is free")?;
        if steps.last().is_some_and(|last| last.returns) {
            return Err("a call would come back into the middle of it");
        }
        at = step.end();
        steps.push(step);
    }
    if at < start + room && steps.last().is_some_and(|last| last.returns) {
        return Err("a call would come back into the middle of it");
    }
    let hole = if room == HOP {
        let reach = (start + HOP).saturating_sub(128)..start + HOP + 128;
        let mut taken = plan.claims();
        taken.push(start..at);
        Some(terrain.hole(reach, &taken).ok_or("there is no padding nearby")?)
    } else {
        None
    };
    let window = Window { start, steps, reentries: Vec::new(), hole, second: None, tactic };
    if plan.overlaps(&window.claim()) || terrain.is_foreign(window.claim()) {
        return Err("another probe's window is too close");
    }
    Ok(window)
}

/// Takes a window in, if everything that jumps into it can be re-aimed.
fn settle(
    terrain: &impl Terrain,
    plan: &mut Plan,
    window: Window,
    spots: &[Spot],
) -> Result<(), &'static str> {
    match reaims(terrain, plan, &window, spots, None) {
        Err(NO_PADDING)
            if window.hole.is_none() && !terrain.is_preempted_at(window.start + JUMP) =>
        {
            // There may be room for another jump behind the first.
            let covered = window.start..window.end();
            let mut wider = self::window(terrain, plan, covered, 2 * JUMP, window.tactic)?;
            // Whatever its target: its bytes are taken.
            wider.second = Some(wider.start);
            if plan.overlaps(&wider.claim()) || terrain.is_foreign(wider.claim()) {
                return Err(NO_PADDING);
            }
            let mut second = None;
            let found = reaims(terrain, plan, &wider, spots, Some(&mut second))?;
            wider.second = second;
            accept(plan, wider, found)
        }
        found => accept(plan, window, found?),
    }
}

const STILL_INSIDE: &str = "a thread is still on its way out of an earlier probe";

pub const NO_PADDING: &str = "a short jump goes into the middle of it, with no padding nearby";

/// The jumps into a window that have to be re-aimed. `second` is where a second jump in the window is
/// to go, if there may be one.
fn reaims(
    terrain: &impl Terrain,
    plan: &Plan,
    window: &Window,
    spots: &[Spot],
    mut second: Option<&mut Option<u64>>,
) -> Result<Vec<Reaim>, &'static str> {
    let is_entry = spots.contains(&Spot::Entry(window.start));
    let is_passed = is_entry || spots.contains(&Spot::Returned(window.start));
    let mut reaims = Vec::new();
    let mut taken = plan.claims();
    taken.push(window.claim());
    taken.extend(window.hole.map(|hole| hole..hole + JUMP));
    let (mut falls_through, mut is_in_gap) = (true, false);
    for step in &window.steps {
        is_in_gap = step.fills && (is_in_gap || !falls_through);
        falls_through = step.falls_through;
        if step.at == window.start {
            continue;
        }
        if terrain.is_fixed(step.at) {
            return Err("code that cannot be changed jumps into the middle of it");
        }
        if terrain.is_waited_at(step.at) {
            return Err("a goroutine may wait in the middle of it");
        }
        // Jumps that are not known lead to code, not to what fills the gap before it.
        if !is_entry && !terrain.is_certain() && !is_in_gap {
            return Err("not all jumps of the function are known");
        }
    }
    for jump in terrain.jumps_into(window.start..window.end()) {
        if jump.target == window.start {
            // Only callers may run the probe at an entry, and only returns the one behind a call.
            if !is_passed || !terrain.contains(jump.source) {
                continue;
            }
        } else if !window.has(jump.target) {
            return Err("a jump goes into the middle of an instruction");
        }
        if window.has(jump.source) || plan.window_of(jump.source).is_some() {
            continue;
        }
        let end = jump.source + u64::from(jump.length);
        if terrain.is_foreign(jump.source..end) {
            return Err("another probe's window is too close");
        }
        let reach = end.saturating_sub(128)..end + 128;
        let hole = if jump.is_long {
            None
        } else if !jump.is_plain {
            return Err("a loop instruction goes into the middle of it");
        } else if let Some(hole) = terrain.hole(reach.clone(), &taken) {
            taken.push(hole..hole + JUMP);
            Some(hole)
        } else {
            let at = window.start + JUMP;
            let second = second.as_deref_mut().ok_or(NO_PADDING)?;
            if !reach.contains(&at) || *second.get_or_insert(jump.target) != jump.target {
                return Err(NO_PADDING);
            }
            Some(at)
        };
        reaims.push(Reaim { jump, hole });
    }
    Ok(reaims)
}

/// Takes a window and its re-aimed jumps in.
fn accept(plan: &mut Plan, window: Window, reaims: Vec<Reaim>) -> Result<(), &'static str> {
    let overwritten = window.overwritten();
    // A jump that was to be re-aimed may now move itself, as a whole or not at all.
    let moves = |r: &Reaim| window.has(r.jump.source);
    let is_hit = |r: &Reaim| {
        let end = r.jump.source + u64::from(r.jump.length);
        r.jump.source < overwritten.end && overwritten.start < end
    };
    if plan.reaims.iter().any(|r| is_hit(r) && !moves(r)) {
        return Err("another probe's window is too close");
    }
    plan.reaims.retain(|r| !moves(r));
    plan.reaims.extend(reaims);
    plan.windows.insert(window.start, window);
    Ok(())
}
