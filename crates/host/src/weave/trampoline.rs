//! The code that a window's jump leads to: the window's instructions with probes between them.

use super::plan::Plan;
use super::window::{Spot, Window};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_code::{Aim, Immovable, Moved, Relocator};
use weft_snippet::Compiled;

/// What stands between pieces of code: a breakpoint, should anything ever get there.
const FILLER: u8 = 0xcc;

/// What is inserted at each place of a function, in its order.
pub type Insertions = BTreeMap<Spot, Vec<Compiled>>;

/// A trampoline, ready to be written.
#[derive(Clone, Debug)]
pub struct Trampoline {
    /// Where its bytes go.
    pub at: u64,
    /// The parts of the probes that are rarely run, then the rest.
    pub bytes: Vec<u8>,
    /// Where the window's jump goes.
    pub start: u64,
    /// Where the window's instructions went, by their original addresses.
    pub moved: Vec<Moved>,
    /// What else is where.
    pub contents: Contents,
}

/// What of a trampoline is no copied instruction.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The snippets.
    pub inserted: Vec<Inserted>,
    /// Jumps out of the trampoline, or past some of it.
    pub jumps: Vec<u64>,
    /// Where the code ends; constants follow.
    pub code_end: u64,
}

/// A snippet in a trampoline.
#[derive(Clone, Debug)]
pub struct Inserted {
    /// The place that it is for, and which of that place's snippets it is.
    pub spot: Spot,
    /// See above.
    pub index: usize,
    /// Its code.
    pub main: Range<u64>,
    /// The part that is rarely run.
    pub rare: Range<u64>,
}

impl Trampoline {
    /// Where the copy of an instruction is.
    pub fn moved(&self, original: u64) -> Option<&Moved> {
        let index = self.moved.binary_search_by_key(&original, |moved| moved.original).ok()?;
        Some(&self.moved[index])
    }

    /// The most bytes that a window's trampoline takes.
    pub fn room(window: &Window, insertions: &Insertions) -> usize {
        /// An instruction that has to be replaced by several, with a constant.
        const WORST_COPY: usize = 64;
        let inserted: usize = of_window(window, insertions)
            .flat_map(|(_, compiled)| compiled)
            .map(|compiled| compiled.cold_len() + compiled.main_len() + WORST_COPY)
            .sum();
        inserted + (window.steps.len() + 1) * WORST_COPY
    }
}

fn of_window<'a>(
    window: &'a Window,
    insertions: &'a Insertions,
) -> impl Iterator<Item = (Spot, &'a [Compiled])> {
    insertions
        .iter()
        .filter(|(spot, _)| window.has(spot.instruction()))
        .map(|(&spot, compiled)| (spot, compiled.as_slice()))
}

/// Builds the trampolines of all windows of a plan. `places` says where each goes, `bytes` gives the
/// original code from an address on.
pub fn build<'a>(
    plan: &Plan,
    insertions: &'a Insertions,
    places: &BTreeMap<u64, u64>,
    bytes: impl Fn(u64) -> &'a [u8],
) -> Result<BTreeMap<u64, Trampoline>, Immovable> {
    let all = |known: &BTreeMap<u64, Trampoline>| {
        plan.windows
            .values()
            .map(|window| {
                let at = places.get(&window.start).copied().unwrap_or_default();
                build_one(window, insertions, at, &bytes, known).map(|t| (window.start, t))
            })
            .collect::<Result<BTreeMap<_, _>, _>>()
    };
    // Code in one window may jump to code in another, and all distances take the same room, so a
    // second time puts everything in the same place and knows where that is.
    let first = all(&BTreeMap::new())?;
    if first.len() > 1 { all(&first) } else { Ok(first) }
}

