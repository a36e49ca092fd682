//! The copy of one instruction.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register as Name};

use super::aim::Source;
use super::far;
use super::immovable::{Immovable, Reason};
use super::output::{Output, Place};
use crate::Register;
use crate::sweep::is_loop;

/// How a copy finds out where a direct branch of its original goes.
pub(super) type Aims<'a> = dyn Fn(u64) -> Place + 'a;

pub(super) fn copy(output: &mut Output, source: &Source, aim: &Aims<'_>) -> Result<(), Immovable> {
    let instruction = &source.instruction;
    let refuse = |reason| Err(Immovable { address: instruction.ip(), reason });
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::Call
        | FlowControl::XbeginXabortXend
            if instruction.op_count() > 0 && is_branch_operand(instruction.op0_kind()) =>
        {
            if instruction.op0_kind() != OpKind::NearBranch64 {
                return refuse(Reason::OddTransfer);
            }
            direct(output, source, aim(instruction.near_branch64()));
            Ok(())
        }
        FlowControl::IndirectCall => match instruction.code() {
            Code::Call_rm64 => indirect_call(output, instruction),
            _ => refuse(Reason::OddTransfer),
        },
        _ if instruction.code() == Code::Syscall => {
            output.raw(source.bytes());
            // The kernel leaves the return address in rcx.
            output.load_constant(Register::RCX, instruction.next_ip());
            Ok(())
        }
        // What only ever traps looks at no operand.
        FlowControl::Exception => {
            output.raw(source.bytes());
            Ok(())
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            if near_operand(output, source).is_some() {
                return Ok(());
            }
            far::copy(output, instruction)
                .map_err(|reason| Immovable { address: instruction.ip(), reason })
        }
        _ => {
            output.raw(source.bytes());
            Ok(())
        }
    }
}

fn is_branch_operand(kind: OpKind) -> bool {
    matches!(kind, OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn direct(output: &mut Output, source: &Source, place: Place) {
    let instruction = &source.instruction;
    let blame = instruction.ip();
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => output.jump(blame, place),
        FlowControl::Call => {
            output.push_constant(instruction.next_ip());
            output.jump(blame, place);
        }
        FlowControl::ConditionalBranch if is_loop(instruction) => {
            // Taken: over the jump that steps over the far jump.
            let bytes = source.bytes();
            output.raw(&bytes[..bytes.len() - 1]);
            output.raw(&[2, 0xeb, 6]);
            output.far_jump(blame, place);
        }
        FlowControl::ConditionalBranch => {
            // The decoder's conditions are in the processor's order, after one that stands for none.
            let condition = instruction.condition_code() as u8 - 1;
            if output.near(&[0x0f, 0x80 | condition], blame, place).is_none() {
                output.raw(&[0x70 | (condition ^ 1), 6]);
                output.far_jump(blame, place);
            }
        }
        _ => {
            // `xbegin`, with the place to go on if the transaction fails.
            if output.near(&[0xc7, 0xf8], blame, place).is_none() {
                let stub = output.here().wrapping_add(8);
                let _ = output.near(&[0xc7, 0xf8], blame, Place::Here(stub));
                output.raw(&[0xeb, 6]);
                output.far_jump(blame, place);
            }
        }
    }
}

fn indirect_call(output: &mut Output, instruction: &Instruction) -> Result<(), Immovable> {
    let refuse = |reason| Immovable { address: instruction.ip(), reason };
    let mut jump = *instruction;
    jump.set_code(Code::Jmp_rm64);
    if instruction.op0_kind() == OpKind::Register {
        if instruction.op0_register() == Name::RSP {
            far::call_stack_pointer(output, instruction.next_ip());
            return Ok(());
        }
    } else if matches!(instruction.memory_base(), Name::RSP | Name::ESP) {
        let displacement = instruction.memory_displacement64() as i64;
        if instruction.memory_index() == Name::None && (-15..0).contains(&displacement) {
            // The return address goes where the target is read from.
            return far::call(output, instruction).map_err(refuse);
        }
        jump.set_memory_displacement64(displacement.wrapping_add(8) as u64);
        jump.set_memory_displ_size(instruction.memory_base().size() as u32);
    } else if instruction.memory_base() == Name::RIP {
        // The longest code in front of the operand's own distance decides.
        let from = output.here().wrapping_add(13 + 15);
        let distance = instruction.ip_rel_memory_address().wrapping_sub(from) as i64;
        if distance.unsigned_abs() >= (1 << 31) - 64 {
            return far::call(output, instruction).map_err(refuse);
        }
    }
    output.push_constant(instruction.next_ip());
    output.encode(&jump).ok_or(refuse(Reason::NoEncoding))
}

/// Copies an instruction with an operand relative to its address, with the distance changed, if that can be.
fn near_operand(output: &mut Output, source: &Source) -> Option<()> {
    let instruction = &source.instruction;
    let next = output.here().wrapping_add(instruction.len() as u64);
    let distance = instruction.ip_rel_memory_address().wrapping_sub(next);
    // With a 32-bit address size the sum wraps at 4 GiB: then every distance is near.
    if instruction.memory_base() == Name::RIP {
        i32::try_from(distance as i64).ok()?;
    }
    let mut decoder = Decoder::with_ip(64, source.bytes(), instruction.ip(), DecoderOptions::NONE);
    let again = decoder.decode();
    let place = decoder.get_constant_offsets(&again).displacement_offset();
    let mut bytes = source.bytes;
    bytes[place..place + 4].copy_from_slice(&(distance as u32).to_le_bytes());
    output.raw(&bytes[..instruction.len()]);
    Some(())
}
