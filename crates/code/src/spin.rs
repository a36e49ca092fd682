//! Loops that only wait: for another thread to change memory that they read again and again.
//!
//! Such a loop computes nothing. No value of one round is used in the next, and nothing is stored but by the instructions
//! that try to take a lock. Or it says what it is, by `pause`.

use crate::LONGEST;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// How many instructions are looked at.
const FARTHEST: usize = 256;
/// How many instructions a loop has at most that waits.
const LARGEST: usize = 48;

/// Whether the instruction at an address is in a loop that only waits. `read` gives the bytes at an address, and how many
/// there are.
pub fn spins(at: u64, read: impl FnMut(u64) -> ([u8; LONGEST], usize)) -> bool {
    let Some(round) = shortest_loop(at, read) else { return false };
    if round.iter().any(|one| one.mnemonic() == Mnemonic::Pause) {
        return true;
    }
    let mut factory = InstructionInfoFactory::new();
    let uses: Vec<Uses> = round.iter().map(|one| Uses::of(one, &mut factory)).collect();
    uses.iter().any(|one| one.loads) && !uses.iter().any(|one| one.stores) && !is_any_carried(&uses)
}

/// The instructions of the shortest way from an address back to it that has no call.
fn shortest_loop(
    from: u64,
    mut read: impl FnMut(u64) -> ([u8; LONGEST], usize),
) -> Option<Vec<Instruction>> {
    // By address: the instruction, and from where it was reached first.
    let mut seen: BTreeMap<u64, (Instruction, u64)> = BTreeMap::new();
    let mut waiting = VecDeque::from([(from, from)]);
    while let Some((at, before)) = waiting.pop_front() {
        if seen.contains_key(&at) || seen.len() == FARTHEST {
            continue;
        }
        let (bytes, length) = read(at);
        let bytes = bytes.get(..length).unwrap_or(&bytes);
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            continue;
        }
        seen.insert(at, (instruction, before));
        let next = instruction.next_ip();
        let ways = match instruction.flow_control() {
            FlowControl::Next => [Some(next), None],
            FlowControl::UnconditionalBranch => [Some(instruction.near_branch_target()), None],
            FlowControl::ConditionalBranch => [Some(instruction.near_branch_target()), Some(next)],
            _ => [None, None],
        };
        for way in ways.into_iter().flatten() {
            if way == from {
                return back(&seen, at, from);
            }
            waiting.push_back((way, at));
        }
    }
    None
}

fn back(
    seen: &BTreeMap<u64, (Instruction, u64)>,
    last: u64,
    first: u64,
) -> Option<Vec<Instruction>> {
    let mut round = Vec::new();
    let mut at = last;
    loop {
        let &(instruction, before) = seen.get(&at)?;
        round.push(instruction);
        if at == first {
            round.reverse();
            return Some(round);
        }
        if round.len() == LARGEST {
            return None;
        }
        at = before;
    }
}

/// What an instruction uses.
struct Uses {
    reads: Vec<Register>,
    writes: Vec<Register>,
    loads: bool,
    /// Whether it changes memory otherwise than by trying to take a lock.
    stores: bool,
}

impl Uses {
    fn of(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(instruction);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for used in info.used_registers() {
            let register = used.register().full_register();
            if matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            ) {
                reads.push(register);
            }
            if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite) {
                writes.push(register);
            }
        }
        // `xor eax, eax` reads nothing.
        let is_zeroing = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        if is_zeroing {
            reads.clear();
        }
        let memory = info.used_memory().iter().map(iced_x86::UsedMemory::access);
        let (mut loads, mut stores) = (false, false);
        let is_try = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
        for access in memory {
            loads |=
                !matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess);
            stores |=
                !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
                    && !is_try;
        }
        // What counts by atomic additions makes progress.
        let counts = matches!(
            instruction.mnemonic(),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd
        );
        stores |= instruction.has_lock_prefix() && counts;
        Self { reads, writes, loads, stores }
    }
}

