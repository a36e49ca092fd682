//! Instructions that do not branch: of any form, with operands of all kinds.

use weft_code::iced_x86::{
    Code, Decoder, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::{Care, GS_BASE, Generator, INDEXES, NEAR, RCX, RSP, Reach, stack_in};
use crate::machine::instructions::is_excluded;

/// A random instruction, and what to do before and after it.
struct Plain {
    instruction: Instruction,
    bytes: [u8; 15],
    /// Registers, and what to set them to.
    set: Vec<(u8, u64)>,
    /// A vector register that is to hold small numbers, and of how many bits.
    indexes: Option<(Register, u32)>,
    /// The address of an operand without registers.
    absolute: Option<u64>,
    moves_stack: bool,
}

impl Generator<'_> {
    pub(super) fn plain(&mut self, care: Care) {
        let forms = self.forms;
        for _ in 0..100 {
            let bytes = self.pick(&forms.running);
            if let Some(plain) = self.prepare(bytes, care, true) {
                self.emit_plain(plain);
                return;
            }
        }
    }

    pub(super) fn trapping(&mut self) {
        let forms = self.forms;
        for _ in 0..100 {
            let bytes = self.pick(&forms.trapping);
            if let Some(plain) = self.prepare(bytes, Care::None, false) {
                self.emit_plain(plain);
                return;
            }
        }
    }

    fn emit_plain(&mut self, plain: Plain) {
        let Plain { instruction, mut bytes, set, indexes, absolute, moves_stack } = plain;
        if let Some((register, width)) = indexes {
            self.load_indexes(register, width);
        }
        for (register, value) in set {
            self.set_register(register, value);
        }
        if let Some(address) = absolute {
            aim(&mut bytes, &instruction, self.here(), address);
        }
        self.emit(&bytes[..instruction.len()]);
        if moves_stack {
            self.parts -= 1;
            let fresh = stack_in(self.parts, &mut self.random);
            self.set_register(RSP, fresh);
        }
    }

    /// Loads a vector with small numbers, to be used as indexes.
    fn load_indexes(&mut self, register: Register, width: u32) {
        let number = register.number() as u8;
        let place = NEAR + INDEXES + if width == 32 { 0 } else { 64 };
        let field = (number & 7) << 3 | 5;
        if register.is_zmm() || number > 15 {
            // vmovdqu32 zmm, [rip + distance]
            let first = (!number >> 3 & 1) << 7 | 0x60 | (!number >> 4 & 1) << 4 | 1;
            let distance = self.distance(place, 10);
            self.emit(&[0x62, first, 0x7e, 0x48, 0x6f, field]);
            self.emit(&distance);
        } else {
            // vmovdqu ymm, [rip + distance]
            let distance = self.distance(place, 9);
            self.emit(&[0xc4, (!number >> 3 & 1) << 7 | 0x61, 0x7e, 0x6f, field]);
            self.emit(&distance);
        }
    }

    /// Makes an instruction of a form, with operands of its own; not all can be had.
    fn prepare(&mut self, form: [u8; 15], care: Care, runs: bool) -> Option<Plain> {
        let mut bytes = self.varied(form);
        let instruction = Decoder::with_ip(64, &bytes, self.start, 0).decode();
        if instruction.is_invalid()
            || is_excluded(&instruction)
            || is_incomparable(&instruction)
            || instruction.flow_control() != FlowControl::Next
            || self.forms.codes.contains(&instruction.code()) != runs
        {
            return None;
        }
        // Two operands that are addresses of 32 bits: nobody can make one of them wider.
        let is_pair = matches!(
            instruction.mnemonic(),
            Mnemonic::Movdir64b | Mnemonic::Enqcmd | Mnemonic::Enqcmds
        );
        if is_pair && instruction.memory_base() == Register::EIP {
            return None;
        }
        let info = self.factory.info(&instruction).clone();
        let writes = |register: Register| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            info.used_registers().iter().any(|used| {
                used.register().full_register() == register
                    && matches!(used.access(), Write | CondWrite | ReadWrite | ReadCondWrite)
            })
        };
        let writes_rsp = writes(Register::RSP);
        let names_rsp = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RSP
            || instruction.op1_kind() == OpKind::Register
                && instruction.op1_register().full_register() == Register::RSP;
        let moves_stack = writes_rsp && (names_rsp || instruction.stack_pointer_increment() == 0)
            || matches!(instruction.mnemonic(), Mnemonic::Enter);
        if moves_stack && self.parts < 2
            || care == Care::Called && writes_rsp
            || care == Care::Counting && (writes(Register::RCX) || moves_stack)
        {
            return None;
        }
        let mut set: Vec<(u8, u64)> = Vec::new();
        let mut indexes = None;
        let mut absolute = None;
        match instruction.mnemonic() {
            // The second operand says how far from the first one the bit is.
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Register =>
            {
                let register = instruction.op1_register().full_register();
                if register == Register::RSP {
                    return None;
                }
                let bit = self.random.below(1024) as i64 - 512;
                set.push((register.number() as u8, bit as u64));
            }
            Mnemonic::Enter => {
                let level = self.random.below(3) as u8;
                let room = self.random.below(64) as u8;
                let end = instruction.len();
                bytes[end - 3..end].copy_from_slice(&[room, 0, level]);
                set.push((5, stack_in(self.parts - 1, &mut self.random)));
                self.parts -= 1;
            }
            Mnemonic::Leave => {
                if self.parts < 2 {
                    return None;
                }
                self.parts -= 1;
                set.push((5, stack_in(self.parts, &mut self.random)));
            }
            _ => {
                if instruction.is_string_instruction() && has_repeat(&instruction) {
                    set.push((RCX, self.random.below(40)));
                }
            }
        }
        let is_locked = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
        let by_gs = instruction.segment_prefix() == Register::GS;
        let is_named = (0..instruction.op_count())
            .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        if matches!(instruction.mnemonic(), Mnemonic::Enter | Mnemonic::Leave) {
            return Some(Plain { instruction, bytes, set, indexes, absolute, moves_stack });
        }
        if is_named && instruction.memory_base().full_register() == Register::RSP {
            if care == Care::Called
                || instruction.memory_base() != Register::RSP
                || instruction.memory_index() != Register::None
            {
                return None;
            }
            self.above_stack(&mut bytes, &instruction)?;
        }
        for memory in info.used_memory() {
            let size = (memory.memory_size().size() as u64).max(1);
            let is_own = is_named && is_operand(&instruction, memory);
            // What the engine does not know how to do.
            let is_odd = !is_own
                || instruction.mnemonic() == Mnemonic::Xlatb
                || memory.index().is_vector_register();
            if by_gs && is_odd && memory.base() != Register::RSP {
                return None;
            }
            let shift = if by_gs && is_own { GS_BASE } else { 0 };
            let (base, index) = (memory.base(), memory.index());
            if base == Register::RSP {
                if size > 64 || !is_own && instruction.stack_pointer_increment() == 0 {
                    return None;
                }
                continue;
            }
            let is_low = base.size() == 4
                || index.size() == 4
                || base == Register::None && !instruction.is_ip_rel_memory_operand()
                || instruction.memory_base() == Register::EIP;
            let reach = if is_low && !is_wide(&instruction) {
                Reach::Low
            } else if instruction.is_ip_rel_memory_operand() {
                Reach::Distance
            } else {
                Reach::Any
            };
            let address = self.operand(size, is_locked, reach).wrapping_sub(shift);
            if base == Register::None && index == Register::None {
                absolute = Some(address);
                continue;
            }
            let mut left = address.wrapping_sub(memory.displacement());
            if index.is_vector_register() {
                indexes = Some((index, if instruction.is_vsib32() { 32 } else { 64 }));
            } else if index != Register::None && instruction.mnemonic() != Mnemonic::Xlatb {
                let count = self.random.below(16);
                if index.full_register() == base.full_register()
                    || set.iter().any(|&(number, _)| number == index.number() as u8)
                {
                    return None;
                }
                set.push((index.number() as u8, count));
                left = left.wrapping_sub(count * memory.scale() as u64);
            }
            if base == Register::None {
                // The displacement has to do it.
                absolute = Some(left.wrapping_add(memory.displacement()));
                continue;
            }
            if base.size() == 4 {
                left &= 0xffff_ffff;
                left |= self.random.next() << 32;
            }
            if set.iter().any(|&(number, _)| number == base.number() as u8) {
                return None;
            }
            set.push((base.number() as u8, left));
        }
        if care == Care::Counting && set.iter().any(|&(register, _)| register == RCX) {
            return None;
        }
        Some(Plain { instruction, bytes, set, indexes, absolute, moves_stack })
    }

    /// Makes an operand by the stack pointer one that lies right above it.
    fn above_stack(&mut self, bytes: &mut [u8; 15], instruction: &Instruction) -> Option<()> {
        let mut decoder = Decoder::with_ip(64, &bytes[..], self.start, 0);
        let again = decoder.decode();
        let offsets = decoder.get_constant_offsets(&again);
        let at = offsets.displacement_offset();
        match offsets.displacement_size() {
            0 => {}
            1 if matches!(bytes[0], 0x62) => bytes[at] = 0,
            1 => bytes[at] = self.random.below(64) as u8,
            4 => {
                let offset = self.random.below(64) as u32;
                bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
            _ => return None,
        }
        debug_assert_eq!(again.len(), instruction.len());
        Some(())
    }

    /// Other registers, constants and prefixes.
    fn varied(&mut self, form: [u8; 15]) -> [u8; 15] {
        let mut bytes = form;
        let mut at = 0;
        while matches!(bytes[at], 0x66 | 0xf2 | 0xf3 | 0x67) {
            at += 1;
        }
        let random = self.random.next();
        let byte = |number: u32| (random >> (8 * number)) as u8;
        let (operands, is_vector) = match bytes[at] {
            0xc4 => {
                bytes[at + 1] ^= byte(0) & 0xe0;
                bytes[at + 2] ^= byte(1) & if byte(2) & 1 == 0 { 0x78 } else { 0 };
                (at + 4, true)
            }
            0x62 => {
                bytes[at + 1] ^= byte(0) & 0xf0;
                bytes[at + 2] ^= byte(1) & if byte(2) & 1 == 0 { 0x78 } else { 0 };
                bytes[at + 3] ^= byte(3) & if byte(2) & 2 == 0 { 0xff } else { 0x8f };
                (at + 5, true)
            }
            first => {
                if first & 0xf0 == 0x40 {
                    bytes[at] ^= byte(0) & 0x0f;
                    at += 1;
                }
                let opcode = match bytes[at..] {
                    [0x0f, 0x38 | 0x3a, ..] => at + 2,
                    [0x0f, ..] => at + 1,
                    _ => at,
                };
                (opcode + 1, false)
            }
        };
        // What follows the opcode: a choice of operands, and numbers.
        let kept = bytes[operands];
        for place in &mut bytes[operands..] {
            *place = self.random.next() as u8;
        }
        match byte(4) % 8 {
            // As it was: what the register field says apart.
            0..3 => bytes[operands] = kept,
            3 => bytes[operands] = bytes[operands] & 0x38 | 5,
            4..6 if is_vector => bytes[operands] |= 0xc0,
            4 => bytes[operands] = kept & 0xf8 | bytes[operands] & 7,
            _ => {}
        }
        if self.chance(10) {
            let rex = 0x40 | self.random.below(16) as u8;
            let prefix =
                self.pick(&[0x26, 0x2e, 0x36, 0x3e, 0x65, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, rex]);
            bytes.copy_within(0..14, 1);
            bytes[0] = prefix;
        }
        bytes
    }
}

