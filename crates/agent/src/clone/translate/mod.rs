//! From the program's code to its clone, a block at a time: bytes in, bytes and their description out.
//!
//! A block is a run of instructions with one entry. Branches out of its middle leave it and calls
//! come back to it; it ends where nothing falls through, where the next instruction has been
//! translated already, or when it is long enough.

pub mod branches;
pub mod copying;
pub mod gs;
pub mod joining;
pub mod operands;
pub mod runs;
pub mod sequences;
pub mod trace_plan;
pub mod traced;
pub mod translator;

use crate::clone::base::instructions::LONGEST_INSTRUCTION;
use crate::clone::base::observers;
use crate::clone::cache::arena::Arena;
use crate::clone::cache::blocks::{Block, Start};
use crate::clone::cache::coprocessor::is_saving;
use crate::clone::cache::emit;
use crate::clone::cache::emit::{RAX, RCX};
use crate::clone::cache::pieces::{Cold, Kind, LONGEST_BLOCK, MOST, MOST_WOVEN};
use crate::clone::thread::record::at;
use crate::clone::translate::branches::write_snippets;
use crate::clone::translate::operands::{
    is_loop, is_near_indirect, is_near_return, is_system_call, is_xbegin, may_change_code, uses_gs,
};
use crate::clone::translate::sequences::descriptor_lead;
use crate::clone::translate::translator::{
    Extent, Inserts, Known, Source, Translator, is_recorded,
};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use weft_abi::recording::ending;
use weft_abi::weaving;

/// Translates the code at an address, which is to be known as `key`; `None` if there is no whole
/// instruction.
pub fn translate(
    source: &Source<'_>,
    key: u64,
    known: Known<'_>,
    (number, arena): (usize, &mut Arena),
    inserts: Inserts<'_>,
    extent: Extent,
    is_linking: bool,
) -> Option<Block> {
    let out = arena.hot();
    let code = out.here();
    let is_inner = key != source.address;
    let mut translator = Translator {
        known,
        number,
        arena,
        weaving: inserts.weaving,
        recorder: inserts.recorder.filter(|_| is_recorded(extent) || extent == Extent::Step),
        halts: inserts.halts,
        run: None,
        traced: None,
        mark: 0,
        out,
        block: Block { start: source.address, code, ..Block::default() },
        places: Vec::new(),
        extent,
        // A single instruction is not kept, so nothing may be linked to it.
        is_linking: is_linking && !extent.is_single(),
        is_at_end: false,
        may_trap_next: false,
        address: source.address,
        forward: Vec::new(),
        armed: Vec::new(),
        end: 0,
    };
    translator.run(source, key, is_inner)?;
    let Translator { out, block, arena, .. } = translator;
    arena.take_hot(out.length);
    Some(block)
}

/// A block that leaves the clone for good, at an address whose code cannot be read.
pub fn refusal(address: u64, arena: &mut Arena) -> Block {
    let mut out = arena.hot();
    let code = out.here();
    emit::leave_with(&mut out, arena.gates().refused, address);
    arena.take_hot(out.length);
    let records = vec![Kind::Refused as u8 | 1, (out.here() - code) as u8];
    Block { start: address, end: address + 1, code, records, ..Block::default() }
}

