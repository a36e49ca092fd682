//! What the clone has where all that is executed is written down: each run of instructions begins by appending a
//! record, its number and the registers that its addresses depend on. See [`super::super::tracing`].

use super::super::thread::at_counter;
use super::*;
use weft_code::accesses::{Plan, plan};
use weft_code::{Convention, Register as General, RegisterSet, live_at_entry};

/// The most instructions of a run that is traced: what they take in the clone has to fit.
const LONGEST_RUN: u16 = 24;
/// How many instructions are looked at for registers that are free.
const LOOK_AHEAD: usize = 16;
const WORD: i32 = 8;

/// What is traced of the run that is being translated.
#[derive(Debug)]
pub struct Traced {
    plan: Plan,
    /// Where the run ends.
    end: u64,
    /// How many of its instructions are translated.
    done: u16,
}

impl Traced {
    /// How many bytes a record of it has.
    fn size(&self) -> i32 {
        WORD * (1 + self.plan.captures.len() as i32)
    }

    /// What is captured before an instruction: where in the record, and which register.
    fn captures(&self, before: u16) -> impl DoubleEndedIterator<Item = (i32, General)> {
        let captures = (1..).zip(&self.plan.captures).collect::<Vec<_>>().into_iter();
        captures
            .filter(move |(_, capture)| capture.before == before)
            .map(|(place, capture)| (WORD * place, capture.register))
    }
}

impl Translator<'_> {
    /// Whether all that is executed is written down.
    pub fn is_tracing(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.is_for_trace())
    }

    /// Whether the run that is traced ends before an address, though not by a branch.
    pub fn is_trace_over(&self, address: u64) -> bool {
        self.traced.as_ref().is_some_and(|traced| traced.end == address)
    }

    /// Appends a record at the beginning of a run.
    pub fn begin_trace(&mut self, rest: &[u8], number: u32) {
        let length = self.length_ahead(rest);
        let traced = Traced {
            plan: plan(&rest[..length], self.address),
            end: self.address + length as u64,
            done: 0,
        };
        let captures: Vec<_> = traced.captures(0).collect();
        let last = traced.size() - WORD;
        let before = self.out.here();
        let (base, is_kept) = self.scratch(rest, self.address, &captures);
        if is_kept {
            self.out.save(base, at!(far));
        }
        self.out.load(base, at_counter(0) as usize);
        // From the end: if it does not fit, nothing of it is there.
        if last > 0 && captures.last().is_none_or(|&(place, _)| place != last) {
            self.store_number(base, last, 0);
        }
        for &(place, register) in captures.iter().rev() {
            self.store(base, place, register.0);
        }
        self.store_number(base, 0, number);
        self.out.bytes(&[0x48 | ((base >> 3) * 5), 0x8d, 0x80 | (base & 7) << 3 | base & 7]);
        self.out.u32(traced.size() as u32); // lea base, [base + size]
        self.out.save(base, at_counter(0) as usize);
        if is_kept {
            self.out.load(base, at!(far));
        }
        self.record_snippet(before);
        if let Some(recorder) = &mut self.recorder {
            recorder.leads.insert(before);
        }
        self.traced = Some(traced);
    }

    /// Captures what is to be captured before the next instruction of the run, at an address.
    pub fn trace_before(&mut self, rest: &[u8], address: u64) {
        let Some(traced) = &mut self.traced else { return };
        let index = traced.done;
        traced.done += 1;
        if index == 0 {
            return;
        }
        let size = traced.size();
        let captures: Vec<_> = traced.captures(index).collect();
        if captures.is_empty() {
            return;
        }
        let before = self.out.here();
        let (base, is_kept) = self.scratch(rest, address, &captures);
        if is_kept {
            self.out.save(base, at!(far));
        }
        self.out.load(base, at_counter(0) as usize);
        for (place, register) in captures {
            self.store(base, place - size, register.0);
        }
        if is_kept {
            self.out.load(base, at!(far));
        }
        self.record_snippet(before);
        if let Some(recorder) = &mut self.recorder {
            recorder.leads.remove(&before);
        }
    }

    /// A register to work with, and whether it has to be put aside.
    fn scratch(&self, rest: &[u8], address: u64, captures: &[(i32, General)]) -> (u8, bool) {
        // As a base, these are written otherwise than the others.
        let mut usable = !RegisterSet::of(&[General::RSP, General::R12]);
        for &(_, register) in captures {
            usable = usable.without(register);
        }
        let live =
            live_at_entry((rest, address), address, Convention::Unknown, LOOK_AHEAD).registers;
        let free = (usable & !live).iter().next();
        let any = usable.iter().next().unwrap_or(General::RAX);
        (free.unwrap_or(any).0, free.is_none())
    }

    /// `mov [base + place], register`
    fn store(&mut self, base: u8, place: i32, register: u8) {
        let modes = 0x80 | (register & 7) << 3 | base & 7;
        self.out.bytes(&[0x48 | (register >> 3) << 2 | base >> 3, 0x89, modes]);
        self.out.u32(place as u32);
    }

    /// `mov qword ptr [base + place], number`
    fn store_number(&mut self, base: u8, place: i32, number: u32) {
        self.out.bytes(&[0x48 | base >> 3, 0xc7, 0x80 | base & 7]);
        self.out.u32(place as u32);
        self.out.u32(number);
    }

    /// How many bytes the run has that begins here, if nothing else is in the way.
    fn length_ahead(&self, rest: &[u8]) -> usize {
        let mut decoder = Decoder::with_ip(64, rest, self.address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        for count in 0..LONGEST_RUN {
            let next = decoder.ip();
            let is_known = self.ties && self.known.map.get(next).is_some();
            if count > 0 && (is_known || self.is_beyond(next, count.into())) {
                break;
            }
            if !decoder.can_decode() {
                break;
            }
            let before = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return before;
            }
            let is_last = instruction.flow_control() != FlowControl::Next
                || self.extent == Extent::Checked && may_change_code(&instruction);
            if is_last {
                break;
            }
        }
        decoder.position()
    }
}
