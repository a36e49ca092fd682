//! Which system call an instruction makes, by the instructions before it.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    Register,
};

/// More than the kernel has.
const HIGHEST: u64 = 1024;

/// The number of the system call that is made behind these bytes; `None` if they do not say. They may begin inside an
/// instruction.
pub fn call_number(before: &[u8]) -> Option<u32> {
    // The last instruction that sets the number: whatever else ends at the same place, begins before it.
    (0..before.len()).rev().find_map(|start| {
        // With such a byte in front it is another instruction.
        let is_prefixed = start > 0 && is_rex(before[start - 1]);
        let rest = before.get(start..).filter(|_| !is_prefixed)?;
        let mut decoder = Decoder::with_ip(64, rest, 0, DecoderOptions::NONE);
        let number = sets_number(&decoder.decode())?;
        let mut factory = InstructionInfoFactory::new();
        let keeps = |one: Instruction| {
            !one.is_invalid()
                && one.flow_control() == FlowControl::Next
                && !writes_number(&one, &mut factory)
        };
        decoder.iter().all(keeps).then_some(number)
    })
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

/// Whether an instruction sets the number of a call, and to what.
fn sets_number(one: &Instruction) -> Option<u32> {
    if one.op0_register().full_register() != Register::RAX {
        return None;
    }
    let number = match one.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 => one.immediate(1),
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if one.op1_register() == Register::EAX => 0,
        _ => return None,
    };
    u32::try_from(number).ok().filter(|_| number < HIGHEST)
}

fn writes_number(one: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    factory.info(one).used_registers().iter().any(|used| {
        let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        !is_read && used.register().full_register() == Register::RAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_calls() {
        let cases: &[(&[u8], Option<u32>)] = &[
            // mov eax, 1
            (&[0xb8, 1, 0, 0, 0], Some(1)),
            // xor eax, eax
            (&[0x31, 0xc0], Some(0)),
            // mov rax, 0x2d
            (&[0x48, 0xc7, 0xc0, 0x2d, 0, 0, 0], Some(0x2d)),
            // mov eax, 0x2d; xor r8d, r8d; xor r9d, r9d
            (&[0xb8, 0x2d, 0, 0, 0, 0x45, 0x31, 0xc0, 0x45, 0x31, 0xc9], Some(0x2d)),
            // mov eax, 0x101; mov r10, rcx; what is before it is cut.
            (&[0xff, 0x24, 0xb8, 1, 1, 0, 0, 0x49, 0x89, 0xca], Some(0x101)),
            // mov r8d, 1: not the number.
            (&[0x41, 0xb8, 1, 0, 0, 0], None),
            // mov eax, 1; mov eax, edi
            (&[0xb8, 1, 0, 0, 0, 0x89, 0xf8], None),
            // mov eax, 1; pop rax
            (&[0xb8, 1, 0, 0, 0, 0x58], None),
            // mov eax, 1; call
            (&[0xb8, 1, 0, 0, 0, 0xe8, 0, 0, 0, 0], None),
            // mov rax, rdi: the number is an argument.
            (&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7], None),
            // mov eax, 0x10000: there is no such call.
            (&[0xb8, 0, 0, 1, 0], None),
            (&[], None),
        ];
        for &(bytes, number) in cases {
            assert_eq!(call_number(bytes), number, "{bytes:02x?}");
        }
    }
}
