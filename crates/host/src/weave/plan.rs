//! Where in a function the jumps to its probes go. Pure: instructions in, windows out.
//!
//! A *window* is a run of whole instructions that is copied to a trampoline; its first bytes become a
//! jump there. Nothing may come to the overwritten bytes but through that jump: whatever jumps to an
//! instruction among them is re-aimed at the instruction's copy. The ways to find a window, the first
//! that fits is taken:
//!
//! 1. `jump`: five bytes from the point on, padding behind the function included.
//! 2. `neighbours`: five bytes that begin with instructions before the point.
//! 3. `hop`: two bytes, for a short jump into padding nearby that holds the long one.
//! 4. `relocated`: the function as a whole, see [`super::relocated`].
//!
//! A place where none of them fits is refused, with the reason.

use super::relocated::{Body, Reentry, relocated};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_code::{Branch, BranchKind, Width};

/// The length of a jump that reaches a trampoline.
pub const JUMP: u64 = 5;
/// The length of a jump to padding nearby.
pub const HOP: u64 = 2;
/// How many instructions before a point are tried as the start of its window.
const NEIGHBOURS: usize = 4;

/// A place where code can be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Spot {
    /// Where a function is entered; a jump back to its start from within is no entry.
    Entry(u64),
    /// Before an instruction, however control comes to it.
    Before(u64),
    /// Where a call returns to; jumps to the instruction there are no returns.
    Returned(u64),
    /// After an instruction, when control goes on to the next.
    After(u64),
    /// On the way of a taken jump.
    Taken(u64),
}

impl Spot {
    /// The instruction that it belongs to.
    pub fn instruction(self) -> u64 {
        let (Self::Entry(at)
        | Self::Before(at)
        | Self::Returned(at)
        | Self::After(at)
        | Self::Taken(at)) = self;
        at
    }

    /// Whether jumps to its instruction from within the function pass it by.
    fn is_passed_by_jumps(self) -> bool {
        matches!(self, Self::Entry(_) | Self::Returned(_))
    }
}

/// What the planner has to know of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its address.
    pub at: u64,
    /// Its length.
    pub length: u64,
    /// Whether control can go on to the next instruction.
    pub falls_through: bool,
    /// Whether it is one that compilers fill gaps with, and does nothing.
    pub fills: bool,
    /// Whether control comes back to the next instruction from elsewhere: a call, a system call.
    pub returns: bool,
    /// Whether it runs where it is: its copy only leads there.
    pub stays: bool,
}

impl Step {
    /// The address after it.
    pub fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// A direct jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Its address.
    pub source: u64,
    /// Its length.
    pub length: u8,
    /// Where it goes.
    pub target: u64,
    /// Whether its distance has 32 bits, not 8.
    pub is_long: bool,
    /// Whether it can be lengthened in place of being re-aimed: `jrcxz` and `loop` cannot.
    pub is_plain: bool,
}

impl From<&Branch> for Jump {
    fn from(branch: &Branch) -> Self {
        Self {
            source: branch.source,
            length: branch.length,
            target: branch.target,
            is_long: branch.width == Width::Rel32,
            is_plain: branch.kind != BranchKind::Loop,
        }
    }
}

/// What the planner has to know of the code around.
pub trait Terrain {
    /// The instruction at an address; nothing where there is none.
    fn step(&self, at: u64) -> Option<Step>;
    /// The start of the instruction that control falls through from to this address.
    fn before(&self, at: u64) -> Option<u64>;
    /// The direct jumps into a range.
    fn jumps_into(&self, range: Range<u64>) -> Vec<Jump>;
    /// Whether something comes to this address that cannot be re-aimed: a jump table, an exception, a
    /// call.
    fn is_fixed(&self, at: u64) -> bool;
    /// Whether a goroutine may wait before the instruction at this address, and it cannot be told: the
    /// runtime interrupts them anywhere.
    fn is_waited_at(&self, at: u64) -> bool;
    /// Whether goroutines are interrupted at this address. One that waits at a jump of weft's that only
    /// others of weft's lead to could not go on when that is gone.
    fn is_preempted_at(&self, at: u64) -> bool;
    /// Whether all jumps within the function are known.
    fn is_certain(&self) -> bool;
    /// Whether an address belongs to the function.
    fn contains(&self, at: u64) -> bool;
    /// How many bytes of padding begin here.
    fn padding(&self, at: u64) -> u64;
    /// Padding of [`JUMP`] bytes that begins in this range and is outside of all that are `taken`.
    fn hole(&self, within: Range<u64>, taken: &[Range<u64>]) -> Option<u64>;
    /// Whether another function has changed something there for its own probes.
    fn is_foreign(&self, range: Range<u64>) -> bool;
    /// All of the function, or why it cannot be laid out anew.
    fn body(&self) -> Result<Body, &'static str>;
}

