//! The code of a trip: what a thread runs on weft's behalf, and its way home.
//!
//! A trip is straight-line code that carries everything it needs to finish and to restore the thread
//! by itself, because weft may be killed while the thread is on it. It pushes nothing: the thread's
//! stack may have no room (a goroutine's), and below it is the red zone.
//!
//! The last system call of a trip, the *farewell*, gives the thread its signal mask back. It is where
//! a living weft meets the thread (a system-call stop exists only while there is a tracer, unlike a
//! breakpoint, which kills a program that has none) and puts the true registers back, those with which
//! the kernel can restart the call that the thread was in. If weft is gone, the thread goes on: it
//! loads the settled registers and jumps back to where it was.

use super::Registers;
use crate::TargetAddr;
use iced_x86::code_asm::*;
use iced_x86::{BlockEncoderOptions, Code, IcedError, Instruction, Register};

/// A trip's argument.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A number or an address.
    Const(u64),
    /// The result of the first call.
    FirstResult,
    /// The address of a text that travels with the code.
    Text(&'static str),
}

/// What a thread does on its trip.
#[derive(Clone, Debug)]
pub enum Step {
    /// A system call.
    Call(i64, Vec<Value>),
    /// A visit to the agent.
    Visit {
        /// The agent's way in.
        entry: TargetAddr,
        /// The control block.
        control: TargetAddr,
        /// The thread's slot.
        slot: TargetAddr,
        /// The end of the slot, where its stack begins.
        stack: TargetAddr,
    },
}

/// A trip, ready to be written at its place.
#[derive(Clone, Debug)]
pub struct Trip {
    /// The bytes.
    pub code: Vec<u8>,
    /// Where a thread starts.
    pub start: TargetAddr,
    /// The address after the farewell's `syscall` instruction.
    pub farewell: TargetAddr,
}

const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9];
/// Where the first result is kept: neither the kernel nor the agent changes it.
const KEPT: Register = Register::R12;
const SIGNAL_MASK_SIZE: u64 = 8;

