//! Bytes being laid out, with places in them that are not known yet.

use alloc::vec::Vec;

use iced_x86::{Encoder, Instruction};

use super::aim::{Aim, Moved};
use super::immovable::{Immovable, Reason};
use crate::Register;

/// What a distance in the output leads to.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Aim(Aim),
    /// One of the constants behind the code.
    Constant(usize),
    /// Something in the output.
    Here(u64),
}

struct Fixup {
    /// Where in the bytes the distance is; it counts from behind itself.
    offset: usize,
    place: Place,
    /// The instruction to blame if it leads nowhere.
    blame: u64,
}

pub(super) struct Output {
    to: u64,
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
    constants: Vec<u64>,
}

impl Output {
    pub(super) fn new(to: u64) -> Self {
        Self { to, bytes: Vec::new(), fixups: Vec::new(), constants: Vec::new() }
    }

    /// The address of what is put out next.
    pub(super) fn here(&self) -> u64 {
        self.to.wrapping_add(self.bytes.len() as u64)
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn encode(&mut self, instruction: &Instruction) -> Option<()> {
        let mut encoder = Encoder::new(64);
        encoder.encode(instruction, self.here()).ok()?;
        self.raw(&encoder.take_buffer());
        Some(())
    }

    /// A 32-bit distance to a place.
    fn distance(&mut self, blame: u64, place: Place) {
        self.fixups.push(Fixup { offset: self.bytes.len(), place, blame });
        self.raw(&[0; 4]);
    }

    /// A 32-bit distance behind an opcode, if it can lead to the place for sure.
    pub(super) fn near(&mut self, opcode: &[u8], blame: u64, place: Place) -> Option<()> {
        if let Place::Aim(Aim::Address(target)) = place {
            let next = self.here().wrapping_add(opcode.len() as u64 + 4);
            i32::try_from(target.wrapping_sub(next) as i64).ok()?;
        }
        self.raw(opcode);
        self.distance(blame, place);
        Some(())
    }

    /// Jumps to a place, however far it is.
    pub(super) fn jump(&mut self, blame: u64, place: Place) {
        if self.near(&[0xe9], blame, place).is_none() {
            self.far_jump(blame, place);
        }
    }

    /// Jumps to a place that may be out of reach, in six bytes either way.
    pub(super) fn far_jump(&mut self, blame: u64, place: Place) {
        if self.near(&[0x90, 0xe9], blame, place).is_none()
            && let Place::Aim(Aim::Address(target)) = place
        {
            self.raw(&[0xff, 0x25]);
            let constant = Place::Constant(self.constants.len());
            self.constants.push(target);
            self.distance(blame, constant);
        }
    }

    /// Pushes a constant, with `push` alone where it can.
    pub(super) fn push_constant(&mut self, value: u64) {
        self.raw(&[0x68]);
        self.raw(&(value as u32).to_le_bytes());
        if value as i32 as i64 as u64 != value {
            self.raw(&[0xc7, 0x44, 0x24, 0x04]);
            self.raw(&((value >> 32) as u32).to_le_bytes());
        }
    }

    /// `push` of one of the first eight registers.
    pub(super) fn push(&mut self, register: Register) {
        self.raw(&[0x50 + register.0]);
    }

    /// `pop` of one of the first eight registers.
    pub(super) fn pop(&mut self, register: Register) {
        self.raw(&[0x58 + register.0]);
    }

    /// `mov register, value`.
    pub(super) fn load_constant(&mut self, register: Register, value: u64) {
        self.raw(&[0x48, 0xb8 + register.0]);
        self.raw(&value.to_le_bytes());
    }

    /// `opcode register, [rsp + displacement]`, for one of the first eight registers.
    fn stack(&mut self, opcode: &[u8], register: Register, displacement: i32) {
        self.raw(opcode);
        self.raw(&[0x84 | register.0 << 3, 0x24]);
        self.raw(&displacement.to_le_bytes());
    }

    /// `mov [rsp + displacement], register`.
    pub(super) fn store_to_stack(&mut self, register: Register, displacement: i32) {
        self.stack(&[0x48, 0x89], register, displacement);
    }

    /// `mov [rsp + displacement], register` of 16 bits.
    pub(super) fn store_word_to_stack(&mut self, register: Register, displacement: i32) {
        self.stack(&[0x66, 0x89], register, displacement);
    }

    /// `mov register, [rsp + displacement]`.
    pub(super) fn load_from_stack(&mut self, register: Register, displacement: i32) {
        self.stack(&[0x48, 0x8b], register, displacement);
    }

    /// `lea register, [rsp + displacement]`: how to move the stack pointer without touching flags.
    pub(super) fn stack_address(&mut self, register: Register, displacement: i32) {
        self.stack(&[0x48, 0x8d], register, displacement);
    }

    /// Puts the constants behind the code and fills in all distances.
    pub(super) fn finish(mut self, map: &[Moved], labels: &[u64]) -> Result<Vec<u8>, Immovable> {
        if !self.constants.is_empty() {
            // Constants do not straddle cache lines, and nothing decodes them as code that follows.
            while !self.here().is_multiple_of(8) {
                self.raw(&[0xcc]);
            }
        }
        let constants = self.here();
        for constant in core::mem::take(&mut self.constants) {
            self.raw(&constant.to_le_bytes());
        }
        let mut by_original: Vec<&Moved> = map.iter().collect();
        by_original.sort_by_key(|moved| moved.original);
        let moved = |original| {
            let first = by_original.partition_point(|moved| moved.original < original);
            by_original.get(first).filter(|moved| moved.original == original)
        };
        for fixup in &self.fixups {
            let target = match fixup.place {
                Place::Aim(Aim::Address(address)) | Place::Here(address) => Some(address),
                Place::Aim(Aim::Before(original)) => moved(original).map(|moved| moved.before),
                Place::Aim(Aim::Entered(original)) => moved(original).map(|moved| moved.entered),
                Place::Aim(Aim::Label(label)) => labels.get(label.0).copied(),
                Place::Constant(index) => Some(constants + index as u64 * 8),
            };
            let next = self.to.wrapping_add(fixup.offset as u64 + 4);
            let distance =
                target.and_then(|target| i32::try_from(target.wrapping_sub(next) as i64).ok());
            let Some(distance) = distance else {
                return Err(Immovable { address: fixup.blame, reason: Reason::NoSuchTarget });
            };
            self.bytes[fixup.offset..][..4].copy_from_slice(&distance.to_le_bytes());
        }
        Ok(self.bytes)
    }
}