/// A run of instructions that moves to a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it starts.
    pub start: u64,
    /// Its instructions, by their addresses.
    pub steps: Vec<Step>,
    /// Where jumps to it stand, if it is a whole function; otherwise there is one, at its start.
    pub reentries: Vec<Reentry>,
    /// The padding that holds the jump, when only a short one fits here.
    pub hole: Option<u64>,
    /// Where a second jump goes that stands behind the first: to the copy of this instruction. Short
    /// jumps that are to be re-aimed go through it where no padding is in their reach.
    pub second: Option<u64>,
    /// The way that it was found.
    pub tactic: &'static str,
}

impl Window {
    /// Whether it is a whole function.
    pub fn is_relocated(&self) -> bool {
        !self.reentries.is_empty()
    }

    /// The runs of instructions that it consists of.
    pub fn runs(&self) -> Vec<Range<u64>> {
        merged(self.steps.iter().map(|step| step.at..step.end()).collect())
    }

    /// Where control comes to it.
    pub fn entered_at(&self) -> Vec<u64> {
        match self.is_relocated() {
            true => self.reentries.iter().map(|reentry| reentry.at).collect(),
            false => vec![self.start],
        }
    }

    /// The bytes that are overwritten at the start of a run of instructions.
    fn overwritten(&self) -> Range<u64> {
        let length = match (self.hole, self.second) {
            (Some(_), _) => HOP,
            (None, Some(_)) => 2 * JUMP,
            (None, None) => JUMP,
        };
        self.start..self.start + length
    }

    /// The address after the last instruction.
    pub fn end(&self) -> u64 {
        self.steps.last().map_or(self.start, Step::end)
    }

    /// All bytes that nothing else may use: its instructions, and padding behind them that it needs.
    fn claim(&self) -> Range<u64> {
        self.start..self.end().max(self.overwritten().end)
    }

    /// The same of a window of any kind.
    fn claims(&self) -> Vec<Range<u64>> {
        if !self.is_relocated() {
            return vec![self.claim()];
        }
        let jumps = self.reentries.iter().flat_map(Reentry::overwritten);
        merged(self.runs().into_iter().chain(jumps).collect())
    }

    /// The instruction at an address.
    pub fn step(&self, at: u64) -> Option<&Step> {
        self.steps.binary_search_by_key(&at, |step| step.at).ok().map(|index| &self.steps[index])
    }

    /// Whether a call of its own returns to this address.
    pub fn is_returned_to(&self, at: u64) -> bool {
        let index = self.steps.partition_point(|step| step.at < at);
        let before = index.checked_sub(1).map(|index| &self.steps[index]);
        before.is_some_and(|step| step.returns && step.end() == at)
    }

    /// Whether an instruction begins at this address.
    pub fn has(&self, at: u64) -> bool {
        self.step(at).is_some()
    }
}

/// Ranges by their starts, with those together that overlap or touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// A jump that shall go to the copy of the instruction that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaim {
    /// The jump.
    pub jump: Jump,
    /// The padding that holds a long jump, when this is a short one.
    pub hole: Option<u64>,
}

/// Why nothing can be woven at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The place.
    pub spot: Spot,
    /// The reason.
    pub why: &'static str,
}

/// How a function is woven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The windows, by their start.
    pub windows: BTreeMap<u64, Window>,
    /// The jumps to re-aim.
    pub reaims: Vec<Reaim>,
    /// What could not be done.
    pub refused: Vec<Refused>,
}

impl Plan {
    /// The window that an instruction is copied to.
    pub fn window_of(&self, at: u64) -> Option<&Window> {
        self.windows.range(..=at).next_back().map(|(_, w)| w).filter(|w| w.has(at))
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        let holes = self.holes().into_iter().map(|hole| hole..hole + JUMP);
        let windows = self.windows.values().flat_map(Window::claims);
        windows.chain(holes).any(|taken| overlap(&taken, range))
    }

