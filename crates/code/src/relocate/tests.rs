//! Bytes in, bytes out; what they do is tested by running them, in `tests/native.rs`.

use alloc::vec::Vec;

use iced_x86::{Decoder, DecoderOptions};

use super::*;

const FROM: u64 = 0x40_1000;
const NEAR: u64 = 0x50_0000;
const FAR: u64 = 0x7000_0000_0000;

fn unchanged(_: u64, _: u64) -> Option<Aim> {
    None
}

fn decode(bytes: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).iter().collect()
}

fn moved(bytes: &[u8], to: u64) -> Vec<Instruction> {
    decode(&relocate(bytes, FROM, to, &unchanged).unwrap().bytes, to)
}

#[test]
fn what_does_not_depend_on_its_address_is_copied_as_it_is() {
    // rep ret; endbr64
    for bytes in [&[0xf3, 0xc3][..], &[0xf3, 0x0f, 0x1e, 0xfa]] {
        let relocated = relocate(bytes, FROM, NEAR, &unchanged).unwrap();
        assert_eq!(&relocated.bytes[..bytes.len()], bytes);
        assert_eq!(relocated.falls_through, bytes.len() == 4);
    }
}

#[test]
fn operands_keep_their_address() {
    // cmp dword [rip + 0x10], 5
    let copy = moved(&[0x83, 0x3d, 0x10, 0, 0, 0, 5], NEAR);
    assert_eq!(copy[0].ip_rel_memory_address(), FROM + 7 + 0x10);
    assert_eq!(copy[1].near_branch64(), FROM + 7);
}

#[test]
fn branches_keep_their_target() {
    let copy = moved(&[0x74, 0x10], NEAR);
    assert_eq!((copy[0].near_branch64(), copy[0].len()), (FROM + 0x12, 6));
    // Of a branch to itself the copy goes to itself.
    let copy = moved(&[0xeb, 0xfe], NEAR);
    assert_eq!(copy[0].near_branch64(), NEAR);
    // loop over: taken, over the jump, to a jump to the target.
    let copy = moved(&[0xe2, 0x10], NEAR);
    assert_eq!(copy[0].near_branch64(), copy[2].ip());
    assert_eq!(copy[1].near_branch64(), NEAR + 10);
    assert_eq!(copy[3].near_branch64(), FROM + 0x12);
    // Far away there is a constant to jump through.
    let relocated = relocate(&[0xe9, 0, 0, 0, 0], FROM, FAR, &unchanged).unwrap();
    assert_eq!(relocated.bytes[..2], [0xff, 0x25]);
    assert_eq!(relocated.bytes[8..], (FROM + 5).to_le_bytes());
}

#[test]
fn calls_push_the_original_return_address() {
    let copy = moved(&[0xe8, 0, 1, 0, 0], NEAR);
    assert_eq!(copy[0].immediate(0), FROM + 5);
    assert_eq!(copy[1].near_branch64(), FROM + 0x105);
    // call [rsp + 0x10]
    let copy = moved(&[0xff, 0x54, 0x24, 0x10], NEAR);
    assert_eq!(copy[0].immediate(0), FROM + 4);
    assert_eq!(copy[1].memory_displacement64(), 0x18);
}

#[test]
fn inserted_code_is_run_as_asked() {
    // 401000: nop; 401001: jmp 401000; 401003: jmp 401001
    let code = [0x90, 0xeb, 0xfd, 0xeb, 0xfc];
    let mut relocator = Relocator::new();
    let mut seen = 0;
    relocator.insert_on_fall(|at| {
        seen = at;
        alloc::vec![0xcc; 3]
    });
    relocator.copy(FROM, &code).unwrap();
    relocator.insert(|_| alloc::vec![0xf4]);
    relocator.copy(FROM + 1, &code[1..]).unwrap();
    relocator.copy(FROM + 3, &code[3..]).unwrap();
    let stub = relocator.label();
    relocator.insert(|_| alloc::vec![0xf4]);
    relocator.jump(Aim::Before(FROM));
    let result = relocator.finish(NEAR, &unchanged).unwrap();
    assert!(!result.falls_through);
    assert_eq!(result.labels, [NEAR + 15]);
    let places: Vec<_> =
        result.map.iter().map(|each| (each.before, each.entered, each.copy)).collect();
    assert_eq!(
        places,
        [
            (NEAR, NEAR + 3, NEAR + 3),
            (NEAR + 4, NEAR + 4, NEAR + 5),
            (NEAR + 10, NEAR + 10, NEAR + 10),
        ]
    );
    let copy = decode(&result.bytes, NEAR);
    let targets: Vec<u64> =
        copy.iter().filter(|each| each.is_jmp_near()).map(Instruction::near_branch64).collect();
    assert_eq!(targets, [NEAR + 3, NEAR + 4, NEAR]);
    assert_eq!(seen, NEAR);

    // Each edge can be led somewhere of its own.
    let mut relocator = Relocator::new();
    relocator.copy(FROM, &[0x74, 0xfe]).unwrap();
    relocator.jump(Aim::Address(FROM + 2));
    assert_eq!(relocator.label(), Label(0));
    let to_label = |_, _| Some(Aim::Label(stub));
    let result = relocator.finish(NEAR, &to_label).unwrap();
    assert_eq!(decode(&result.bytes, NEAR)[0].near_branch64(), result.labels[0]);
}

#[test]
fn a_function_that_calls_itself_is_entered_anew() {
    // call to itself; jmp to itself
    let code = [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xeb, 0xf9];
    let mut relocator = Relocator::new();
    relocator.insert_on_fall(|_| alloc::vec![0x90]);
    relocator.copy(FROM, &code).unwrap();
    relocator.copy(FROM + 5, &code[5..]).unwrap();
    let result = relocator.finish(NEAR, &unchanged).unwrap();
    let copy = decode(&result.bytes, NEAR);
    assert_eq!(copy[2].near_branch64(), NEAR);
    assert_eq!(copy[3].near_branch64(), NEAR + 1);
}

#[test]
fn refusals_say_why() {
    let refusal = |bytes: &[u8], to| relocate(bytes, FROM, to, &unchanged).unwrap_err().reason;
    assert_eq!(refusal(&[0x06], NEAR), Reason::Undecodable);
    // call far [rax]
    assert_eq!(refusal(&[0xff, 0x18], NEAR), Reason::OddTransfer);
    // jmp far [rip]
    assert_eq!(refusal(&[0xff, 0x2d, 0, 0, 0, 0], FAR), Reason::OutOfReach);
    let mut relocator = Relocator::new();
    relocator.jump(Aim::Entered(1));
    assert_eq!(relocator.finish(NEAR, &unchanged).unwrap_err().reason, Reason::NoSuchTarget);
}
