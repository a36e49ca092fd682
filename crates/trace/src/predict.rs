//! What comes next, as far as it can be told from what came before. Writer and reader ask the same, so that only what
//! is not foreseen has to be kept.

use weft_code::accesses::{Form, Plan, REGISTERS};

use crate::blocks::{Block, Blocks};

/// What a block's plan says about values, in the shape in which it is asked for most.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub captures: Box<[CaptureModel]>,
    pub ends: Box<[(u8, Option<Guess>)]>,
    /// The slot of its first capture.
    pub slot: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureModel {
    pub register: u8,
    pub guess: Option<Guess>,
    /// The register whose value before the block this is.
    pub is_before: bool,
}

/// A form, and the registers that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    needs: u16,
    /// The only source, if it is one that counts once.
    single: Option<(u16, u64)>,
    form: Form,
}

impl Guess {
    fn new(form: Form) -> Self {
        let needed = |needs, (source, _)| match source {
            0..16 => needs | 1 << source,
            _ => needs,
        };
        let needs = form.terms().fold(0_u16, needed);
        let mut terms = form.terms();
        let single = match (terms.next(), terms.next()) {
            (Some((source, 1)), None) => Some((source, form.offset())),
            _ => None,
        };
        drop(terms);
        Self { needs, single, form }
    }

    #[inline]
    fn value(&self, known: u16, sources: &[u64]) -> Option<u64> {
        if self.needs & !known != 0 {
            return None;
        }
        Some(match self.single {
            Some((source, offset)) => sources[source as usize].wrapping_add(offset),
            None => self.form.value(sources),
        })
    }
}

impl Model {
    pub fn new(plan: &Plan, slot: u32) -> Self {
        let captures: Box<[CaptureModel]> = plan
            .captures
            .iter()
            .map(|capture| {
                let register = capture.register.0;
                let guess = capture.guess.map(Guess::new);
                let is_before =
                    guess.is_some_and(|guess| guess.single == Some((register.into(), 0)));
                CaptureModel { register, guess, is_before }
            })
            .collect();
        let ends = plan.ends.iter().map(|(register, form)| (register.0, form.map(Guess::new)));
        // What was captured before the block and is still there has been noted by then.
        let is_noted = |register: u8, guess: &Option<Guess>| {
            guess.and_then(|guess| guess.single).is_some_and(|(source, offset)| {
                let capture = (source as usize).checked_sub(REGISTERS).map(|at| &captures[at]);
                let is_same =
                    |capture: &CaptureModel| capture.is_before && capture.register == register;
                offset == 0 && capture.is_some_and(is_same)
            })
        };
        let ends = ends.filter(|(register, guess)| !is_noted(*register, guess)).collect();
        Self { captures, ends, slot }
    }
}

/// The values that a capture has had.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    last: u64,
    /// What was added last, and what is expected to be: the same twice.
    step: u64,
    stride: u64,
    /// What it was before the last, and whether there is any.
    other: u64,
    is_known: bool,
}

/// What a value may be, the likeliest first; the last is what a difference is taken from.
pub(crate) type Guesses = [u64; 3];

/// The state that foresees.
#[derive(Debug)]
pub(crate) struct Predictor {
    /// The registers, and behind them the captures of the block that is looked at.
    sources: Vec<u64>,
    /// Which registers are known, and not just what they once were.
    known: u16,
    slots: Vec<Slot>,
    /// What came after these blocks last time.
    contexts: Vec<u32>,
    context: usize,
    history: u32,
    previous: u32,
    /// The last two that came after each block.
    successors: Vec<[u32; 2]>,
}

const CONTEXTS: usize = 1 << 16;

impl Predictor {
    pub fn new() -> Self {
        Self {
            sources: vec![0; REGISTERS],
            known: 0,
            slots: Vec::new(),
            contexts: vec![0; CONTEXTS],
            context: 0,
            history: 0,
            previous: 0,
            successors: Vec::new(),
        }
    }

    /// Makes room for blocks that have come.
    pub fn fit(&mut self, blocks: &Blocks) {
        self.slots.resize(blocks.slots as usize, Slot::default());
        self.successors.resize(blocks.len(), [0; 2]);
    }

    /// Which block comes next: three guesses.
    #[inline]
    pub fn next(&self) -> [u32; 3] {
        let [newer, older] =
            self.successors.get(self.previous as usize).copied().unwrap_or_default();
        [self.contexts[self.context], newer, older]
    }

    /// This block comes.
    #[inline]
    pub fn come(&mut self, number: u32) {
        self.contexts[self.context] = number;
        if let Some(known) = self.successors.get_mut(self.previous as usize)
            && known[0] != number
        {
            *known = [number, known[0]];
        }
        self.previous = number;
        self.history = (self.history << 5 ^ number).wrapping_mul(0x9e37_79b1).rotate_left(7);
        self.context =
            (self.history ^ number.wrapping_mul(0x85eb_ca6b)) as usize >> 7 & (CONTEXTS - 1);
        self.sources.truncate(REGISTERS);
    }

    /// What a capture of the block that has come is, the next one.
    #[inline]
    pub fn guesses(&self, model: &Model, index: usize) -> Guesses {
        let capture = &model.captures[index];
        let slot = &self.slots[model.slot as usize + index];
        let stale = self.sources[capture.register as usize];
        let computed =
            capture.guess.as_ref().and_then(|guess| guess.value(self.known, &self.sources));
        let stepped = slot.last.wrapping_add(slot.stride);
        match (computed, slot.is_known) {
            (Some(computed), true) => [computed, stepped, slot.last],
            (Some(computed), false) => [computed, computed, computed],
            (None, true) => {
                let other = if slot.stride == 0 { slot.other } else { stale };
                [stepped, other, slot.last]
            }
            (None, false) => [stale, stale, stale],
        }
    }

    /// Which value the next capture has.
    #[inline]
    pub fn set(&mut self, model: &Model, index: usize, value: u64) {
        let capture = &model.captures[index];
        let slot = &mut self.slots[model.slot as usize + index];
        let step = value.wrapping_sub(slot.last);
        if slot.is_known {
            if step == slot.step {
                slot.stride = step;
            } else if slot.stride != 0 && step != slot.stride {
                slot.stride = 0;
            }
            slot.step = step;
        }
        if step != 0 {
            slot.other = slot.last;
        }
        slot.last = value;
        slot.is_known = true;
        self.sources.push(value);
        // For others who look for it, even if it is not what it was before the block.
        self.sources[capture.register as usize] = value;
        if capture.is_before {
            self.known |= 1 << capture.register;
        } else {
            self.known &= !(1 << capture.register);
        }
    }

    /// The block has been executed.
    #[inline]
    pub fn leave(&mut self, block: &Block) {
        let mut values = [0; REGISTERS];
        let mut known = self.known;
        for (index, (register, guess)) in block.model.ends.iter().enumerate() {
            match guess.as_ref().and_then(|guess| guess.value(self.known, &self.sources)) {
                Some(value) => {
                    values[index] = value;
                    known |= 1 << register;
                }
                None => {
                    values[index] = self.sources[*register as usize];
                    known &= !(1 << register);
                }
            }
        }
        for (index, (register, _)) in block.model.ends.iter().enumerate() {
            self.sources[*register as usize] = values[index];
        }
        self.known = known;
    }

    /// Registers are not what they were: something else has happened.
    pub fn interrupt(&mut self) {
        self.known = 0;
    }
}