    /// All bytes that it changes.
    pub fn claims(&self) -> Vec<Range<u64>> {
        let windows = self.windows.values().flat_map(Window::claims);
        let jumps =
            self.reaims.iter().map(|r| r.jump.source..r.jump.source + u64::from(r.jump.length));
        let holes = self.holes().into_iter().map(|hole| hole..hole + JUMP);
        windows.chain(jumps).chain(holes).collect()
    }

    /// The padding that it uses.
    fn holes(&self) -> Vec<u64> {
        let windows = self.windows.values().filter_map(|w| w.hole);
        windows.chain(self.reaims.iter().filter_map(|r| self.padding_of(r))).collect()
    }

    /// Where jumps stand that only weft's own jumps lead to.
    pub fn stepping_stones(&self) -> Vec<u64> {
        let second = self.windows.values().filter(|w| w.second.is_some()).map(|w| w.start + JUMP);
        let reentries = self.windows.values().flat_map(|w| &w.reentries);
        let inside = reentries.filter_map(|reentry| reentry.hole);
        self.holes().into_iter().chain(second).chain(inside).collect()
    }

    /// The padding that a re-aimed jump goes through; nothing if it goes through a window.
    pub fn padding_of(&self, reaim: &Reaim) -> Option<u64> {
        let is_second = |hole: &u64| {
            self.windows.values().any(|w| w.second.is_some() && w.start + JUMP == *hole)
        };
        reaim.hole.filter(|hole| !is_second(hole))
    }
}

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

    /// Whether the function is laid out anew as a whole.
    pub fn is_relocated(&self) -> bool {
        self.windows.values().any(Window::is_relocated)
    }

    /// This plan with only the windows that these places need, and those that jumps into them moved to.
    #[must_use]
    pub fn reduced(&self, terrain: &impl Terrain, spots: &[Spot]) -> Self {
        if self.is_relocated() {
            return if spots.is_empty() { Self::default() } else { self.clone() };
        }
        let mut needed: Vec<u64> = self
            .windows
            .values()
            .filter(|w| spots.iter().any(|spot| w.has(spot.instruction())))
            .map(|w| w.start)
            .collect();
        let mut next = 0;
        while let Some(window) = needed.get(next).map(|start| &self.windows[start]) {
            next += 1;
            for jump in terrain.jumps_into(window.start..window.end()) {
                if let Some(source) = self.window_of(jump.source)
                    && !needed.contains(&source.start)
                {
                    needed.push(source.start);
                }
            }
        }
        let mut plan = self.clone();
        plan.refused.clear();
        plan.windows.retain(|start, _| needed.contains(start));
        let is_needed = |reaim: &&Reaim| plan.window_of(reaim.jump.target).is_some();
        plan.reaims = self.reaims.iter().filter(is_needed).copied().collect();
        plan
    }
}

pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Finds a window for one more place.
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

/// Has the jumps to the start of a window that is planned pass by what is only for those who come otherwise.
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

