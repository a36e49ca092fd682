//! Small functions; `tests/liveness.rs` runs random ones.

use alloc::vec::Vec;

use super::*;
use crate::{Callee, Function, Program, before_faults, graph};

const BASE: u64 = 0x1000;

struct Sample(&'static [u8], Option<Callee>);

impl Program for Sample {
    fn bytes(&self, address: u64) -> &[u8] {
        self.0.get(address.wrapping_sub(BASE) as usize..).unwrap_or_default()
    }

    fn is_code(&self, address: u64) -> bool {
        !self.bytes(address).is_empty()
    }

    fn callee(&self, _: u64) -> Option<Callee> {
        self.1
    }

    fn landing_pads(&self, _: &Function) -> Vec<u64> {
        Vec::new()
    }
}

fn live(code: &'static [u8], convention: Convention, offset: u64) -> Live {
    let callee = Callee { returns: true, convention, external: true };
    let sample = Sample(code, Some(callee));
    let function = Function::new(BASE..BASE + code.len() as u64, convention);
    let graph = graph(&sample, &function);
    Liveness::of(&graph, convention).before(BASE + offset)
}

#[test]
fn parts_do_not_kill_and_halves_do() {
    // mov r8b, 1; mov eax, 2; mov dh, 1; ret
    let code = &[0x41, 0xb0, 1, 0xb8, 2, 0, 0, 0, 0xb6, 1, 0xc3];
    let live = live(code, Convention::SystemV, 0);
    assert!(!live.registers.contains(Register::RAX));
    assert!(live.registers.contains(Register::RDX));
    assert!(!live.registers.contains(Register::R8), "not needed after");
    assert!(live.registers.contains(Register::RSI), "never touched: a caller may count on it");
    assert_eq!(live.flags, FlagSet::DF);
}

#[test]
fn calls_follow_the_convention() {
    // call +0; xor eax, eax; ret
    let code = &[0xe8, 0x10, 0, 0, 0, 0x31, 0xc0, 0xc3];
    let before = live(code, Convention::SystemV, 0);
    assert!(before.registers.contains(Register::RDI));
    assert!(!before.registers.contains(Register::R11));
    let after = live(code, Convention::SystemV, 5);
    assert!(!after.registers.contains(Register::RAX));
    assert!(after.registers.contains(Register::RBX));
    assert!(!after.registers.contains(Register::RDI), "the callee may have changed it");
    assert_eq!(live(code, Convention::Unknown, 0), Live::ALL);
    assert!(live(code, Convention::Go, 0).flags.intersects(FlagSet::CF));
}

#[test]
fn what_is_put_back_is_needed() {
    // push rsi; mov esi, 1; mov edi, 2; pop rsi; ret
    let code = &[0x56, 0xbe, 1, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0x5e, 0xc3];
    let live = live(code, Convention::SystemV, 12);
    assert!(live.registers.contains(Register::RSI));
    assert!(!live.registers.contains(Register::RDI));
}

#[test]
fn a_shift_by_a_register_keeps_flags_alive() {
    // shl eax, cl; jc +0; ret
    let live = live(&[0xd3, 0xe0, 0x72, 0, 0xc3], Convention::SystemV, 0);
    assert!(live.flags.intersects(FlagSet::CF));
}

#[test]
fn a_glance_at_the_entry() {
    // mov eax, edi; test esi, esi; je +5; mov ecx, eax; ret; xor ecx, ecx; xor r11d, r11d; ret
    let code = &[0x89, 0xf8, 0x85, 0xf6, 0x74, 3, 0x89, 0xc1, 0xc3, 0x31, 0xc9, 0xc3];
    let live = live_at_entry((code, BASE), BASE, Convention::SystemV, 24);
    assert!(!live.registers.contains(Register::RAX));
    assert!(!live.registers.contains(Register::RCX));
    assert!(live.registers.contains(Register::RDI));
    assert_eq!(live.flags, FlagSet::DF);
    let unknown = live_at_entry((code, BASE), BASE, Convention::Unknown, 24);
    assert_eq!(unknown.flags, FlagSet::DF, "written before anything reads them");
    assert_eq!(live_at_entry((code, BASE), BASE, Convention::Unknown, 0), Live::ALL);
}

#[test]
fn what_a_fault_shows_is_needed() {
    // mov ebx, 1; lea ecx, [rax+1]; add rax, [rdi]; mov edx, 2
    let code = &[0xbb, 1, 0, 0, 0, 0x8d, 0x48, 1, 0x48, 0x03, 0x07, 0xba, 2, 0, 0, 0];
    assert_eq!(before_faults((code, BASE), 16), &code[..8]);
    assert_eq!(before_faults((code, BASE), 1), &code[..5]);
    // idiv ecx; addsd xmm0, xmm1; push rax; fsqrt; ud2
    let faulting: [&[u8]; 5] =
        [&[0xf7, 0xf9], &[0xf2, 0x0f, 0x58, 0xc1], &[0x50], &[0xd9, 0xfa], &[0x0f, 0x0b]];
    for code in faulting {
        assert!(before_faults((code, BASE), 1).is_empty(), "{code:x?}");
    }
}
