//! The program's own `gs`. The processor's is the engine's; the program's is kept for it, and added to
//! addresses where the program wants it.

use super::*;
use iced_x86::{Mnemonic, OpKind};

impl Translator<'_> {
    /// An instruction that uses the program's own `gs`, which is kept for it.
    pub fn by_gs(&mut self, instruction: &Instruction, bytes: &[u8]) -> Kind {
        let register = instruction.op0_register().number() as u8;
        match instruction.code() {
            Code::Rdgsbase_r64 => self.out.load(register, at!(gs_base)),
            Code::Wrgsbase_r64 => self.out.save(register, at!(gs_base)),
            Code::Rdgsbase_r32 => self.out.load_half(register, at!(gs_base)),
            Code::Wrgsbase_r32 => {
                self.out.save_half(register, at!(gs_base));
                self.out.set_half(at!(gs_base) + 4, 0);
            }
            _ => return self.through_gs(instruction, bytes),
        }
        Kind::Copied
    }

    fn through_gs(&mut self, instruction: &Instruction, bytes: &[u8]) -> Kind {
        let is_written_out = (0..instruction.op_count())
            .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let place = free_register(instruction, None);
        let base = free_register(instruction, Some(place));
        let mut address = *instruction;
        address.set_code(Code::Lea_r64_m);
        address.set_op0_kind(OpKind::Register);
        address.set_op0_register(NAMES[place as usize]);
        address.set_op1_kind(OpKind::Memory);
        address.set_segment_prefix(Register::None);
        let mut changed = *instruction;
        changed.set_code(with_registers(instruction.code()));
        changed.set_segment_prefix(Register::None);
        point_to(&mut changed, place);
        let mut encoder = Encoder::new(64);
        // What names its memory only silently, or cannot be written anew, is rare enough to go wrong.
        if !is_written_out || encoder.encode(&changed, 0).is_err() {
            self.out.bytes(bytes);
            return Kind::Copied;
        }
        let operation = encoder.take_buffer();
        let _ = encoder.encode(&address, 0);
        let lea = encoder.take_buffer();
        self.out.save(place, at!(far));
        self.out.save(base, at!(far_too));
        if instruction.is_ip_rel_memory_operand() {
            self.out.constant(place, instruction.ip_rel_memory_address());
        } else if instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
        {
            self.out.constant(place, instruction.memory_displacement64());
        } else {
            self.out.bytes(&lea);
        }
        self.out.load(base, at!(gs_base));
        self.out.bytes(&[0x48, 0x8d, 0x04 | place << 3, base << 3 | place]); // lea place, [place + base]
        self.out.bytes(&operation);
        self.out.load(place, at!(far));
        self.out.load(base, at!(far_too));
        Kind::Segment
    }
}

/// Whether an instruction's memory is in `gs`, as it is written. An address that is only computed has no
/// segment.
pub fn uses_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        && instruction.mnemonic() != Mnemonic::Lea
        && (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory)
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

pub fn names_gs_base(code: Code) -> bool {
    matches!(
        code,
        Code::Rdgsbase_r32 | Code::Rdgsbase_r64 | Code::Wrgsbase_r32 | Code::Wrgsbase_r64
    )
}