/// Assembles a trip at an address, for a thread with these registers and this signal mask.
pub fn assemble_trip(
    at: TargetAddr,
    steps: &[Step],
    registers: &Registers,
    mask: u64,
) -> Result<Trip, IcedError> {
    let home = registers.settled().0;
    let mut a = CodeAssembler::new(64)?;
    let mut mask_data = a.create_label();
    let mut flags_data = a.create_label();
    let mut home_data = a.create_label();
    let mut after_farewell = a.create_label();
    let mut texts = Vec::new();

    let mut calls = 0;
    for step in steps {
        match step {
            Step::Call(number, args) => {
                for (value, register) in args.iter().zip(ARGUMENTS) {
                    match *value {
                        Value::Const(constant) => load(&mut a, register, constant)?,
                        Value::FirstResult => a.add_instruction(Instruction::with2(
                            Code::Mov_r64_rm64,
                            register,
                            KEPT,
                        )?)?,
                        Value::Text(text) => {
                            let label = a.create_label();
                            a.lea(get_gpr64(register).unwrap_or(rdi), ptr(label))?;
                            texts.push((label, text));
                        }
                    }
                }
                load(&mut a, Register::RAX, *number as u64)?;
                a.syscall()?;
                if calls == 0 {
                    a.add_instruction(Instruction::with2(
                        Code::Mov_r64_rm64,
                        KEPT,
                        Register::RAX,
                    )?)?;
                }
                calls += 1;
            }
            Step::Visit { entry, control, slot, stack } => {
                load(&mut a, Register::RSP, stack.0)?;
                load(&mut a, Register::RDI, control.0)?;
                load(&mut a, Register::RSI, slot.0)?;
                load(&mut a, Register::RAX, entry.0)?;
                a.call(rax)?;
            }
        }
    }

    // From here on nothing changes the flags. The stack pointer is the thread's own again before its
    // signals are let in, so that a handler finds the stack that it expects.
    a.lea(rsp, ptr(flags_data))?;
    a.popfq()?;
    load(&mut a, Register::RSP, home.rsp)?;
    load(&mut a, Register::RDI, libc::SIG_SETMASK as u64)?;
    a.lea(rsi, ptr(mask_data))?;
    load(&mut a, Register::RDX, 0)?;
    load(&mut a, Register::R10, SIGNAL_MASK_SIZE)?;
    load(&mut a, Register::RAX, libc::SYS_rt_sigprocmask as u64)?;
    a.syscall()?;
    a.set_label(&mut after_farewell)?;

    for (register, value) in [
        (Register::RAX, home.rax),
        (Register::RBX, home.rbx),
        (Register::RCX, home.rcx),
        (Register::RDX, home.rdx),
        (Register::RSI, home.rsi),
        (Register::RDI, home.rdi),
        (Register::RBP, home.rbp),
        (Register::R8, home.r8),
        (Register::R9, home.r9),
        (Register::R10, home.r10),
        (Register::R11, home.r11),
        (Register::R12, home.r12),
        (Register::R13, home.r13),
        (Register::R14, home.r14),
        (Register::R15, home.r15),
    ] {
        load(&mut a, register, value)?;
    }
    a.jmp(qword_ptr(home_data))?;

    a.set_label(&mut mask_data)?;
    a.dq(&[mask])?;
    a.set_label(&mut flags_data)?;
    a.dq(&[home.eflags])?;
    a.set_label(&mut home_data)?;
    a.dq(&[home.rip])?;
    for (mut label, text) in texts {
        a.set_label(&mut label)?;
        a.db(text.as_bytes())?;
        a.db(b"\0")?;
    }

    let result = a.assemble_options(at.0, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    let farewell = TargetAddr(result.label_ip(&after_farewell)?);
    Ok(Trip { code: result.inner.code_buffer, start: at, farewell })
}

/// The shortest `mov` of a constant into a register. It leaves the flags alone.
fn load(a: &mut CodeAssembler, register: Register, value: u64) -> Result<(), IcedError> {
    let instruction = if let Ok(small) = u32::try_from(value) {
        Instruction::with2(Code::Mov_r32_imm32, register.full_register32(), small)?
    } else if let Ok(small) = i32::try_from(value as i64) {
        Instruction::with2(Code::Mov_rm64_imm32, register, small)?
    } else {
        Instruction::with2(Code::Mov_r64_imm64, register, value)?
    };
    a.add_instruction(instruction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, IntelFormatter};

    fn registers() -> Registers {
        // SAFETY: plain integers.
        let mut r: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (r.rip, r.rsp, r.eflags, r.orig_rax) = (0x40_1002, 0x7fff_1234_5678, 0x246, u64::MAX);
        (r.rax, r.r15) = (7, u64::MAX);
        Registers(r)
    }

    fn disassemble(trip: &Trip) -> Vec<String> {
        let mut decoder = Decoder::with_ip(64, &trip.code, trip.start.0, DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        let mut lines = Vec::new();
        loop {
            let instruction = decoder.decode();
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            lines.push(text);
            if instruction.flow_control() == FlowControl::IndirectBranch {
                return lines;
            }
        }
    }

    #[test]
    fn a_trip_with_one_call() {
        let steps =
            [Step::Call(libc::SYS_munmap, vec![Value::Const(0x10_0000), Value::Const(4096)])];
        let at = TargetAddr(0x7f00_0000_0000);
        let trip = assemble_trip(at, &steps, &registers(), 0xff).unwrap();
        assert_eq!(
            disassemble(&trip).join("\n"),
            "\
mov edi,100000h
mov esi,1000h
mov eax,0Bh
syscall
mov r12,rax
lea rsp,[7F00000000A6h]
popfq
mov rsp,7FFF12345678h
mov edi,2
lea rsi,[7F000000009Eh]
mov edx,0
mov r10d,8
mov eax,0Eh
syscall
mov eax,7
mov ebx,0
mov ecx,0
mov edx,0
mov esi,0
mov edi,0
mov ebp,0
mov r8d,0
mov r9d,0
mov r10d,0
mov r11d,0
mov r12d,0
mov r13d,0
mov r14d,0
mov r15,0FFFFFFFFFFFFFFFFh
jmp qword ptr [7F00000000AEh]"
        );
        let data = &trip.code[0x9e..];
        assert_eq!(data, [0xffu64, 0x246, 0x40_1002].map(u64::to_ne_bytes).concat());
        assert_eq!(trip.code[(trip.farewell.0 - at.0) as usize - 2..][..2], [0x0f, 0x05]);
    }

    #[test]
    fn nothing_between_the_flags_and_home_changes_the_flags() {
        let trip = assemble_trip(TargetAddr(0x1000), &[], &registers(), 0).unwrap();
        let lines = disassemble(&trip);
        let popped = lines.iter().position(|l| l == "popfq").unwrap();
        for line in &lines[popped + 1..] {
            let mnemonic = line.split(' ').next().unwrap();
            assert!(["mov", "lea", "syscall", "jmp"].contains(&mnemonic), "{line}");
        }
    }
}