fn build_one<'a>(
    window: &Window,
    insertions: &'a Insertions,
    at: u64,
    bytes: &impl Fn(u64) -> &'a [u8],
    others: &BTreeMap<u64, Trampoline>,
) -> Result<Trampoline, Immovable> {
    // What is rarely run comes first, so that its place is known when the rest is laid out.
    let cold = RefCell::new(Vec::new());
    let cold_size: usize =
        of_window(window, insertions).flat_map(|(_, all)| all).map(Compiled::cold_len).sum();
    let start = (at + cold_size as u64).next_multiple_of(16);
    let inserted = RefCell::new(Vec::new());
    let insertion = |spot: Spot, index: usize, compiled: &'a Compiled| {
        let (cold, inserted) = (&cold, &inserted);
        move |main_at: u64| {
            let mut cold = cold.borrow_mut();
            let rare_at = at + cold.len() as u64;
            let (main, rare) = compiled.place(main_at, rare_at);
            inserted.borrow_mut().push(Inserted {
                spot,
                index,
                main: main_at..main_at + main.len() as u64,
                rare: rare_at..rare_at + rare.len() as u64,
            });
            cold.extend(rare);
            main
        }
    };
    let at_spot = |spot: Spot| insertions.get(&spot).map_or(&[][..], Vec::as_slice);
    // Where a jump from this window goes that goes to an instruction of some window.
    let aim = |target: u64| {
        if window.has(target) {
            return Aim::Entered(target);
        }
        let elsewhere = others.values().find_map(|other| other.moved(target));
        Aim::Address(elsewhere.map_or(target, |moved| moved.entered))
    };

    let mut relocator = Relocator::new();
    let mut stubs = Vec::new();
    for (index, step) in window.steps.iter().enumerate() {
        for spot in [Spot::Entry(step.at), Spot::Returned(step.at)] {
            for (index, compiled) in at_spot(spot).iter().enumerate() {
                relocator.insert_on_fall(insertion(spot, index, compiled));
            }
        }
        for (index, compiled) in at_spot(Spot::Before(step.at)).iter().enumerate() {
            relocator.insert(insertion(Spot::Before(step.at), index, compiled));
        }
        if step.stays {
            relocator.stay(step.at);
        } else {
            relocator.copy(step.at, bytes(step.at))?;
        }
        for (index, compiled) in at_spot(Spot::After(step.at)).iter().enumerate() {
            relocator.insert_on_fall(insertion(Spot::After(step.at), index, compiled));
        }
        if !at_spot(Spot::Taken(step.at)).is_empty() {
            stubs.push(step.at);
        }
        let is_followed = window.steps.get(index + 1).is_some_and(|next| next.at == step.end());
        if step.falls_through && !step.stays && !is_followed {
            relocator.jump(aim(step.end()));
        }
    }
    let mut labels = BTreeMap::new();
    for source in stubs {
        let target = decode(source, bytes(source)).near_branch_target();
        labels.insert(source, relocator.label());
        for (index, compiled) in at_spot(Spot::Taken(source)).iter().enumerate() {
            relocator.insert(insertion(Spot::Taken(source), index, compiled));
        }
        relocator.jump(aim(target));
    }
    let is_call = |source: u64| window.step(source).is_some_and(|step| step.returns);
    let redirect = |source: u64, target: u64| match labels.get(&source) {
        Some(&label) => Some(Aim::Label(label)),
        // A function that calls itself is entered like any other.
        None if is_call(source) => Some(Aim::Address(target)),
        // Within the window, the relocator knows best.
        None if window.has(target) => None,
        None => Some(aim(target)),
    };
    let relocated = relocator.finish(start, &redirect)?;
    let mut all = cold.take();
    all.resize((start - at) as usize, FILLER);
    all.extend(relocated.bytes);
    let contents = Contents {
        inserted: inserted.take(),
        jumps: relocated.jumps,
        code_end: start + relocated.code_length as u64,
    };
    Ok(Trampoline { at, bytes: all, start, moved: relocated.map, contents })
}

fn decode(at: u64, bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}