/// Whether a value of one round is used in the next, other than to be replaced: a counter, a pointer that moves on.
fn is_any_carried(round: &[Uses]) -> bool {
    let count = round.len();
    // Which instruction an instruction's value depends on: the last before it, in this round or the one before, that
    // writes what it reads. One that depends on itself, by way of others, goes on from round to round.
    let sources: Vec<Vec<usize>> = round
        .iter()
        .enumerate()
        .map(|(place, one)| {
            let source = |register: &Register| {
                (1..=count)
                    .map(|distance| (place + count - distance % count) % count)
                    .find(|&other| round[other].writes.contains(register))
            };
            one.reads.iter().filter_map(source).collect()
        })
        .collect();
    (0..count).any(|start| {
        let mut waiting = sources[start].clone();
        let mut seen = alloc::vec![false; count];
        while let Some(one) = waiting.pop() {
            if one == start {
                return true;
            }
            if !core::mem::replace(&mut seen[one], true) {
                waiting.extend(&sources[one]);
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::*;

    fn is_spin(build: impl Fn(&mut CodeAssembler), place: usize) -> bool {
        const BASE: u64 = 0x1000;
        let mut assembler = CodeAssembler::new(64).unwrap();
        build(&mut assembler);
        let code = assembler.assemble(BASE).unwrap();
        let mut decoder = Decoder::with_ip(64, &code, BASE, DecoderOptions::NONE);
        let at = decoder.iter().nth(place).unwrap().ip();
        spins(at, |at| {
            let mut bytes = [0; LONGEST];
            let rest = code.get((at - BASE) as usize..).unwrap_or_default();
            let length = rest.len().min(LONGEST);
            bytes[..length].copy_from_slice(&rest[..length]);
            (bytes, length)
        })
    }

    /// From each of their instructions.
    fn assert_all(expected: bool, count: usize, build: impl Fn(&mut CodeAssembler)) {
        for place in 0..count {
            assert_eq!(is_spin(&build, place), expected, "from instruction {place}");
        }
    }

    #[test]
    fn a_flag_that_is_read_again_and_again() {
        assert_all(true, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.mov(eax, dword_ptr(rdi)).unwrap();
            a.test(eax, eax).unwrap();
            a.je(top).unwrap();
            a.ret().unwrap();
        });
    }

    #[test]
    fn a_lock_that_is_tried() {
        assert_all(true, 4, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.mov(eax, 1).unwrap();
            a.xchg(dword_ptr(rdi), eax).unwrap();
            a.test(eax, eax).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
        assert_all(true, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.xor(eax, eax).unwrap();
            a.lock().cmpxchg(dword_ptr(rdi), ecx).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
    }

    #[test]
    fn a_loop_that_pauses_may_count() {
        assert_all(true, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.pause().unwrap();
            a.dec(ecx).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
    }

    #[test]
    fn loops_that_compute_do_not_spin() {
        // A sum, the end of a text, and a copy.
        assert_all(false, 4, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.add(rax, qword_ptr(rdi)).unwrap();
            a.add(rdi, 8).unwrap();
            a.cmp(rdi, rsi).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
        assert_all(false, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.inc(rdi).unwrap();
            a.cmp(byte_ptr(rdi), 0).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
        assert_all(false, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.mov(rax, qword_ptr(rdi)).unwrap();
            a.mov(rdi, qword_ptr(rax)).unwrap();
            a.test(rdi, rdi).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
        // A pure computation reads no memory that another could change.
        assert_all(false, 2, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.dec(rcx).unwrap();
            a.jne(top).unwrap();
            a.ret().unwrap();
        });
    }

    #[test]
    fn what_counts_or_stores_goes_on() {
        assert_all(false, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.lock().inc(qword_ptr(rdi)).unwrap();
            a.cmp(dword_ptr(rsi), 0).unwrap();
            a.je(top).unwrap();
            a.ret().unwrap();
        });
        assert_all(false, 3, |a| {
            let mut top = a.create_label();
            a.set_label(&mut top).unwrap();
            a.add(qword_ptr(rdi), 1).unwrap();
            a.cmp(dword_ptr(rsi), 0).unwrap();
            a.je(top).unwrap();
            a.ret().unwrap();
        });
    }

    #[test]
    fn code_without_a_loop_does_not_spin() {
        assert_all(false, 3, |a| {
            a.mov(eax, dword_ptr(rdi)).unwrap();
            a.test(eax, eax).unwrap();
            a.ret().unwrap();
        });
    }
}