/// Has a window take one more instruction in, behind those that it has.
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
const NO_PADDING: &str = "a short jump goes into the middle of it, with no padding nearby";

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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use iced_x86::code_asm::*;
    use iced_x86::{Decoder, DecoderOptions, FlowControl, IcedError, Mnemonic};
    use std::collections::BTreeSet;
    use weft_code::{Sweep, sweep};

    pub(in super::super) const BASE: u64 = 0x40_0000;

    /// A function at `BASE`, with padding behind it, then another function.
    pub(in super::super) struct Field {
        bytes: Vec<u8>,
        pub(in super::super) function: Range<u64>,
        sweep: Sweep,
        certain: bool,
        pub(in super::super) fixed: Vec<u64>,
        waited: Vec<u64>,
        preempted: Vec<u64>,
        padding: u64,
    }

    impl Field {
        pub(in super::super) fn new(
            padding: usize,
            write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
        ) -> Self {
            let mut assembler = CodeAssembler::new(64).unwrap();
            write(&mut assembler).unwrap();
            let mut bytes = assembler.assemble(BASE).unwrap();
            let function = BASE..BASE + bytes.len() as u64;
            bytes.extend(vec![0xcc; padding]);
            bytes.extend([0xc3; 16]);
            let sweep = sweep(&bytes, BASE, &[BASE]);
            Self {
                bytes,
                function,
                sweep,
                certain: true,
                fixed: vec![],
                waited: vec![],
                preempted: vec![],
                padding: padding as u64,
            }
        }

        fn plan(&self, spots: &[Spot]) -> Plan {
            Plan::default().extended(self, spots, spots, &[])
        }
    }

    impl Terrain for Field {
        fn step(&self, at: u64) -> Option<Step> {
            let bytes = self.bytes.get((at - BASE) as usize..)?;
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            let flow = instruction.flow_control();
            (!instruction.is_invalid()).then_some(Step {
                at,
                length: instruction.len() as u64,
                falls_through: !matches!(
                    flow,
                    FlowControl::UnconditionalBranch | FlowControl::Return
                ),
                fills: matches!(instruction.mnemonic(), Mnemonic::Nop),
                returns: matches!(flow, FlowControl::Call | FlowControl::IndirectCall),
                stays: false,
            })
        }

        fn before(&self, at: u64) -> Option<u64> {
            let mut from = BASE;
            while from < at {
                let step = self.step(from)?;
                if step.end() == at {
                    return step.falls_through.then_some(from);
                }
                from = step.end();
            }
            None
        }

        fn jumps_into(&self, range: Range<u64>) -> Vec<Jump> {
            self.sweep.branches_into(range).map(Jump::from).collect()
        }

        fn is_fixed(&self, at: u64) -> bool {
            self.fixed.contains(&at)
        }

        fn is_waited_at(&self, at: u64) -> bool {
            self.waited.contains(&at)
        }

        fn is_preempted_at(&self, at: u64) -> bool {
            self.preempted.contains(&at)
        }

        fn is_certain(&self) -> bool {
            self.certain
        }

        fn contains(&self, at: u64) -> bool {
            self.function.contains(&at)
        }

        fn padding(&self, at: u64) -> u64 {
            (self.function.end + self.padding).saturating_sub(at).min(self.padding)
        }

        fn is_foreign(&self, _: Range<u64>) -> bool {
            false
        }

        fn body(&self) -> Result<Body, &'static str> {
            let mut body = Body { reentries: BTreeSet::from([BASE]), ..Body::default() };
            body.reentries.extend(&self.fixed);
            let mut at = BASE;
            while at < self.function.end {
                let step = self.step(at).ok_or("there is no code")?;
                at = step.end();
                if step.returns && at < self.function.end {
                    body.reentries.insert(at);
                }
                body.calls.extend(step.returns.then_some(step.at));
                body.steps.push(Step { stays: step.returns, ..step });
            }
            Ok(body)
        }

        fn hole(&self, within: Range<u64>, taken: &[Range<u64>]) -> Option<u64> {
            let end = self.function.end + self.padding;
            let is_free = |at: u64| !taken.iter().any(|t| overlap(t, &(at..at + JUMP)));
            (self.function.end..end.saturating_sub(JUMP - 1))
                .rev()
                .find(|&at| within.contains(&at) && is_free(at))
        }
    }

    fn tactics(plan: &Plan) -> Vec<(u64, &'static str)> {
        plan.windows.values().map(|w| (w.start - BASE, w.tactic)).collect()
    }

    #[test]
    fn whole_instructions_are_taken() {
        let field = Field::new(0, |a| {
            a.push(rbp)?;
            a.mov(rbp, rsp)?;
            a.sub(rsp, 16)?;
            a.leave()?;
            a.ret()
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(tactics(&plan), [(0, "jump")]);
        assert_eq!(plan.windows[&BASE].end(), BASE + 8);
    }

    #[test]
    fn a_tiny_function_uses_the_padding_behind_it() {
        let tiny = |padding| {
            Field::new(padding, |a| {
                a.xor(eax, eax)?;
                a.ret()
            })
        };
        let plan = tiny(2).plan(&[Spot::Entry(BASE), Spot::Before(BASE + 2)]);
        assert_eq!(tactics(&plan), [(0, "jump")]);
        assert!(plan.refused.is_empty());
        let plan = tiny(1).plan(&[Spot::Entry(BASE)]);
        assert_eq!(plan.refused[0].why, "the function is too short and nothing behind it is free");
    }

    #[test]
    fn a_short_function_hops_into_padding() {
        // A loop to the second instruction, which is fixed: only the first two bytes are free.
        let mut field = Field::new(5, |a| {
            a.xor(eax, eax)?;
            a.inc(eax)?;
            a.ret()
        });
        field.fixed.push(BASE + 2);
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(tactics(&plan), [(0, "hop")]);
        assert_eq!(plan.windows[&BASE].hole, Some(BASE + 5));
        assert_eq!(plan.windows[&BASE].steps.len(), 1);
    }

    #[test]
    fn a_loop_back_to_the_entry_is_no_entry() {
        let field = Field::new(8, |a| {
            let mut start = a.create_label();
            a.set_label(&mut start)?;
            a.add(qword_ptr(rdi), 1)?;
            a.add(rdi, 8)?;
            a.cmp(rdi, rsi)?;
            a.jne(start)?;
            a.ret()
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(tactics(&plan), [(0, "jump")]);
        let [reaim] = plan.reaims[..] else { panic!("{plan:?}") };
        assert_eq!((reaim.jump.target, reaim.jump.is_long), (BASE, false));
        assert!(reaim.hole.is_some());
        // For a probe before the instruction, the loop counts.
        assert!(field.plan(&[Spot::Before(BASE)]).reaims.is_empty());
    }

    #[test]
    fn a_jump_to_where_a_call_returns_is_led_past() {
        let field = Field::new(8, |a| {
            let mut behind = a.create_label();
            a.jmp(behind)?;
            a.call(BASE + 0x1000)?;
            a.set_label(&mut behind)?;
            a.add(rbx, 1000)?;
            a.ret()
        });
        let (jump, behind) = (BASE, BASE + 7);
        let plan = field.plan(&[Spot::Returned(behind)]);
        assert_eq!(tactics(&plan), [(7, "jump")]);
        assert_eq!(plan.reaims[0].jump.source, jump);
        // What is before the instruction is for all that come there, until something is for returns only.
        let before = field.plan(&[Spot::Before(behind)]);
        assert!(before.reaims.is_empty());
        let all = [Spot::Before(behind), Spot::Returned(behind)];
        let both = before.extended(&field, &all[1..], &all, &[]);
        assert_eq!((both.windows, both.reaims), (plan.windows, plan.reaims));
        // As for those who enter a function.
        let jumped = Field::new(8, |a| {
            let mut start = a.create_label();
            a.set_label(&mut start)?;
            a.add(rdi, 1000)?;
            a.jne(start)?;
            a.ret()
        });
        let all = [Spot::Before(BASE), Spot::Entry(BASE)];
        let both = jumped.plan(&all[..1]).extended(&jumped, &all[1..], &all, &[]);
        assert_eq!(both.reaims.len(), 1, "{both:?}");
    }

    #[test]
    fn a_short_jump_without_padding_goes_through_the_window() {
        // As Go's functions: they come back to their start with a larger stack.
        let field = Field::new(0, |a| {
            let mut start = a.create_label();
            let mut more = a.create_label();
            a.set_label(&mut start)?;
            a.cmp(rsp, ptr(r14) + 16)?;
            a.jbe(more)?;
            a.push(rbp)?;
            a.mov(rbp, rsp)?;
            a.pop(rbp)?;
            a.ret()?;
            a.set_label(&mut more)?;
            a.call(rax)?;
            a.jmp(start)
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(plan.windows[&BASE].second, Some(BASE));
        assert_eq!(plan.windows[&BASE].overwritten(), BASE..BASE + 10);
        assert_eq!(plan.reaims[0].hole, Some(BASE + 5));
        assert_eq!(plan.claims().len(), 2);
        // A goroutine could wait at the second jump.
        let preempted = Field { preempted: vec![BASE + 5], ..field };
        assert_eq!(preempted.plan(&[Spot::Entry(BASE)]).refused[0].why, NO_PADDING);
    }

    #[test]
    fn a_second_jump_and_a_hole_share_no_padding() {
        let field = Field::new(9, |a| {
            let mut start = a.create_label();
            a.set_label(&mut start)?;
            a.dec(edi)?;
            a.jne(start)?;
            a.dec(esi)?;
            a.jne(start)?;
            a.ret()
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        let claims = plan.claims();
        for (index, claim) in claims.iter().enumerate() {
            assert!(!claims[..index].iter().any(|other| overlap(other, claim)), "{plan:x?}");
        }
    }

    #[test]
    fn a_jump_into_the_window_is_re_aimed_unless_it_moves_along() {
        let field = Field::new(0, |a| {
            let mut top = a.create_label();
            a.xor(eax, eax)?;
            a.set_label(&mut top)?;
            a.inc(rax)?;
            a.lea(rcx, ptr(rax) + 1000)?;
            a.db(&[0x0f, 0x85])?; // jne top, in its long form
            a.dd(&[(-16i32) as u32])?;
            a.ret()
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(plan.reaims.len(), 1, "{plan:?}");
        assert!(plan.reaims[0].jump.is_long && plan.reaims[0].hole.is_none());
        // A window over the jump takes it along.
        let jump = plan.reaims[0].jump.source;
        let both = plan.extended(&field, &[Spot::Taken(jump)], &[Spot::Taken(jump)], &[]);
        assert_eq!(both.windows.len(), 2, "{both:?}");
        assert!(both.reaims.is_empty());
        assert_eq!(both.reduced(&field, &[Spot::Taken(jump)]).windows.len(), 1);
        // And is needed for as long as the jump would otherwise go into the other window.
        assert_eq!(both.reduced(&field, &[Spot::Entry(BASE)]).windows.len(), 2);
    }

    #[test]
    fn no_call_returns_into_a_window() {
        let field = Field::new(0, |a| {
            a.call(rax)?;
            a.nop()?;
            a.nop()?;
            a.nop()?;
            a.ret()
        });
        let plan = field.plan(&[Spot::Entry(BASE)]);
        assert_eq!(plan.refused[0].why, "a call would come back into the middle of it");
    }

    #[test]
    fn a_return_takes_a_gap_in_that_no_jump_leads_to() {
        let field = Field::new(0, |a| {
            a.test(rdi, rdi)?;
            a.pop(rbx)?;
            a.ret()?;
            a.db(&[0x0f, 0x1f, 0x40, 0x00])?;
            a.pop(rbp)?;
            a.ret()
        });
        let ret = BASE + 4;
        let field = Field { certain: false, ..field };
        assert_eq!(tactics(&field.plan(&[Spot::Before(ret)])), [(4, "jump")]);
        // Without a gap, what is behind may be jumped to.
        let field = Field::new(0, |a| {
            a.ret()?;
            a.add(rsp, 8)?;
            a.ret()
        });
        let field = Field { certain: false, ..field };
        assert_ne!(tactics(&field.plan(&[Spot::Before(BASE)])), [(0, "jump")]);
    }

    #[test]
    fn a_return_takes_its_neighbours_in() {
        let field = Field::new(0, |a| {
            a.add(rsp, 8)?;
            a.pop(rbx)?;
            a.pop(rbp)?;
            a.ret()
        });
        let ret = field.function.end - 1;
        let plan = field.plan(&[Spot::Before(ret)]);
        assert_eq!(tactics(&plan), [(0, "neighbours")]);
        let mut uncertain = Field { certain: false, ..field };
        uncertain.certain = false;
        assert_eq!(
            uncertain.plan(&[Spot::Before(ret)]).refused[0].why,
            "the function is too short and nothing behind it is free"
        );
    }

    #[test]
    fn a_return_joins_the_window_before_it() {
        let field = Field::new(0, |a| {
            a.add(qword_ptr(rdi) + 100, 1)?;
            a.ret()
        });
        let ret = field.function.end - 1;
        let plan = field.plan(&[Spot::Entry(BASE), Spot::Before(ret)]);
        assert!(plan.refused.is_empty(), "{plan:?}");
        assert_eq!(plan.windows.len(), 1);
        assert!(plan.window_of(ret).is_some());
    }

    #[test]
    fn windows_do_not_overlap_and_the_rest_is_woven_without_the_refused() {
        let field = Field::new(0, |a| {
            a.mov(eax, 1)?;
            a.nop()?;
            a.mov(ecx, 1)?;
            a.ret()
        });
        let spots = [Spot::Entry(BASE), Spot::Before(BASE + 5), Spot::Before(BASE + 6)];
        let plan = field.plan(&spots);
        assert_eq!(tactics(&plan), [(0, "jump"), (5, "jump")]);
        assert!(plan.refused.is_empty());
        let reserved = BASE + 3..BASE + 7;
        let reserved = std::slice::from_ref(&reserved);
        let plan = Plan::default().extended(&field, &spots, &spots, reserved);
        assert!(plan.refused.len() >= 2, "{plan:?}");
    }
}
