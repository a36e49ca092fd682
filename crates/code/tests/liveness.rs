//! Random functions, run as they are and with everything changed that is said to be free: the same must come out.

mod machine;

use std::fmt::Write as _;

use machine::instructions::*;
use weft_code::iced_x86::{
    Decoder, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};
use weft_code::{
    Callee, Convention, FlagSet, Function, Liveness, Program, Register, RegisterSet, Relocator,
    graph, live_at_entry,
};

const FUNCTIONS: usize = 4000;
/// Where the function that is called is, behind the code that calls it.
const HELPER: u64 = 0x800;
/// Where functions return to.
const BACK: u64 = 0xf00;

struct Code<'a> {
    bytes: &'a [u8],
    address: u64,
}

impl Program for Code<'_> {
    fn bytes(&self, address: u64) -> &[u8] {
        self.bytes.get(address.wrapping_sub(self.address) as usize..).unwrap_or_default()
    }

    fn is_code(&self, address: u64) -> bool {
        !self.bytes(address).is_empty()
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        (address == self.address + HELPER).then_some(Callee {
            returns: true,
            convention: Convention::SystemV,
            external: true,
        })
    }
}

/// A function that uses all its arguments, and leaves nothing in the registers that it may change but what it made of
/// them: lea rax, [rdi+rsi]; add rax, each other argument; mov each of the others, rax; add rax, rax; ret
fn helper() -> Vec<u8> {
    let mut code = vec![0x48, 0x8d, 0x04, 0x37];
    for register in [2_u8, 1, 8, 9, 10] {
        code.extend([0x48 | register >> 3 << 2, 0x01, 0xc0 | (register & 7) << 3]);
    }
    for register in [1_u8, 2, 6, 7, 8, 9, 10, 11] {
        code.extend([0x48 | register >> 3, 0x89, 0xc0 | register & 7]);
    }
    code.extend([0x48, 0x01, 0xc0, 0xc3]);
    code
}

/// Instructions that do something with general registers or flags and go on, without their own idea of the stack.
fn pool(layout: Layout, random: &mut Random) -> Vec<Vec<u8>> {
    let mut factory = InstructionInfoFactory::new();
    samples(layout.code, random)
        .into_iter()
        .filter_map(|(instruction, mut bytes)| {
            aim(&instruction, &mut bytes, layout, random);
            let bytes = &bytes[..instruction.len()];
            let memory = (0..instruction.op_count())
                .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
            let info = factory.info(&instruction);
            let registers = info.used_registers();
            let touches_stack = registers
                .iter()
                .any(|used| used.register().full_register() == weft_code::iced_x86::Register::RSP);
            let matters = registers.iter().any(|used| used.register().is_gpr())
                || instruction.rflags_read() | instruction.rflags_modified() != 0;
            let plain = instruction.flow_control() == FlowControl::Next
                && !instruction.is_privileged()
                && info.used_memory().iter().all(|used| {
                    used.access() == OpAccess::NoMemAccess
                        || memory && instruction.is_ip_rel_memory_operand()
                });
            // These store the address of the last x87 instruction.
            let tells = instruction.is_save_restore_instruction()
                || matches!(instruction.mnemonic(), Mnemonic::Fnsave | Mnemonic::Fnstenv);
            (plain && matters && !touches_stack && !tells).then(|| bytes.to_vec())
        })
        .collect()
}

/// A function of some instructions from the pool, with branches forward, calls, and a return.
fn function(layout: Layout, pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut code: Vec<u8> = Vec::new();
    let mut branches: Vec<(usize, u64)> = Vec::new();
    let count = 4 + random.below(10);
    for index in 0..count {
        for (place, _) in branches.extract_if(.., |branch| branch.1 == index) {
            let distance = (code.len() - place - 4) as i32;
            code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
        }
        match random.below(8) {
            0 => {
                code.extend([0x0f, 0x80 | random.below(16) as u8, 0, 0, 0, 0]);
                branches.push((code.len() - 4, index + 1 + random.below(count - index)));
            }
            1 => {
                let distance = HELPER as i32 - (code.len() as i32 + 5);
                code.push(0xe8);
                code.extend(distance.to_le_bytes());
            }
            _ => {
                let chosen = &pool[random.below(pool.len() as u64) as usize];
                let mut decoder = Decoder::with_ip(64, chosen, layout.code, 0);
                let instruction = decoder.decode();
                let mut bytes = chosen.clone();
                if instruction.is_ip_rel_memory_operand() {
                    // The same operand from where the instruction is now.
                    let place = decoder.get_constant_offsets(&instruction).displacement_offset();
                    let distance = instruction
                        .memory_displacement64()
                        .wrapping_sub(layout.code + (code.len() + bytes.len()) as u64);
                    bytes[place..place + 4].copy_from_slice(&(distance as u32).to_le_bytes());
                }
                code.extend(bytes);
            }
        }
    }
    for (place, _) in branches {
        let distance = (code.len() - place - 4) as i32;
        code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
    }
    code.push(0xc3);
    code
}

/// Code that changes some registers and flags and nothing else.
fn scramble(registers: RegisterSet, flags: FlagSet, random: &mut Random) -> Vec<u8> {
    // pushfq; xor dword [rsp], flags; popfq
    let mut code = vec![0x9c, 0x81, 0x34, 0x24];
    code.extend(u32::from(flags.0).to_le_bytes());
    code.push(0x9d);
    for register in registers.iter() {
        code.extend([0x48 | register.0 >> 3, 0xb8 | register.0 & 7]);
        code.extend(random.next().to_le_bytes());
    }
    code
}

