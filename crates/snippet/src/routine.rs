//! What the routines of the [runtime](crate::runtime) have in common.

use crate::asm::{Asm, Cond, Mem};
use crate::layout::header;
use crate::system_calls::{GETPID, PROCESS_VM_READV};
use weft_code::Register;

/// What is right before the instruction of a clone's routine that may fault. The byte behind it says how far before
/// itself the code begins that goes on then.
pub(crate) const MAY_FAULT: [u8; 7] = *b"weft\xf4ld";

pub(crate) fn save(asm: &mut Asm, registers: &[Register]) {
    registers.iter().for_each(|&register| asm.push(register));
}

pub(crate) fn restore(asm: &mut Asm, registers: &[Register]) {
    registers.iter().rev().for_each(|&register| asm.pop(register));
}

/// rcx and r11 are lost.
pub(crate) fn system_call(asm: &mut Asm, number: i64) {
    asm.mov_imm(Register::RAX, number);
    asm.syscall();
}

/// Has the kernel copy pieces of the process' own memory, which may not be there: where to is described at the stack
/// pointer, where from `remote` bytes above it. rax is how many bytes; rcx, rdx, rsi, rdi and r8 to r11 are lost.
pub(crate) fn read_own_memory(asm: &mut Asm, slab: Register, remote: i32, pieces: i64) {
    let known = asm.label();
    asm.mov32(Register::RAX, Mem::Base(slab, header::PID as i32));
    asm.test(Register::RAX, Register::RAX);
    asm.jcc(Cond::NotEqual, known);
    system_call(asm, GETPID);
    asm.bind(known);
    asm.mov(Register::RDI, Register::RAX);
    asm.mov(Register::RSI, Register::RSP);
    asm.mov_imm(Register::RDX, 1);
    asm.lea(Register::R10, Mem::Base(Register::RSP, remote));
    asm.mov_imm(Register::R8, pieces);
    asm.mov_imm(Register::R9, 0);
    system_call(asm, PROCESS_VM_READV);
}
