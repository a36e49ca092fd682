//! Instructions of all kinds, and states to start them in.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use weft_code::iced_x86::{Code, Decoder, Instruction, Mnemonic, OpKind, Register};

use super::State;

/// Where things are: everything within reach of the code but for the far copy.
#[derive(Clone, Copy)]
pub struct Layout {
    pub data: u64,
    pub code: u64,
    pub near: u64,
    pub far: u64,
}

/// Below 4 GiB, where a return address can be pushed at once and 32-bit addresses work.
pub const LOW: Layout =
    Layout { data: 0x2000_0000, code: 0x2100_0000, near: 0x3000_0000, far: 0x6000_0000_0000 };
/// Where addresses need more than 32 bits.
pub const HIGH: Layout = Layout {
    data: 0x3000_2000_0000,
    code: 0x3000_2100_0000,
    near: 0x3000_3000_0000,
    far: 0x5000_0000_0000,
};

pub const PAGE: usize = 4096;
/// The memory that instructions work on, the upper half as a stack.
pub const DATA: usize = 8 * PAGE;
/// What a far copy may use of the stack, below the red zone.
pub const SCRATCH: std::ops::Range<i64> = -512..-128;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}

/// A kind of instruction: its code, whether it has a memory operand, relative to its address or not, and whether it
/// names the stack pointer.
pub type Form = (Code, u8, bool);

pub fn form(instruction: &Instruction) -> Form {
    let memory =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let kind = match (memory, instruction.is_ip_rel_memory_operand()) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) if instruction.memory_base() == Register::EIP => 3,
        (true, true) => 2,
    };
    let stack = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
    });
    (instruction.code(), kind, stack)
}

/// Instructions that would harm the process that tries them, or never do the same twice.
pub fn is_excluded(instruction: &Instruction) -> bool {
    let touches_segment = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_segment_register()
    });
    let writes_segment = touches_segment
        && (instruction.mnemonic() == Mnemonic::Pop
            || instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().is_segment_register()
                && instruction.mnemonic() == Mnemonic::Mov);
    // The process's own variables.
    let thread_memory = instruction.memory_segment() == Register::FS;
    writes_segment
        || thread_memory
        || matches!(
            instruction.mnemonic(),
            // To the kernel or the hypervisor.
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int | Mnemonic::Sysexit | Mnemonic::Sysret
            | Mnemonic::Vmcall | Mnemonic::Vmmcall | Mnemonic::Vmgexit
            // To other segments, or another mode.
            | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq | Mnemonic::Retf | Mnemonic::Lss
            | Mnemonic::Lfs | Mnemonic::Lgs | Mnemonic::Lds | Mnemonic::Les
            | Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Wrpkru | Mnemonic::Swapgs
            // Flags that trap later; state that the process needs.
            | Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq | Mnemonic::Xrstor | Mnemonic::Xrstor64
            | Mnemonic::Xrstors | Mnemonic::Xrstors64 | Mnemonic::Uiret
            // Different each time.
            | Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdrand | Mnemonic::Rdseed | Mnemonic::Rdpid
            | Mnemonic::Cpuid | Mnemonic::Rdpmc | Mnemonic::Umwait | Mnemonic::Tpause | Mnemonic::Umonitor
            | Mnemonic::Rdpru | Mnemonic::Lsl | Mnemonic::Smsw | Mnemonic::Sgdt | Mnemonic::Sidt
        )
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far_indirect()
}