/// What must have its value when a function returns.
fn promised(convention: Convention) -> RegisterSet {
    match convention {
        Convention::SystemV => RegisterSet::of(&[
            Register::RAX,
            Register::RDX,
            Register::RBX,
            Register::RSP,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ]),
        Convention::Go => RegisterSet::ALL.without(Register::R12).without(Register::R13),
        Convention::Unknown => RegisterSet::ALL,
    }
}

fn try_functions(layout: Layout, pool: &[Vec<u8>], convention: Convention) -> String {
    in_child(|output| {
        machine::prepare();
        let data = machine::map_data(layout.data, DATA);
        let code = machine::map_code(layout.code, PAGE);
        let near = machine::map_code(layout.near, PAGE);
        let mut random = Random(0x1357_9bdf_0246_8ace);
        let (mut runs, mut dead, mut dead_flags, mut points) = (0, 0, 0, 0);
        let mut report = String::new();
        for _ in 0..FUNCTIONS {
            let body = function(layout, pool, &mut random);
            let contents = contents(layout, &mut random);
            let start = {
                let mut start = start_state(layout, &mut random, 0);
                start.rip = layout.code;
                start
            };
            let stack = (start.registers[4] - layout.data) as usize;
            code.fill(0xcc);
            code[..body.len()].copy_from_slice(&body);
            code[HELPER as usize..][..helper().len()].copy_from_slice(&helper());
            let mut run = |rip: u64| {
                data.copy_from_slice(&contents);
                data[stack..stack + 8].copy_from_slice(&(layout.code + BACK).to_le_bytes());
                let mut start = start.clone();
                start.rip = rip;
                let end = machine::run(&start);
                (end, data.to_vec())
            };
            let (plain, plain_data) = run(layout.code);
            if plain.signal != libc::SIGTRAP || plain.rip != layout.code + BACK + 1 {
                // It faulted on the way: what counts is what comes out in the end.
                continue;
            }
            let program = Code { bytes: code, address: layout.code };
            let function = Function::new(layout.code..layout.code + body.len() as u64, convention);
            let graph = graph(&program, &function);
            assert!(graph.is_complete(), "{body:02x?} {:?}", graph.unknown);
            let liveness = Liveness::of(&graph, convention);
            let last = layout.code + body.len() as u64 - 1;
            let needed = liveness.before(last);
            assert_eq!(needed.registers & promised(convention), promised(convention));
            let boundaries: Vec<u64> = graph.instruction_boundaries().collect();
            // Last, the entry again with what a short look at it says.
            let mut glance =
                live_at_entry((&code[..body.len()], layout.code), layout.code, convention, 24);
            // Random code may read flags that no caller of a real function passes.
            glance.flags = glance.flags | liveness.before(layout.code).flags;
            let looks = boundaries.iter().map(|&point| (point, liveness.before(point)));
            for (point, live) in looks.chain([(layout.code, glance)]) {
                let free = !live.registers;
                points += 1;
                dead += free.len();
                dead_flags += usize::from(!live.flags.intersects(FlagSet::ARITHMETIC));
                if free.is_empty() && (!live.flags).is_empty() {
                    continue;
                }
                let inserted = scramble(free, !live.flags, &mut random);
                let mut relocator = Relocator::new();
                for &address in &boundaries {
                    if address == point {
                        relocator.insert(|_| inserted.clone());
                    }
                    relocator.copy(address, &code[(address - layout.code) as usize..]).unwrap();
                }
                let moved = relocator.finish(layout.near, &|_, _| None).unwrap();
                near.fill(0xcc);
                near[..moved.bytes.len()].copy_from_slice(&moved.bytes);
                let (other, other_data) = run(layout.near);
                runs += 1;
                let registers = needed.registers.iter().all(|register| {
                    let index = usize::from(register.0);
                    plain.registers[index] == other.registers[index]
                });
                let flags = u64::from(needed.flags.0);
                let same = plain.rip == other.rip
                    && registers
                    && (plain.flags ^ other.flags) & flags == 0
                    && plain.vector_difference(&other).is_none()
                    && plain_data[..stack - 64] == other_data[..stack - 64]
                    && plain_data[stack..] == other_data[stack..];
                if !same {
                    let _ = writeln!(
                        report,
                        "DIFFERENT {body:02x?} at {:#x}, free {free:?} {:?}",
                        point - layout.code,
                        !live.flags
                    );
                }
            }
        }
        let _ = writeln!(
            output,
            "{runs} runs at {points} points with on average {:.1} registers free, flags free at {:.0} %\n{report}",
            f64::from(dead as u32) / f64::from(points),
            f64::from(dead_flags as u32) * 100.0 / f64::from(points)
        );
    })
}

#[test]
fn what_is_free_does_not_matter() {
    let pool = pool(HIGH, &mut Random(0x1357_9bdf_0246_8ace));
    for convention in [Convention::SystemV, Convention::Unknown, Convention::Go] {
        let text = try_functions(HIGH, &pool, convention);
        println!("{convention:?}: {text}");
        assert!(text.contains("runs") && !text.contains("DIFFERENT"), "{text}");
    }
}
