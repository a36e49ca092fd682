//! Copies of instructions whose memory operand is more than 2 GiB away.
//!
//! The operand is reached through a register that the instruction does not use. The register is kept on the stack,
//! below the 128 bytes that a function may use without asking. Nothing here touches flags.

use iced_x86::{Code, Instruction, InstructionInfoFactory, OpKind, Register as Name};

use super::immovable::Reason;
use super::output::Output;
use crate::effects::{full, number};
use crate::{Register, RegisterSet};

const RED_ZONE: i32 = 128;
const RSP: Register = Register::RSP;
const RAX: Register = Register::RAX;

/// Registers that need no prefix, so that any instruction can use them.
const CANDIDATES: [(Register, Name); 7] = [
    (Register::RAX, Name::RAX),
    (Register::RCX, Name::RCX),
    (Register::RDX, Name::RDX),
    (Register::RBX, Name::RBX),
    (Register::RSI, Name::RSI),
    (Register::RDI, Name::RDI),
    (Register::RBP, Name::RBP),
];

/// Two registers that an instruction neither names nor uses silently.
fn scratch(instruction: &Instruction) -> Option<[(Register, Name); 2]> {
    let mut factory = InstructionInfoFactory::new();
    let used = factory
        .info(instruction)
        .used_registers()
        .iter()
        .filter_map(|used| number(used.register()))
        .fold(RegisterSet::NONE, RegisterSet::with);
    let mut free = CANDIDATES.into_iter().filter(|&(register, _)| !used.contains(register));
    Some([free.next()?, free.next()?])
}

pub(super) fn copy(output: &mut Output, instruction: &Instruction) -> Result<(), Reason> {
    let address = instruction.ip_rel_memory_address();
    match instruction.code() {
        Code::Lea_r64_m | Code::Lea_r32_m | Code::Lea_r16_m => {
            load_address(output, instruction, address)
        }
        Code::Jmp_rm64 => jump(output, instruction),
        Code::Push_rm64 => push(output, instruction, 8),
        Code::Push_rm16 => push(output, instruction, 2),
        Code::Pop_rm64 => pop(output, instruction, address, 8),
        Code::Pop_rm16 => pop(output, instruction, address, 2),
        _ if instruction.is_stack_instruction() => Err(Reason::OutOfReach),
        _ if leaves(instruction) => Err(Reason::OutOfReach),
        _ if names_stack_pointer(instruction) => with_stack_pointer(output, instruction, address),
        _ => {
            let [(register, name), _] = scratch(instruction).ok_or(Reason::OutOfReach)?;
            output.stack_address(RSP, -RED_ZONE);
            output.push(register);
            output.load_constant(register, address);
            output.encode(&through(instruction, name)).ok_or(Reason::NoEncoding)?;
            output.pop(register);
            output.stack_address(RSP, RED_ZONE);
            Ok(())
        }
    }
}

/// Whether what follows an instruction may not run, so that nothing could be put back there.
fn leaves(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), iced_x86::FlowControl::Next)
}

/// The same instruction with its operand at the address in a register.
fn through(instruction: &Instruction, register: Name) -> Instruction {
    let mut changed = *instruction;
    changed.set_memory_base(register);
    changed.set_memory_index(Name::None);
    changed.set_memory_displacement64(0);
    changed.set_memory_displ_size(0);
    changed
}

/// `lea` reads no memory: only the address counts.
fn load_address(
    output: &mut Output,
    instruction: &Instruction,
    address: u64,
) -> Result<(), Reason> {
    let register = instruction.op0_register();
    let load = match instruction.code() {
        Code::Lea_r64_m => Instruction::with2(Code::Mov_r64_imm64, register, address),
        Code::Lea_r32_m => Instruction::with2(Code::Mov_r32_imm32, register, address as u32),
        _ => Instruction::with2(Code::Mov_r16_imm16, register, u32::from(address as u16)),
    };
    output.encode(&load.map_err(|_| Reason::NoEncoding)?).ok_or(Reason::NoEncoding)
}

/// Loads what a jump, a call or a push reads, of 64 bits; the stack pointer is `below` its value.
fn load_operand(
    output: &mut Output,
    instruction: &Instruction,
    register: Register,
    name: Name,
    below: i32,
) -> Result<(), Reason> {
    let mut load = *instruction;
    load.set_code(Code::Mov_r64_rm64);
    load.set_op1_kind(OpKind::Memory);
    load.set_op0_kind(OpKind::Register);
    load.set_op0_register(name);
    if instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Name::RIP {
        output.load_constant(register, instruction.ip_rel_memory_address());
        load = through(&load, name);
    } else if matches!(instruction.memory_base(), Name::RSP | Name::ESP) {
        let displacement = instruction.memory_displacement64().wrapping_add(below as u64);
        load.set_memory_displacement64(displacement);
        load.set_memory_displ_size(instruction.memory_base().size() as u32);
    }
    output.encode(&load).ok_or(Reason::NoEncoding)
}

