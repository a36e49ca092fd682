//! Every instruction that the decoder knows and this processor can run, in place and relocated, near and far: the same
//! registers, flags, vectors and memory must come out. One process of its own with one thread runs them all.

mod machine;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use machine::State;
use weft_code::iced_x86::{Code, Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register};
use weft_code::{Reason, relocate};

/// Where things are: everything within reach of the code but for the far copy.
#[derive(Clone, Copy)]
struct Layout {
    data: u64,
    code: u64,
    near: u64,
    far: u64,
}

/// Below 4 GiB, where a return address can be pushed at once and 32-bit addresses work.
const LOW: Layout =
    Layout { data: 0x2000_0000, code: 0x2100_0000, near: 0x3000_0000, far: 0x6000_0000_0000 };
/// Where addresses need more than 32 bits.
const HIGH: Layout = Layout {
    data: 0x3000_2000_0000,
    code: 0x3000_2100_0000,
    near: 0x3000_3000_0000,
    far: 0x5000_0000_0000,
};

const PAGE: usize = 4096;
/// The memory that instructions work on, the upper half as a stack.
const DATA: usize = 8 * PAGE;
/// What a far copy may use of the stack, below the red zone.
const SCRATCH: std::ops::Range<i64> = -512..-128;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}

struct Memory {
    layout: Layout,
    data: &'static mut [u8],
    code: &'static mut [u8],
    near: &'static mut [u8],
    far: &'static mut [u8],
}

/// A kind of instruction: its code, whether it has a memory operand, relative to its address or not, and whether it
/// names the stack pointer.
type Form = (Code, u8, bool);

