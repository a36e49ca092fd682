//! What the clone has where all that is executed is written down: each run of instructions begins by appending a
//! record, its number and the registers that its addresses depend on; where values are wanted, instructions are
//! followed by what captures those. See [`crate::clone::tools::tracing`].

use crate::clone::base::observers;
use crate::clone::thread::record::{at, at_counter};
use crate::clone::translate::operands::{
    NAMES, encoded, may_change_code, point_to, with_memory_of,
};
use crate::clone::translate::trace_plan::{Kept, Traced, WORD};
use crate::clone::translate::translator::{Extent, Translator};
use alloc::vec::Vec;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use weft_code::accesses::{Captured, GONE, plan};
use weft_code::{Convention, Register as General, RegisterSet, before_faults, live_at_entry};

/// The most instructions of a run that is traced: what they take in the clone has to fit.
const LONGEST_RUN: u16 = 24;
/// How many instructions are looked at for registers that are free.
const LOOK_AHEAD: usize = 16;
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
        let Some(recorder) = &self.recorder else { return };
        let length = self.length_ahead(rest);
        let traced = Traced {
            plan: plan(&rest[..length], self.address, recorder.detail()),
            end: self.address + length as u64,
            done: 0,
            last: Instruction::default(),
        };
        recorder.note_captures(number, traced.plan.captures.len());
        let captures = traced.captures(0);
        let last = traced.size() - WORD;
        let before = self.out.here();
        let taken = registers(&captures);
        let (base, is_kept) = self.scratch(rest, self.address, taken);
        if is_kept {
            self.out.save(base, at!(far));
        }
        self.out.load(base, at_counter(0) as usize);
        // The last word first: where the record does not fit, the first store faults, and nothing of it is written.
        if last > 0 && captures.last().is_none_or(|&(place, _)| place != last) {
            self.store_number(base, last, 0);
        }
        for &(place, captured) in captures.iter().rev() {
            if let Captured::Register(register) = captured {
                self.store(base, place, register.0);
            }
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
            recorder.trace_starts.insert(before);
        }
        self.traced = Some(traced);
    }

    /// Captures what is to be captured before the next instruction of the run, at an address.
    pub fn trace_before(&mut self, rest: &[u8], address: u64) {
        let Some(traced) = &mut self.traced else { return };
        let index = traced.done;
        traced.done += 1;
        let last = traced.last;
        if traced.captures(index + 1).iter().any(is_operand) {
            traced.last = Decoder::with_ip(64, rest, address, DecoderOptions::NONE).decode();
        }
        let captures = if index == 0 { Vec::new() } else { traced.captures(index) };
        if captures.is_empty() {
            return;
        }
        let size = traced.size();
        let before = self.out.here();
        let operand = captures.iter().find(|kept| is_operand(kept));
        let mut taken = registers(&captures);
        if operand.is_some() {
            for part in [last.memory_base(), last.memory_index()] {
                taken = weft_code::number(part).map_or(taken, |register| taken.with(register));
            }
        }
        let (base, is_kept) = self.scratch(rest, address, taken);
        if is_kept {
            self.out.save(base, at!(far));
        }
        if let Some(&(place, Captured::Operand(length))) = operand {
            let (value, is_kept) = self.scratch(rest, address, taken.with(General(base)));
            if is_kept {
                self.out.save(value, at!(second_far));
            }
            self.look_up(value, &last, length);
            self.out.load(base, at_counter(0) as usize);
            self.store(base, place - size, value);
            if is_kept {
                self.out.load(value, at!(second_far));
            }
        } else {
            self.out.load(base, at_counter(0) as usize);
        }
        for &(place, captured) in &captures {
            if let Captured::Register(register) = captured {
                self.store(base, place - size, register.0);
            }
        }
        if is_kept {
            self.out.load(base, at!(far));
        }
        self.record_snippet(before);
        if let Some(recorder) = &mut self.recorder {
            recorder.trace_starts.remove(&before);
        }
    }

    /// Loads the first bytes of an instruction's operand in memory. That may be unmapped by now: see
    /// [`skip_lookup`](crate::clone::tools::tracing::skip_lookup).
    fn look_up(&mut self, register: u8, instruction: &Instruction, length: u8) {
        let name = NAMES[register as usize];
        let (code, name) = match length {
            1 => (Code::Movzx_r32_rm8, name.full_register32()),
            2 => (Code::Movzx_r32_rm16, name.full_register32()),
            4 => (Code::Mov_r32_rm32, name.full_register32()),
            _ => (Code::Mov_r64_rm64, name),
        };
        let mut load = with_memory_of(instruction, code, name);
        load.set_segment_prefix(instruction.segment_prefix());
        if instruction.is_ip_rel_memory_operand() {
            self.out.constant(register, instruction.ip_rel_memory_address());
            point_to(&mut load, register);
        }
        match encoded(&load) {
            Some(bytes) => self.out.bytes(&bytes),
            None => self.out.constant(register, GONE),
        }
    }

    /// A scratch register other than those, and whether its value has to be saved.
    fn scratch(&self, rest: &[u8], address: u64, taken: RegisterSet) -> (u8, bool) {
        // As a base, these need another encoding than the others.
        let usable = !(RegisterSet::of(&[General::RSP, General::R12]) | taken);
        let live = match observers::is_debugged() {
            // A debugger shows dead registers, too.
            true => !RegisterSet::NONE,
            // What is dead may be read by a handler of a fault.
            false => {
                let before = before_faults((rest, address), LOOK_AHEAD);
                live_at_entry((before, address), address, Convention::Unknown, LOOK_AHEAD).registers
            }
        };
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
            let is_known = self.is_linking && self.known.find(next).is_some();
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
            let is_last = self.extent == Extent::Step
                || instruction.flow_control() != FlowControl::Next
                || self.extent == Extent::Checked && may_change_code(&instruction);
            if is_last {
                break;
            }
        }
        decoder.position()
    }
}

fn is_operand(kept: &Kept) -> bool {
    matches!(kept.1, Captured::Operand(_))
}

/// The registers among what is captured.
fn registers(captures: &[Kept]) -> RegisterSet {
    captures.iter().fold(RegisterSet::NONE, |set, &(_, captured)| match captured {
        Captured::Register(register) => set.with(register),
        Captured::Operand(_) => set,
    })
}
