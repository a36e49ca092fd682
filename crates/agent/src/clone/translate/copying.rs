//! Instructions that are copied, with another operand where the original is out of reach.

use crate::clone::base::instructions::names_gs_base;
use crate::clone::cache::emit::RCX;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::pieces::Kind;
use crate::clone::thread::record::at;
use crate::clone::translate::operands::{
    encoded, free_register, loads_gs, names_gs_silently, point_to, uses_gs,
};
use crate::clone::translate::translator::Translator;
use iced_x86::{Instruction, Register};

impl Translator<'_> {
    /// Writes an instruction that does not branch; `None`, and nothing is written, if it cannot be translated.
    pub fn plain(
        &mut self,
        instruction: &Instruction,
        rest: &[u8],
        displacement: usize,
    ) -> Option<Kind> {
        let bytes = &rest[..instruction.len()];
        if uses_gs(instruction) || names_gs_base(instruction.code()) {
            return self.by_gs(instruction);
        }
        if names_gs_silently(instruction) || loads_gs(instruction) {
            return None;
        }
        if !instruction.is_ip_rel_memory_operand() {
            match rest.first_chunk() {
                Some(front) => self.out.front(front, bytes.len()),
                None => self.out.bytes(bytes),
            }
            return Some(Kind::Copied);
        }
        let address = instruction.ip_rel_memory_address();
        let end = self.out.here() + bytes.len() as u64;
        if instruction.memory_base() == Register::RIP && in_reach(end, address) {
            self.out.bytes(&bytes[..displacement]);
            self.out.u32(address.wrapping_sub(end) as u32);
            self.out.bytes(&bytes[displacement + 4..]);
            return Some(Kind::Copied);
        }
        self.far(instruction, address)
    }

    /// Writes an instruction whose memory is out of reach, through a register.
    pub fn far(&mut self, instruction: &Instruction, address: u64) -> Option<Kind> {
        let register = free_register(instruction, None);
        let mut changed = *instruction;
        point_to(&mut changed, register);
        let operation = encoded(&changed)?;
        self.block.is_absolute = true;
        self.out.save(register, at!(far));
        self.out.constant(register, address);
        self.out.bytes(&operation);
        self.out.load(register, at!(far));
        Some(Kind::Far)
    }

    /// Loads what an indirect branch reads into `rcx`.
    pub fn load_target(&mut self, instruction: &Instruction, bytes: &[u8]) {
        if uses_gs(instruction) {
            return self.load_target_by_gs(instruction);
        }
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            // mov rcx, [rip + distance], where that reaches.
            if in_reach(self.out.here() + 7, address) {
                self.out.bytes(&[0x48, 0x8b, 0x0d]);
                self.out.distance(address);
            } else {
                self.block.is_absolute = true;
                self.out.constant(RCX, address);
                self.out.bytes(&[0x48, 0x8b, 0x09]);
            }
            return;
        }
        // The same operand for `mov rcx, ...`: the opcode and one field differ.
        let at = bytes.iter().position(|&byte| byte == 0xff).unwrap_or_default();
        let prefixes = &bytes[..at];
        let kept = prefixes.iter().filter(|&byte| matches!(byte, 0x64 | 0x67));
        kept.for_each(|&byte| self.out.byte(byte));
        // The processor ignores one that is not right before the opcode.
        let last = prefixes.last().copied().filter(|byte| byte & 0xf0 == 0x40);
        let rex = 0x48 | last.unwrap_or_default() & 3;
        self.out.bytes(&[rex, 0x8b, bytes[at + 1] & 0xc7 | RCX << 3]);
        self.out.bytes(&bytes[at + 2..]);
    }
}
