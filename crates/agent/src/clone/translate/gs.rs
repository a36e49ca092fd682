//! The program's own `gs`. The processor's `gs` base is the engine's; the program's is in the record of the thread,
//! and is added to the addresses of instructions that use it.

use crate::clone::cache::emit::{RAX, RCX};
use crate::clone::cache::pieces::Kind;
use crate::clone::thread::record::at;
use crate::clone::translate::operands::{NAMES, encoded, free_register, point_to, with_memory_of};
use crate::clone::translate::translator::Translator;
use alloc::vec::Vec;
use iced_x86::{Code, Instruction, Mnemonic, Register};

impl Translator<'_> {
    /// An instruction that uses the program's own `gs`, which is kept for it.
    pub fn by_gs(&mut self, instruction: &Instruction) -> Option<Kind> {
        let register = instruction.op0_register().number() as u8;
        match instruction.code() {
            Code::Rdgsbase_r64 => self.out.load(register, at!(gs_base)),
            Code::Wrgsbase_r64 => self.out.save(register, at!(gs_base)),
            Code::Rdgsbase_r32 => self.out.load_half(register, at!(gs_base)),
            Code::Wrgsbase_r32 => {
                self.out.save_half(register, at!(gs_base));
                self.out.set_half(at!(gs_base) + 4, 0);
            }
            _ => return self.through_gs(instruction),
        }
        Some(Kind::Copied)
    }

    /// An instruction with memory in `gs`, through two registers.
    fn through_gs(&mut self, instruction: &Instruction) -> Option<Kind> {
        let place = free_register(instruction, None);
        let base = free_register(instruction, Some(place));
        let name = NAMES[place as usize];
        let mut changed = *instruction;
        changed.set_segment_prefix(Register::None);
        let is_gathering = instruction.memory_index().is_vector_register();
        if is_gathering {
            changed.set_memory_base(name);
            changed.set_memory_displ_size(8);
        } else {
            changed.set_code(with_registers(instruction.code()));
            point_to(&mut changed, place);
        }
        let is_far_back =
            instruction.memory_base() == Register::RSP && instruction.mnemonic() == Mnemonic::Pop;
        let is_table = instruction.mnemonic() == Mnemonic::Xlatb;
        if is_far_back || is_gathering && is_short(instruction) {
            return None;
        }
        let operation = if is_table { Vec::new() } else { encoded(&changed)? };
        self.out.save(place, at!(far));
        self.out.save(base, at!(second_far));
        if is_table {
            // movzx place, al; lea place, [place + rbx]
            self.out.bytes(&[0x0f, 0xb6, 0xc0 | place << 3]);
            let wide = if is_short(instruction) { 0x40 } else { 0x48 };
            self.out.bytes(&[wide, 0x8d, 0x04 | place << 3, 0x18 | place]);
        } else if is_gathering {
            match instruction.memory_base() {
                Register::None => self.out.constant(place, 0),
                _ => self.address(instruction, place, true),
            }
        } else {
            self.address(instruction, place, false);
        }
        self.out.load(base, at!(gs_base));
        self.out.bytes(&[0x48, 0x8d, 0x04 | place << 3, base << 3 | place]); // lea place, [place + base]
        if is_table {
            self.out.bytes(&[0x8a, place]); // mov al, [place]
        } else {
            self.out.bytes(&operation);
        }
        self.out.load(place, at!(far));
        self.out.load(base, at!(second_far));
        Some(Kind::Segment)
    }

    /// Loads what an indirect branch reads into `rcx`: the address first, then what is there, by the help of
    /// `rax`.
    pub fn load_target_by_gs(&mut self, instruction: &Instruction) {
        self.address(instruction, RCX, false);
        self.out.save(RAX, at!(rax));
        self.out.load(RAX, at!(gs_base));
        self.out.bytes(&[0x48, 0x8b, 0x0c, 0x01]); // mov rcx, [rcx + rax]
        self.out.load(RAX, at!(rax));
    }

    /// Loads the offset of an instruction's memory within its segment, or only the base register of that.
    fn address(&mut self, instruction: &Instruction, register: u8, is_base: bool) {
        if instruction.is_ip_rel_memory_operand() {
            self.block.is_absolute = true;
            return self.out.constant(register, instruction.ip_rel_memory_address());
        }
        if instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
        {
            return self.out.constant(register, instruction.memory_displacement64());
        }
        let name = NAMES[register as usize];
        let mut address = with_memory_of(instruction, Code::Lea_r64_m, name);
        if is_base {
            point_to(&mut address, 0);
            address.set_memory_base(instruction.memory_base());
        }
        match encoded(&address) {
            Some(bytes) => self.out.bytes(&bytes),
            None => self.out.bytes(&[0x0f, 0x0b]),
        }
    }
}

/// Whether addresses within the segment have 32 bits.
fn is_short(instruction: &Instruction) -> bool {
    match instruction.memory_base() {
        Register::None => instruction.memory_displ_size() == 4,
        base => base.size() == 4,
    }
}

/// The form of an instruction whose memory can be where a register points: those that hold the whole of an
/// address have another.
fn with_registers(code: Code) -> Code {
    match code {
        Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        _ => code,
    }
}