fn form(instruction: &Instruction) -> Form {
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
fn is_excluded(instruction: &Instruction) -> bool {
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
fn samples(address: u64, random: &mut Random) -> Vec<(Instruction, [u8; 15])> {
    let mut seen: HashMap<Form, usize> = HashMap::new();
    let mut found = Vec::new();
    let mut attempt = |head: &[u8], random: &mut Random| {
        // Operands: registers, memory through registers, memory relative to the instruction; each with each extension.
        for reg in 0..8_u8 {
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
fn aim(instruction: &Instruction, bytes: &mut [u8; 15], layout: Layout, random: &mut Random) {
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
fn start_state(layout: Layout, random: &mut Random, caution: u64) -> State {
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
    state.fill_vectors(|index| match small {
        true => {
            if index % 8 == 0 {
                random.next() as u8 & 63
            } else {
                0
            }
        }
        false => random.next() as u8,
    });
    state
}

/// Memory with all kinds of numbers in it, every other one the address of a trap.
fn contents(layout: Layout, random: &mut Random) -> Vec<u8> {
    (0..DATA / 8)
        .flat_map(|_| match random.below(2) {
            0 => random.next().to_le_bytes(),
            _ => (layout.code + 0x300 + random.below(128)).to_le_bytes(),
        })
        .collect()
}

struct Tally {
    run: BTreeMap<&'static str, usize>,
    refused: BTreeMap<String, Vec<String>>,
    differences: Vec<String>,
}

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.run.entry(what).or_default() += 1;
    }
}

impl Memory {
    fn new(layout: Layout) -> Self {
        Self {
            layout,
            data: machine::map(layout.data, DATA),
            code: machine::map(layout.code, PAGE),
            near: machine::map(layout.near, PAGE),
            far: machine::map(layout.far, PAGE),
        }
    }

    /// Runs a few instructions from a state, and says what data they left.
    fn run(&mut self, start: &State, entry: u64, data: &[u8]) -> (State, Vec<u8>) {
        self.data.copy_from_slice(data);
        let mut start = start.clone();
        start.rip = entry;
        let end = machine::run(&start);
        (end, self.data.to_vec())
    }

    /// Runs code in place and as a copy, and says what differs.
    fn compare(
        &mut self,
        bytes: &[u8],
        start: &State,
        data: &[u8],
        far: bool,
    ) -> Result<i32, String> {
        let layout = self.layout;
        let to = if far { layout.far } else { layout.near };
        let copy = relocate(bytes, layout.code, to, &|_, _| None)
            .map_err(|refusal| format!("{:?}", refusal.reason))?;
        self.code.fill(0xcc);
        self.code[..bytes.len()].copy_from_slice(bytes);
        let target = if far { &mut self.far } else { &mut self.near };
        target.fill(0xcc);
        target[..copy.bytes.len()].copy_from_slice(&copy.bytes);
        let (one, one_data) = self.run(start, layout.code, data);
        let (other, other_data) = self.run(start, to, data);
        let differs = |what: &str| Err(format!("differs: {what}"));
        let in_copy = (to..to + copy.bytes.len() as u64).contains(&other.rip);
        if one.signal != other.signal {
            return differs(&format!(
                "signal {} at {:#x}, {} at {:#x}",
                one.signal, one.rip, other.signal, other.rip
            ));
        }
        if in_copy {
            if !(layout.code..=layout.code + bytes.len() as u64).contains(&one.rip) {
                return differs(&format!("ends at {:#x} and {:#x}", one.rip, other.rip));
            }
            // A copy in several instructions may fault between them.
            let first = |bytes: &[u8]| Decoder::with_ip(64, bytes, 0, 0).decode().code();
            if first(bytes) != first(&copy.bytes) {
                return Ok(one.signal);
            }
        } else if one.rip != other.rip {
            return differs(&format!("ends at {:#x} and {:#x}", one.rip, other.rip));
        }
        if one.signal == libc::SIGVTALRM {
            return Ok(one.signal);
        }
        if one.registers != other.registers {
            return differs(&format!("registers {:x?} {:x?}", one.registers, other.registers));
        }
        const TRAP_FLAGS: u64 = 0x1_0100;
        if (one.flags ^ other.flags) & !TRAP_FLAGS != 0 {
            return differs(&format!("flags {:x} {:x}", one.flags, other.flags));
        }
        if let Some(index) = one.vector_difference(&other) {
            return differs(&format!("vectors at {index}"));
        }
        let stack = (start.registers[4] - layout.data) as i64;
        let ignored = (stack + SCRATCH.start) as usize..(stack + SCRATCH.end) as usize;
        let place = (0..DATA)
            .find(|index| !ignored.contains(index) && one_data[*index] != other_data[*index]);
        if let Some(place) = place {
            return differs(&format!("memory at {place:#x}"));
        }
        Ok(one.signal)
    }
}

/// Forks, runs something in the child and returns what it wrote; panics if it dies.
fn in_child(work: impl FnOnce(&mut dyn Write)) -> String {
    let mut ends = [0; 2];
    // SAFETY: the child does only its work and leaves without unwinding.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::close(ends[0]);
            let mut output = std::fs::File::from_raw_fd(ends[1]);
            work(&mut output);
            libc::_exit(0);
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

fn try_all(layout: Layout, seed: u64, output: &mut dyn Write) {
    machine::prepare();
    let mut memory = Memory::new(layout);
    let mut random = Random(seed);
    let mut tally =
        Tally { run: BTreeMap::new(), refused: BTreeMap::new(), differences: Vec::new() };
    let data = contents(layout, &mut random);
    let samples = samples(layout.code, &mut random);
    let mut forms: BTreeMap<(u32, u8, bool), bool> = BTreeMap::new();
    for (instruction, sample) in samples {
        for far in [false, true] {
            // Until it has run to its end once, with ever more cautious operands.
            for attempt in 0..6 {
                let mut bytes = sample;
                aim(&instruction, &mut bytes, layout, &mut random);
                let bytes = &bytes[..instruction.len()];
                let again = Decoder::with_ip(64, bytes, layout.code, 0).decode();
                let (code, kind, stack) = form(&again);
                let start = start_state(layout, &mut random, attempt);
                let ran = forms.entry((code as u32, kind, stack)).or_default();
                match memory.compare(bytes, &start, &data, far) {
                    Ok(signal) => {
                        let leaves = matches!(
                            again.flow_control(),
                            FlowControl::Return
                                | FlowControl::IndirectBranch
                                | FlowControl::IndirectCall
                        );
                        *ran |= signal == libc::SIGTRAP || leaves;
                        tally.count(match signal {
                            libc::SIGTRAP => "ran to the end",
                            libc::SIGILL => "not on this processor",
                            libc::SIGVTALRM => "endless",
                            _ => "faulted alike",
                        });
                        if signal == libc::SIGTRAP || signal == libc::SIGILL || leaves {
                            break;
                        }
                    }
                    Err(why) => {
                        let place = if far { "far" } else { "near" };
                        let name = format!("{code:?} {bytes:02x?} {place}");
                        if why.starts_with("differs") {
                            tally.differences.push(format!("{name}: {why}"));
                        } else {
                            tally.refused.entry(why).or_default().push(name);
                        }
                        break;
                    }
                }
            }
        }
    }
    let ran = forms.values().filter(|ran| **ran).count();
    let _ = writeln!(output, "{} forms, {ran} of them ran; runs: {:?}", forms.len(), tally.run);
    for (why, names) in &tally.refused {
        let _ = writeln!(output, "refused, {why}: {}: {}", names.len(), names.join(", "));
    }
    for difference in tally.differences.iter().take(40) {
        let _ = writeln!(output, "DIFFERENT {difference}");
    }
    let _ = writeln!(output, "{} differences", tally.differences.len());
}

#[test]
fn every_form_low() {
    let text = in_child(|output| try_all(LOW, 0x1234_5678_9abc_def1, output));
    println!("{text}");
    assert!(text.contains("\n0 differences"), "{text}");
}

#[test]
fn every_form_high() {
    let text = in_child(|output| try_all(HIGH, 0xfeed_beef_1234_5671, output));
    println!("{text}");
    assert!(text.contains("\n0 differences"), "{text}");
}

/// Transfers of control that need more than a new distance.
fn odd_transfers(layout: Layout) -> Vec<Vec<u8>> {
    let mut found = vec![
        vec![0xff, 0xd4],                                  // call rsp
        vec![0xff, 0xe4],                                  // jmp rsp
        vec![0xff, 0x14, 0x24],                            // call [rsp]
        vec![0xff, 0x54, 0x24, 0x10],                      // call [rsp+0x10]
        vec![0xff, 0x54, 0x24, 0xf8],                      // call [rsp-8]
        vec![0xff, 0x54, 0x24, 0xf4],                      // call [rsp-12]
        vec![0xff, 0x54, 0x24, 0xf0],                      // call [rsp-16]
        vec![0xff, 0x54, 0xcc, 0x10],                      // call [rsp+rcx*8+0x10]
        vec![0x67, 0xff, 0x54, 0x24, 0x08],                // call [esp+8]
        vec![0xff, 0xa4, 0x24, 0x10, 0, 0, 0],             // jmp [rsp+0x10]
        vec![0xe8, 0, 0, 0, 0, 0x58, 0x48, 0xff, 0xc0],    // call to the next; pop rax; inc rax
        vec![0xeb, 1, 0xf0, 0xff, 0x03],                   // jmp over a prefix; lock inc [rbx]
        vec![0xe3, 2, 0xff, 0xc0, 0xe2, 0xfc],             // jrcxz over; inc eax; loop back
        vec![0x67, 0xe3, 2, 0xff, 0xc0, 0x67, 0xe2, 0xfc], // the same with ecx
        vec![0xff, 0xc0, 0xe1, 0xfc],                      // inc eax; loope back
        vec![0xff, 0xc0, 0xe0, 0xfc],                      // inc eax; loopne back
        // mov edx, 5; again: call f; dec edx; jne again; jmp out; f: inc eax; ret; out:
        vec![0xba, 5, 0, 0, 0, 0xe8, 6, 0, 0, 0, 0xff, 0xca, 0x75, 0xf7, 0xeb, 3, 0xff, 0xc0, 0xc3],
        // mov eax, 39; syscall: the address that the kernel leaves in rcx is the original's.
        vec![0xb8, 39, 0, 0, 0, 0x0f, 0x05],
        // Transactions begin with where to go if they fail; this processor may not have them.
        vec![0xc7, 0xf8, 0x20, 0, 0, 0],
    ];
    // Pushing and popping relative to the instruction, also of 16 bits, and the stack pointer itself.
    for head in [
        &[0xff, 0x35][..],
        &[0x66, 0xff, 0x35],
        &[0x8f, 0x05],
        &[0x66, 0x8f, 0x05],
        &[0x48, 0x8b, 0x25],
        &[0x48, 0x89, 0x25],
        &[0x48, 0x8d, 0x25],
        &[0x8b, 0x25],
        &[0x48, 0x87, 0x25],
        &[0x48, 0x03, 0x25],
        &[0x48, 0x3b, 0x25],
        &[0x40, 0x88, 0x25],
        &[0x66, 0x8b, 0x25],
        &[0xff, 0x15],
        &[0xff, 0x25],
    ] {
        let mut code = head.to_vec();
        let place = layout.data + PAGE as u64 + 64;
        let distance = place.wrapping_sub(layout.code + code.len() as u64 + 4) as u32;
        code.extend(distance.to_le_bytes());
        found.push(code);
    }
    found
}

#[test]
fn odd_ones() {
    for layout in [LOW, HIGH] {
        let text = in_child(|output| {
            machine::prepare();
            let mut memory = Memory::new(layout);
            let mut random = Random(0xabcd_ef01_2345_6789);
            for code in odd_transfers(layout) {
                let mut ends = BTreeMap::new();
                for round in 0..64 {
                    let data = contents(layout, &mut random);
                    let start = start_state(layout, &mut random, 4);
                    match memory.compare(&code, &start, &data, round % 2 == 1) {
                        Ok(signal) => *ends.entry(signal).or_insert(0) += 1,
                        Err(why) => {
                            let _ = writeln!(output, "BAD {code:02x?}: {why}");
                        }
                    }
                }
                let _ = writeln!(output, "{code:02x?} {ends:?}");
            }
        });
        println!("{text}");
        assert!(!text.contains("BAD"), "{text}");
    }
}

/// Whether refusals are those that are meant to be.
#[test]
fn nothing_near_is_refused_but_odd_transfers() {
    let mut random = Random(0x77);
    for (instruction, bytes) in samples(HIGH.code, &mut random) {
        let bytes = &bytes[..instruction.len()];
        if let Err(refusal) = relocate(bytes, HIGH.code, HIGH.code + 0x10_0000, &|_, _| None) {
            assert_eq!(refusal.reason, Reason::OddTransfer, "{instruction:?}");
        }
    }
}