/// All encodings: prefixes, maps, opcodes, and a choice of operands. Two of each form.
pub fn samples(address: u64, random: &mut Random) -> Vec<(Instruction, [u8; 15])> {
    let mut seen: HashMap<Form, usize> = HashMap::new();
    let mut found = Vec::new();
    let mut attempt = |head: &[u8], random: &mut Random| {
        // Vector instructions have few codes that the register field tells apart, or that name general registers.
        let opcode = head[head.len() - 1];
        let vector = matches!(head[0], 0xc4 | 0x62);
        let apart = matches!(opcode, 0x71..=0x73 | 0xae | 0xc6 | 0xc7 | 0xf0..);
        // Operands: registers, memory through registers, memory relative to the instruction; each with each extension.
        for reg in 0..if vector && !apart { 1 } else { 8_u8 } {
            for kind in 0..4 {
                let modrm = reg << 3
                    | match kind {
                        0 => 0xc0 | random.below(8) as u8,
                        1 => 0x05,
                        2 => 0x40 | [0, 1, 2, 3, 6, 7][random.below(6) as usize],
                        _ => 0x44,
                    };
                let mut bytes = [0; 15];
                bytes[..head.len()].copy_from_slice(head);
                bytes[head.len()] = modrm;
                for byte in &mut bytes[head.len() + 1..] {
                    *byte = random.next() as u8 & 0x3f;
                }
                let instruction = Decoder::with_ip(64, &bytes, address, 0).decode();
                if instruction.is_invalid() || is_excluded(&instruction) {
                    continue;
                }
                let count = seen.entry(form(&instruction)).or_default();
                if *count < 2 {
                    *count += 1;
                    found.push((instruction, bytes));
                }
            }
        }
    };
    for opcode in 0..=255_u8 {
        for prefix in [&[][..], &[0x66], &[0xf2], &[0xf3], &[0x67], &[0x66, 0xf2]] {
            for rex in [&[][..], &[0x48], &[0x41]] {
                for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                    let mut head = prefix.to_vec();
                    head.extend(rex);
                    head.extend(map);
                    head.push(opcode);
                    attempt(&head, random);
                }
            }
        }
        for map in [1, 2, 3, 5, 6, 7] {
            for rest in 0..16_u8 {
                // W, vector length and mandatory prefix; the second source is none or random.
                let (wide, long, prefix) = (rest >> 3, rest >> 2 & 1, rest & 3);
                for source in [0xf, random.below(16) as u8] {
                    attempt(
                        &[0xc4, 0xe0 | map, wide << 7 | source << 3 | long << 2 | prefix, opcode],
                        random,
                    );
                }
                for last in [0x08, 0x28, 0x48, 0x18, 0x58, 0xc9] {
                    if long == 1 {
                        break;
                    }
                    let source = [0xf, random.below(16) as u8][random.below(2) as usize];
                    let second = wide << 7 | source << 3 | 4 | prefix;
                    attempt(&[0x62, 0xf0 | map, second, last, opcode], random);
                }
            }
        }
    }
    found
}

/// Makes operands point to memory that is there, and branches to places that trap.
pub fn aim(instruction: &Instruction, bytes: &mut [u8; 15], layout: Layout, random: &mut Random) {
    let length = instruction.len();
    let mut decoder = Decoder::with_ip(64, bytes, layout.code, 0);
    let again = decoder.decode();
    let offsets = decoder.get_constant_offsets(&again);
    let place = layout.data + PAGE as u64 + random.below(16) * 64 + random.below(4) / 3 * 3;
    if instruction.is_ip_rel_memory_operand() {
        let distance = place.wrapping_sub(layout.code + length as u64) as u32;
        bytes[offsets.displacement_offset()..][..4].copy_from_slice(&distance.to_le_bytes());
    } else if offsets.displacement_size() == 8 {
        bytes[offsets.displacement_offset()..][..8].copy_from_slice(&place.to_le_bytes());
    }
    if matches!(instruction.op0_kind(), OpKind::NearBranch64) && instruction.op_count() > 0 {
        let size = offsets.immediate_size();
        let distance = (random.below(64) as i32 + 16).to_le_bytes();
        bytes[offsets.immediate_offset()..][..size].copy_from_slice(&distance[..size]);
    }
}

/// A state in which most registers are small or point to the data; all of them, if that is what it takes.
pub fn start_state(layout: Layout, random: &mut Random, caution: u64) -> State {
    let mut state = State::new();
    for register in &mut state.registers {
        *register = match random.below(4 + caution) {
            0 if caution > 3 => random.below(4),
            0 => random.below(200),
            1 => random.next(),
            _ => layout.data + PAGE as u64 + random.below(16) * 64,
        };
    }
    // Counts of repetition.
    state.registers[1] = random.below(40);
    state.registers[4] = layout.data + 6 * PAGE as u64;
    state.flags = 0x202 | random.next() & 0x8d5;
    let small = caution > 1 || random.below(2) == 0;
    state.fill_vectors(|| if small { random.next() & 63 } else { random.next() });
    state
}

/// Memory with all kinds of numbers in it, every other one the address of a trap.
pub fn contents(layout: Layout, random: &mut Random) -> Vec<u8> {
    (0..DATA / 8)
        .flat_map(|_| match random.below(2) {
            0 => random.next().to_le_bytes(),
            _ => (layout.code + 0x300 + random.below(128)).to_le_bytes(),
        })
        .collect()
}

/// Forks, runs something in the child and returns what it wrote; panics if it dies.
pub fn in_child(work: impl FnOnce(&mut dyn Write)) -> String {
    let mut ends = [0; 2];
    // SAFETY: the child does only its work and leaves without unwinding.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::close(ends[0]);
            let mut output = std::fs::File::from_raw_fd(ends[1]);
            let work = std::panic::AssertUnwindSafe(|| work(&mut output));
            libc::_exit(i32::from(std::panic::catch_unwind(work).is_err()));
        }
        libc::close(ends[1]);
        let mut text = String::new();
        std::fs::File::from_raw_fd(ends[0]).read_to_string(&mut text).unwrap();
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "the child died with {status:#x}; it said:\n{text}");
        text
    }
}