/// Jumps to what is stored far away. The return at the end is no return: it pops the target.
fn jump(output: &mut Output, instruction: &Instruction) -> Result<(), Reason> {
    output.stack_address(RSP, -RED_ZONE - 8);
    output.push(RAX);
    load_operand(output, instruction, RAX, Name::RAX, RED_ZONE + 16)?;
    output.store_to_stack(RAX, 8);
    output.pop(RAX);
    output.raw(&[0xc2, RED_ZONE as u8, 0]);
    Ok(())
}

/// Calls what is stored far away, or where the return address will be.
pub(super) fn call(output: &mut Output, instruction: &Instruction) -> Result<(), Reason> {
    // The register must not be one that the operand's address is made of.
    let [(register, name), _] = scratch(instruction).ok_or(Reason::OutOfReach)?;
    output.stack_address(RSP, -RED_ZONE - 16);
    output.push(register);
    load_operand(output, instruction, register, name, RED_ZONE + 24)?;
    finish_call(output, register, instruction.next_ip());
    Ok(())
}

/// `call rsp`: the target is the stack pointer before the call.
pub(super) fn call_stack_pointer(output: &mut Output, return_address: u64) {
    output.stack_address(RSP, -RED_ZONE - 16);
    output.push(RAX);
    output.stack_address(RAX, RED_ZONE + 24);
    finish_call(output, RAX, return_address);
}

/// With the target in a register that lies on the stack, and 16 bytes more than the red zone below that.
fn finish_call(output: &mut Output, register: Register, return_address: u64) {
    output.store_to_stack(register, 16);
    output.load_constant(register, return_address);
    output.store_to_stack(register, RED_ZONE + 16);
    output.pop(register);
    output.stack_address(RSP, 8);
    output.raw(&[0xc2, RED_ZONE as u8 - 8, 0]);
}

fn push(output: &mut Output, instruction: &Instruction, size: i32) -> Result<(), Reason> {
    output.stack_address(RSP, -RED_ZONE - size);
    output.push(RAX);
    load_operand(output, instruction, RAX, Name::RAX, 0)?;
    if size == 8 {
        output.store_to_stack(RAX, RED_ZONE + 8);
    } else {
        output.store_word_to_stack(RAX, RED_ZONE + 8);
    }
    output.pop(RAX);
    output.stack_address(RSP, RED_ZONE);
    Ok(())
}

fn pop(
    output: &mut Output,
    instruction: &Instruction,
    address: u64,
    size: i32,
) -> Result<(), Reason> {
    let (value, place) = (RAX, Register::RCX);
    output.stack_address(RSP, -RED_ZONE);
    output.push(value);
    output.push(place);
    output.load_from_stack(value, RED_ZONE + 16);
    output.load_constant(place, address);
    let (code, name) =
        if size == 8 { (Code::Mov_rm64_r64, Name::RAX) } else { (Code::Mov_rm16_r16, Name::AX) };
    let mut store = through(instruction, Name::RCX);
    store.set_code(code);
    store.set_op0_kind(OpKind::Memory);
    store.set_op1_kind(OpKind::Register);
    store.set_op1_register(name);
    output.encode(&store).ok_or(Reason::NoEncoding)?;
    output.pop(place);
    output.pop(value);
    output.stack_address(RSP, RED_ZONE + size);
    Ok(())
}

fn names_stack_pointer(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && full(instruction.op_register(operand)) == Name::RSP
    })
}

/// Lets another register stand for the stack pointer, and moves it there in the end.
fn with_stack_pointer(
    output: &mut Output,
    instruction: &Instruction,
    address: u64,
) -> Result<(), Reason> {
    let [(place, place_name), (stand_in, stand_in_name)] =
        scratch(instruction).ok_or(Reason::OutOfReach)?;
    output.stack_address(RSP, -RED_ZONE);
    output.push(place);
    output.push(stand_in);
    output.stack_address(stand_in, RED_ZONE + 16);
    output.load_constant(place, address);
    let mut changed = through(instruction, place_name);
    for operand in 0..instruction.op_count() {
        if instruction.op_kind(operand) == OpKind::Register {
            let name = instruction.op_register(operand);
            if full(name) == Name::RSP {
                changed.set_op_register(operand, same_size(stand_in_name, name));
            }
        }
    }
    output.encode(&changed).ok_or(Reason::NoEncoding)?;
    output.load_from_stack(place, 8);
    // xchg [rsp], stand_in; pop rsp
    output.raw(&[0x48, 0x87, 0x04 | stand_in.0 << 3, 0x24, 0x5c]);
    Ok(())
}

/// The part of a register that is as large as another.
fn same_size(register: Name, like: Name) -> Name {
    let base = register as u32 - Name::RAX as u32;
    let first = match like.size() {
        8 => return register,
        4 => Name::EAX,
        2 => Name::AX,
        // The low byte of the first four registers; of the others only with a prefix, which `spl` has too.
        _ => return [Name::AL, Name::CL, Name::DL, Name::BL][base.min(3) as usize],
    };
    Name::try_from((first as u32 + base) as usize).unwrap_or(register)
}
