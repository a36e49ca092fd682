//! Restartable sequences in the clone: see [`crate::clone::cache::sequences`].
//!
//! All that overlap are one block, in the order of their addresses, so that it can be announced to the kernel by
//! a beginning and a length. Where the clone needs registers for itself, it keeps the program's where the
//! agent finds them: the kernel may send the thread away between any two instructions.

use crate::clone::cache::blocks::Start;
use crate::clone::cache::emit;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::emit::{Armed, RAX, RCX};
use crate::clone::cache::links::stub_for;
use crate::clone::cache::pieces::{Cold, Kind, MOST_HOT};
use crate::clone::cache::sequences::{ALIGNMENT, Descriptor, Lead, Sequence};
use crate::clone::thread::record::{at, kept_names};
use crate::clone::translate::operands::{
    free_register, is_near_indirect, is_near_return, is_system_call, uses_gs,
};
use crate::clone::translate::translator::{Extent, Translator};
use iced_x86::{Code, Instruction, Register};

impl Translator<'_> {
    /// Announces the sequences that begin at an address.
    pub fn arm_all(&mut self, address: u64) {
        if !self.is_in_sequences(address) {
            return;
        }
        let begin = self.out.here();
        let sequences = self.known.sequences;
        for sequence in sequences.starting_at(address) {
            self.arm(&sequence, begin);
        }
    }

    fn arm(&mut self, sequence: &Sequence, begin: u64) {
        let before = self.out.here();
        let gates = self.arena.gates();
        let mut abort = self.arena.cold(emit::LEAVE + 8, Cold::Abort);
        emit::leave_with(&mut abort, gates.abort, sequence.abort);
        // Right before the abort handler, where the kernel compares it (`rseq(2)`).
        let mut signature = self.arena.cold(16, Cold::Data);
        signature.bytes(&[0xcc; 12]);
        signature.u32(sequence.signature);
        debug_assert_eq!(signature.here(), abort.rx);
        let descriptor = self.arena.cold(size_of::<Descriptor>(), Cold::Data);
        let described = Descriptor {
            kind: 0,
            start: begin,
            length: 0,
            abort: abort.rx,
            original: [sequence.start, sequence.end, sequence.abort],
        };
        // SAFETY: there is room for it, aligned to sixteen.
        unsafe { descriptor.rw.cast::<Descriptor>().write(described) };
        self.armed.push((descriptor.rx, sequence.end));
        let armed = Armed {
            original: sequence.descriptor,
            descriptor: descriptor.rx,
            start: sequence.start,
            gate: gates.sequence,
        };
        emit::arm(&mut self.out, &armed);
        self.record(Kind::Arm, 0, before);
    }

    /// Keeps the registers that the clone of an instruction uses for something else. Returns whether it does.
    pub fn keep_registers(&mut self, instruction: &Instruction) -> bool {
        if !self.is_in_sequences(instruction.ip()) {
            return false;
        }
        let Some((first, second)) = self.used_registers(instruction) else { return false };
        let before = self.out.here();
        self.out.save(first, at!(kept));
        self.out.save(second, at!(kept) + 8);
        self.out.set_half(at!(kept_names), kept_names(first, second));
        self.record(Kind::Copied, 0, before);
        true
    }

    /// Notes that the registers are the program's again.
    pub fn forget_registers(&mut self) {
        let before = self.out.here();
        self.out.set_half(at!(kept_names), 0);
        self.record(Kind::Copied, 0, before);
    }

    fn used_registers(&self, instruction: &Instruction) -> Option<(u8, u8)> {
        /// How far the copy of an instruction may be from here.
        const MARGIN: u64 = MOST_HOT as u64;
        let code = instruction.code();
        if is_near_return(code) || is_near_indirect(instruction) || is_system_call(code) {
            return Some((RCX, RAX));
        }
        if uses_gs(instruction) {
            let place = free_register(instruction, None);
            return Some((place, free_register(instruction, Some(place))));
        }
        let here = self.out.here();
        let address = instruction.ip_rel_memory_address();
        let is_far = instruction.is_ip_rel_memory_operand()
            && (instruction.memory_base() != Register::RIP
                || !in_reach(here, address)
                || !in_reach(here + MARGIN, address));
        is_far.then(|| free_register(instruction, None)).map(|register| (register, register))
    }

    /// Writes what depends on all of the block: forward branches within the sequences, and the lengths of
    /// descriptors.
    pub fn finish(&mut self) {
        if !matches!(self.extent, Extent::Sequences { .. }) {
            return;
        }
        for link in core::mem::take(&mut self.forward) {
            let body = match self.inside(link.target) {
                Some(body) => {
                    self.block.loops.push(link);
                    body
                }
                // The target is in the middle of an instruction, as the block was decoded.
                None => stub_for(self.arena, link.target, link.site),
            };
            let distance = body.wrapping_sub(link.site + 4) as u32;
            // SAFETY: four bytes that were left for it.
            unsafe {
                self.arena.writable(link.site).cast::<u32>().write_unaligned(distance);
            }
        }
        for (descriptor, end) in core::mem::take(&mut self.armed) {
            let index = self.places.partition_point(|place| place.0 < end);
            let end = self.places.get(index).map_or(self.end, |place| place.1);
            // SAFETY: a descriptor that was just written.
            unsafe {
                let descriptor = &mut *self.arena.writable(descriptor).cast::<Descriptor>();
                descriptor.length = end - descriptor.start;
            }
        }
        for &(address, body) in &self.places {
            if !self.block.starts.iter().any(|start| start.address == address) {
                self.block.starts.push(Start::new(address, body));
            }
        }
    }
}

/// What an instruction loads that may be the address of a descriptor.
pub fn descriptor_lead(instruction: &Instruction) -> Option<Lead> {
    let address = match instruction.code() {
        Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            instruction.ip_rel_memory_address()
        }
        Code::Mov_r64_rm64 if instruction.is_ip_rel_memory_operand() => {
            return Some(Lead::Pointer(instruction.ip_rel_memory_address()));
        }
        Code::Mov_r64_imm64 | Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 => {
            instruction.immediate(1)
        }
        _ => return None,
    };
    // Most constants are no descriptors.
    address.is_multiple_of(ALIGNMENT).then_some(Lead::Address(address))
}
