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

/// The code of a trip from one place. What a thread has to come home with, its luggage, goes right
/// behind the code, so that the same trip serves any thread without being assembled again.
#[derive(Clone, Debug)]
pub struct Trip {
    /// The bytes, without the luggage.
    code: Vec<u8>,
    /// Where a thread starts.
    pub start: TargetAddr,
    /// The address after the farewell's `syscall` instruction.
    pub farewell: TargetAddr,
}

impl Trip {
    /// All the bytes, for a thread with these registers and this signal mask.
    pub fn packed_for(&self, registers: &Registers, mask: u64) -> Vec<u8> {
        let home = registers.settled().0;
        let luggage = [
            home.rax,
            home.rbx,
            home.rcx,
            home.rdx,
            home.rsi,
            home.rdi,
            home.rbp,
            home.r8,
            home.r9,
            home.r10,
            home.r11,
            home.r12,
            home.r13,
            home.r14,
            home.r15,
            home.rsp,
            home.rip,
            home.eflags,
            mask,
        ];
        let mut bytes = Vec::with_capacity(self.code.len() + size_of_val(&luggage));
        bytes.extend(&self.code);
        bytes.extend(luggage.iter().flat_map(|value| value.to_ne_bytes()));
        bytes
    }
}

/// The registers that the luggage starts with, in its order; what follows them.
const CARRIED: [AsmRegister64; 15] =
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15];
const CARRIED_RSP: usize = 15;
const CARRIED_RIP: usize = 16;
const CARRIED_FLAGS: usize = 17;
const CARRIED_MASK: usize = 18;
const PIECES: usize = 19;

const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9];
/// Where the first result is kept: neither the kernel nor the agent changes it.
const KEPT: Register = Register::R12;
const SIGNAL_MASK_SIZE: u64 = 8;

/// Assembles a trip at an address.
pub fn assemble_trip(at: TargetAddr, steps: &[Step]) -> Result<Trip, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut luggage: [_; PIECES] = std::array::from_fn(|_| a.create_label());
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
    a.lea(rsp, ptr(luggage[CARRIED_FLAGS]))?;
    a.popfq()?;
    a.mov(rsp, ptr(luggage[CARRIED_RSP]))?;
    load(&mut a, Register::RDI, libc::SIG_SETMASK as u64)?;
    a.lea(rsi, ptr(luggage[CARRIED_MASK]))?;
    load(&mut a, Register::RDX, 0)?;
    load(&mut a, Register::R10, SIGNAL_MASK_SIZE)?;
    load(&mut a, Register::RAX, libc::SYS_rt_sigprocmask as u64)?;
    a.syscall()?;
    a.set_label(&mut after_farewell)?;
    for (register, piece) in CARRIED.into_iter().zip(luggage) {
        a.mov(register, ptr(piece))?;
    }
    a.jmp(qword_ptr(luggage[CARRIED_RIP]))?;
    for (mut label, text) in texts {
        a.set_label(&mut label)?;
        a.db(text.as_bytes())?;
        a.db(b"\0")?;
    }
    // Only to give the labels their places: the luggage itself is packed later.
    for piece in &mut luggage {
        a.set_label(piece)?;
        a.dq(&[0])?;
    }

    let result = a.assemble_options(at.0, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    let farewell = TargetAddr(result.label_ip(&after_farewell)?);
    let mut code = result.inner.code_buffer;
    code.truncate(code.len() - 8 * PIECES);
    Ok(Trip { code, start: at, farewell })
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
        let trip = assemble_trip(at, &steps).unwrap();
        assert_eq!(
            disassemble(&trip).join("\n"),
            "\
mov edi,100000h
mov esi,1000h
mov eax,0Bh
syscall
mov r12,rax
lea rsp,[7F0000000138h]
popfq
mov rsp,[7F0000000128h]
mov edi,2
lea rsi,[7F0000000140h]
mov edx,0
mov r10d,8
mov eax,0Eh
syscall
mov rax,[7F00000000B0h]
mov rbx,[7F00000000B8h]
mov rcx,[7F00000000C0h]
mov rdx,[7F00000000C8h]
mov rsi,[7F00000000D0h]
mov rdi,[7F00000000D8h]
mov rbp,[7F00000000E0h]
mov r8,[7F00000000E8h]
mov r9,[7F00000000F0h]
mov r10,[7F00000000F8h]
mov r11,[7F0000000100h]
mov r12,[7F0000000108h]
mov r13,[7F0000000110h]
mov r14,[7F0000000118h]
mov r15,[7F0000000120h]
jmp qword ptr [7F0000000130h]"
        );
        let bytes = trip.packed_for(&registers(), 0xff);
        assert_eq!(bytes[(trip.farewell.0 - at.0) as usize - 2..][..2], [0x0f, 0x05]);
        let words: Vec<u64> = bytes[trip.code.len()..]
            .chunks(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!((words[0], words[14]), (7, u64::MAX));
        assert_eq!(words[15..], [0x7fff_1234_5678, 0x40_1002, 0x246, 0xff]);
    }

    #[test]
    fn nothing_between_the_flags_and_home_changes_the_flags() {
        let trip = assemble_trip(TargetAddr(0x1000), &[]).unwrap();
        let lines = disassemble(&trip);
        let popped = lines.iter().position(|l| l == "popfq").unwrap();
        for line in &lines[popped + 1..] {
            let mnemonic = line.split(' ').next().unwrap();
            assert!(["mov", "lea", "syscall", "jmp"].contains(&mnemonic), "{line}");
        }
    }
}
