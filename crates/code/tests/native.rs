//! Every instruction that the decoder knows and this processor can run, in place and relocated, near and far: the same
//! registers, flags, vectors and memory must come out. One process of its own with one thread runs them all.

mod machine;

use std::collections::BTreeMap;
use std::io::Write;

use machine::State;
use machine::instructions::*;
use weft_code::iced_x86::{Decoder, FlowControl};
use weft_code::{Reason, relocate};

struct Memory {
    layout: Layout,
    data: &'static mut [u8],
    code: &'static mut [u8],
    near: &'static mut [u8],
    far: &'static mut [u8],
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
            data: machine::map_data(layout.data, DATA),
            code: machine::map_code(layout.code, PAGE),
            near: machine::map_code(layout.near, PAGE),
            far: machine::map_code(layout.far, PAGE),
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
        let ignored = [(stack + SCRATCH.start) as usize, (stack + SCRATCH.end) as usize];
        if one_data[..ignored[0]] != other_data[..ignored[0]]
            || one_data[ignored[1]..] != other_data[ignored[1]..]
        {
            let place = one_data.iter().zip(&other_data).position(|(one, other)| one != other);
            return differs(&format!("memory at {place:x?}"));
        }
        Ok(one.signal)
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