/// Has an operand without registers be at an address, as far as its displacement goes.
fn aim(bytes: &mut [u8; 15], instruction: &Instruction, at: u64, address: u64) {
    let mut decoder = Decoder::with_ip(64, &bytes[..], at, 0);
    let again = decoder.decode();
    let offsets = decoder.get_constant_offsets(&again);
    let place = &mut bytes[offsets.displacement_offset()..];
    let distance = if instruction.is_ip_rel_memory_operand() {
        address.wrapping_sub(at + instruction.len() as u64)
    } else {
        address
    };
    match offsets.displacement_size() {
        8 => place[..8].copy_from_slice(&address.to_le_bytes()),
        4 => place[..4].copy_from_slice(&(distance as u32).to_le_bytes()),
        _ => {}
    }
}

/// Whether memory that an instruction uses is that of its operand, not what it uses silently.
fn is_operand(instruction: &Instruction, memory: &UsedMemory) -> bool {
    let base = if instruction.is_ip_rel_memory_operand() {
        Register::None
    } else {
        instruction.memory_base()
    };
    memory.base() == base
        && memory.index() == instruction.memory_index()
        && memory.displacement() == instruction.memory_displacement64()
}

/// Whether an operand's address stands in the instruction, all of it.
fn is_wide(instruction: &Instruction) -> bool {
    use Code::*;
    let is_whole = matches!(
        instruction.code(),
        Mov_AL_moffs8
            | Mov_AX_moffs16
            | Mov_EAX_moffs32
            | Mov_RAX_moffs64
            | Mov_moffs8_AL
            | Mov_moffs16_AX
            | Mov_moffs32_EAX
            | Mov_moffs64_RAX
    );
    is_whole && instruction.memory_displ_size() == 8
}

fn has_repeat(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repe_prefix() || instruction.has_repne_prefix()
}

/// What depends on where the process has its own things, where x87's last instruction was, or on how well the kernel
/// plays the processor.
fn is_incomparable(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Rdfsbase
            | Sldt
            | Str
            | Xgetbv
            | Fnstenv
            | Fstenv
            | Fnsave
            | Fsave
            | Fxsave
            | Fxsave64
            | Xsave
            | Xsave64
            | Xsavec
            | Xsavec64
            | Xsaveopt
            | Xsaveopt64
            | Xsaves
            | Xsaves64
    )
}