impl Translator<'_> {
    fn run(&mut self, source: &Source<'_>, key: u64, is_inner: bool) -> Option<()> {
        let single = self.extent.is_single();
        let mut decoder = Decoder::with_ip(64, source.bytes, source.address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut address = source.address;
        self.block.starts.push(Start::new(key, self.out.here()));
        if self.extent.is_checked() {
            self.leave_for(self.arena.gates().check);
        }
        let most = match self.extent {
            Extent::Single | Extent::Step => 1,
            Extent::Sequences { .. } => usize::MAX,
            Extent::Block | Extent::Checked => LONGEST_BLOCK,
        };
        let mut number = 0;
        loop {
            // An address that is to be found here must have code here: else its block would be a jump to itself.
            let is_start = self.is_start();
            // The record of a traced run was written for all of it, so it is not cut.
            let may_end = self.traced.is_none() || single;
            if number >= most && (single || !is_start && !self.may_trap_next) && may_end {
                break;
            }
            if self.is_beyond(address, number) {
                break;
            }
            if number > 0
                && !is_start
                && !self.may_trap_next
                && !self.is_in_sequences(address)
                && (self.is_linking && self.known.find(address).is_some()
                    || self.out.length > MOST - MOST_WOVEN && may_end)
            {
                break;
            }
            if !decoder.can_decode() {
                if number == 0 {
                    return None;
                }
                break;
            }
            let offset = (address - source.address) as usize;
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                if decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
                    if number == 0 {
                        return None;
                    }
                    break;
                }
                // It faults as it does natively, at this address.
                let before = self.out.here();
                if instruction.len() == LONGEST_INSTRUCTION {
                    // An instruction that is too long is a general protection fault, not an undefined opcode.
                    self.out.bytes(&source.bytes[offset..offset + LONGEST_INSTRUCTION]);
                } else {
                    self.out.bytes(&[0x0f, 0x0b]);
                }
                self.record(Kind::Copied, 1, before);
                address += 1;
                self.block.end = address;
                self.end = self.out.here();
                if self.is_in_sequences(address) {
                    decoder.set_ip(address);
                    let _ = decoder.set_position(offset + 1);
                    number += 1;
                    continue;
                }
                self.end_run(source, address);
                self.finish();
                return Some(());
            }
            self.address = address;
            let body = self.out.here();
            self.begin_run(source, address);
            // A block for the start of a function as reached from within is not for that address as such; and a run
            // that is recorded is entered only at its front.
            if (number > 0 || !is_inner) && self.is_entered_at(address) {
                self.places.push((address, body));
            }
            // Only of those relative to `rip` is it changed; and to find it takes as long as to decode.
            let displacement = match instruction.is_ip_rel_memory_operand() {
                true => decoder.get_constant_offsets(&instruction).displacement_offset(),
                false => 0,
            };
            let rest = &source.bytes[offset..];
            self.trace_before(rest, address);
            self.halt(&instruction);
            self.weave(weaving::BEFORE, rest, number == 0 && is_inner);
            self.arm_all(address);
            let is_keeping = self.keep_registers(&instruction);
            if let Some(lead) = descriptor_lead(&instruction) {
                self.block.leads.push(lead);
            }
            let goes_on = self.instruction(&instruction, rest, displacement);
            self.may_trap_next = matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfq);
            address = instruction.next_ip();
            self.end_run_with(source, &instruction);
            self.block.end = address;
            if goes_on && is_keeping {
                self.forget_registers();
            }
            self.end = self.out.here();
            if !goes_on && !self.is_in_sequences(address) {
                self.end_run(source, address);
                self.finish();
                return Some(());
            }
            self.weave(weaving::AFTER, &rest[instruction.len()..], false);
            if self.extent == Extent::Checked && may_change_code(&instruction) {
                break;
            }
            number += 1;
        }
        if self.is_start() {
            self.block.starts.pop();
        }
        self.end_run(source, address);
        let before = self.out.here();
        self.is_at_end = true;
        self.branch(&[0xe9], address);
        self.record(Kind::Onward, 0, before);
        self.finish();
        Some(())
    }

    /// Writes the exits for a debugger before an instruction: at a breakpoint, and for a store while memory is
    /// watched.
    fn halt(&mut self, instruction: &Instruction) {
        if !is_recorded(self.extent) {
            return;
        }
        let gates = self.arena.gates();
        if self.halts.contains(self.address) {
            self.leave_for(gates.halt);
        }
        let before = self.out.here();
        if let Some(look) = self.halts.watch_check(&mut self.out, instruction) {
            self.record_snippet(before);
            self.leave_for(gates.watch);
            look.end(&self.out);
        }
    }

    /// Writes what is woven here, before an instruction or after it; `rest` is what follows.
    fn weave(&mut self, way: u8, rest: &[u8], is_inner: bool) {
        if !self.is_woven(way) {
            return;
        }
        let before = self.out.here();
        let place = (self.number, &mut *self.arena, self.known.table);
        let follows = if way == weaving::AFTER { self.block.end } else { self.address };
        let code = self.weaving.code((self.address, way), (follows, rest), is_inner, place);
        write_snippets(&code, self.arena, &mut self.out);
        self.record_snippet(before);
    }

    /// Translates an instruction, the first one of `rest`. Returns whether the next one may be executed after it.
    fn instruction(&mut self, instruction: &Instruction, rest: &[u8], displacement: usize) -> bool {
        let before = self.out.here();
        let length = instruction.len();
        let bytes = &rest[..length];
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => {
                let Some(kind) = self.plain(instruction, rest, displacement) else {
                    return self.refuse(instruction);
                };
                self.record(kind, length, before);
                if is_saving(instruction.code()) && !self.is_in_sequences(instruction.ip()) {
                    self.leave_for(self.arena.gates().saved);
                }
                true
            }
            FlowControl::ConditionalBranch if is_loop(instruction.code()) => {
                self.branch_out(instruction);
                // The same, to a jump of two: it reaches only 127 bytes.
                let opcode = bytes[length - 2];
                let prefix = &bytes[..length - 2];
                while (self.out.here() + prefix.len() as u64 + 5) % 64 > 60 {
                    self.out.byte(0x90);
                }
                let pads = (self.out.here() - before) as usize;
                self.out.bytes(prefix);
                self.out.bytes(&[opcode, 2, 0xeb, 5]);
                self.jump_unaligned(&[0xe9], instruction.near_branch_target());
                debug_assert_eq!((self.out.here() - before) as usize, pads + prefix.len() + 9);
                self.record(Kind::Loop, length, before);
                true
            }
            FlowControl::ConditionalBranch => {
                self.branch_out(instruction);
                // iced counts them from one, in the processor's order.
                let condition = instruction.condition_code() as u8 - 1;
                if self.counts_back(instruction) {
                    self.count_taken(condition, instruction, before);
                } else {
                    self.jump(&[0x0f, 0x80 | condition], instruction.near_branch_target());
                    self.record(Kind::Branch, length, before);
                }
                true
            }
            FlowControl::XbeginXabortXend if is_xbegin(instruction.code()) => {
                self.branch(&[0xc7, 0xf8], instruction.near_branch_target());
                self.record(Kind::Branch, length, before);
                true
            }
            FlowControl::XbeginXabortXend => {
                self.out.bytes(bytes);
                self.record(Kind::Copied, length, before);
                true
            }
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                let before = self.count_exit(instruction, ending::JUMP).unwrap_or(before);
                self.jump(&[0xe9], instruction.near_branch_target());
                self.record(Kind::Branch, length, before);
                false
            }
            FlowControl::Call if instruction.is_call_near() => {
                let before = self.count_exit(instruction, ending::CALL).unwrap_or(before);
                if self.join_call(instruction.near_branch_target(), next) {
                    // Nothing of it is executed here.
                    self.record(Kind::Call, 0, before);
                    return false;
                }
                self.mark_call();
                self.call(instruction.near_branch_target(), next);
                self.record(Kind::Call, length, before);
                self.come_back(next)
            }
            FlowControl::Call if is_system_call(instruction.code()) => {
                emit::leave_with(&mut self.out, self.arena.gates().system_call, next);
                self.record(Kind::SystemCall, length, before);
                self.block.starts.push(Start::new(next, self.out.here()));
                true
            }
            FlowControl::Return if is_near_return(instruction.code()) => {
                let popped = if instruction.op_count() > 0 { instruction.immediate16() } else { 0 };
                if self.extent.is_single() {
                    emit::step_out(&mut self.out, popped);
                    self.record(Kind::Return, length, before);
                    // Behind the return, as far as the state of the program goes.
                    let before = self.out.here();
                    self.out.jump(self.arena.gates().unknown);
                    self.record(Kind::Entry, 0, before);
                    return false;
                }
                emit::ret(&mut self.out, self.known.table, popped);
                self.record(Kind::Return, length, before);
                false
            }
            FlowControl::IndirectBranch if is_near_indirect(instruction) => {
                self.out.save(RCX, at!(rcx));
                self.load_target(instruction, bytes);
                self.out.save(RAX, at!(rax));
                match self.extent.is_single() {
                    true => emit::through_gate(&mut self.out, self.arena.gates().unknown),
                    false => emit::through_table(&mut self.out, self.known.table),
                }
                let kind = if uses_gs(instruction) { Kind::JumpSegment } else { Kind::Jump };
                self.record(kind, length, before);
                false
            }
            FlowControl::IndirectCall if is_near_indirect(instruction) => {
                self.out.save(RCX, at!(rcx));
                self.load_target(instruction, bytes);
                self.out.save(RAX, at!(rax));
                let operand = instruction
                    .is_ip_rel_memory_operand()
                    .then(|| instruction.ip_rel_memory_address());
                if !uses_gs(instruction) && self.join_indirect_call(before, operand, next) {
                    // Nothing of it is executed here.
                    self.record(Kind::Call, 0, before);
                    return false;
                }
                const INDIRECT_THUNK: usize = emit::RETURN_ADDRESS + emit::THROUGH_TABLE;
                let (mut thunk, word) = self.thunk(Cold::CallIndirectThunk, INDIRECT_THUNK, next);
                emit::return_address(&mut thunk, next, word);
                match self.extent.is_single() {
                    true => emit::through_gate(&mut thunk, self.arena.gates().unknown),
                    false => emit::through_table(&mut thunk, self.known.table),
                }
                self.out.byte(0xe8);
                self.out.distance(thunk.rx);
                let by_gs = uses_gs(instruction);
                let kind = if by_gs { Kind::CallSegment } else { Kind::CallIndirect };
                self.record(kind, length, before);
                self.come_back(next)
            }
            // Far transfers and returns from interrupts: where they go is not known.
            _ => self.refuse(instruction),
        }
    }

    /// Leaves the clone for good at an instruction, behind which nothing is translated.
    fn refuse(&mut self, instruction: &Instruction) -> bool {
        let before = self.out.here();
        emit::leave_with(&mut self.out, self.arena.gates().refused, instruction.ip());
        self.record(Kind::Refused, instruction.len(), before);
        false
    }

    /// The entry where a called function returns to: right behind the call in the clone, so that the processor's
    /// return predictor is right.
    fn come_back(&mut self, address: u64) -> bool {
        let call_length = (address - self.address) as u8;
        let entry = self.out.here();
        let wrong = self.arena.gates().wrong;
        match self.known.is_for_file() {
            true => emit::entry_by_distance(&mut self.out, address, wrong),
            false => emit::entry(&mut self.out, address, wrong),
        }
        self.record(Kind::Entry, 0, entry);
        if observers::is_stack_seen() {
            // What lies below the stack is to be what it would be natively. Nothing else there could be needed: the
            // call has overwritten it.
            let before = self.out.here();
            emit::address_below(&mut self.out, address);
            self.record(Kind::Snippet, 0, before);
        }
        let counter = self.count_return(address);
        let body = self.out.here();
        self.block.starts.push(Start { address, body, entry, counter, call_length });
        true
    }
}
