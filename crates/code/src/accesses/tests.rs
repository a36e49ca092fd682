//! What is captured and touched, by example. That real programs touch what plans say is shown in the trace's tests.

use super::*;
use iced_x86::code_asm::*;
use std::string::String;
use std::{format, vec};

extern crate std;

type Built = Result<(), iced_x86::IcedError>;

fn planned(write: impl FnOnce(&mut CodeAssembler) -> Built) -> Plan {
    planned_with(Detail::Addresses, write)
}

fn planned_with(detail: Detail, write: impl FnOnce(&mut CodeAssembler) -> Built) -> Plan {
    let mut code = CodeAssembler::new(64).expect("an assembler");
    write(&mut code).expect("code");
    plan(&code.assemble(0x1000).expect("bytes"), 0x1000, detail)
}

/// What is captured: before which instruction, which register.
fn captures(plan: &Plan) -> Vec<(u16, &str)> {
    let name = |capture: &Capture| match capture.place {
        Captured::Register(register) => register.name(),
        Captured::Operand(_) => "memory",
    };
    plan.captures.iter().map(|capture| (capture.before, name(capture))).collect()
}

/// The accesses, if the captures are these.
fn touched(plan: &Plan, captures: &[u64]) -> Vec<String> {
    assert_eq!(captures.len(), plan.captures.len(), "{plan:?}");
    let mut sources = vec![0xbad; REGISTERS];
    sources.extend(captures);
    let touch = |access: &Access| {
        let (address, size) = access.place(&sources, [0x7000_0000, 0x8000_0000])?;
        let address = address.map_or("?".into(), |address| format!("{address:x}"));
        Some(format!("{} {:?} {address} {size}", access.instruction, access.kind))
    };
    plan.accesses.iter().filter_map(touch).collect()
}

#[test]
fn a_register_is_captured_once() {
    let plan = planned(|code| {
        code.mov(rax, qword_ptr(rdi))?;
        code.mov(qword_ptr(rdi + 8), rax)?;
        code.add(rdi, 16)?;
        code.inc(qword_ptr(rdi + rsi * 4))
    });
    assert_eq!(captures(&plan), [(0, "rdi"), (0, "rsi")]);
    let all = touched(&plan, &[0x100, 2]);
    assert_eq!(all, ["0 Load 100 8", "1 Store 108 8", "3 Update 118 8"]);
}

#[test]
fn what_is_loaded_is_captured_behind_the_load() {
    let plan = planned(|code| {
        code.mov(rax, qword_ptr(rdi))?;
        code.mov(rbx, rax)?;
        code.mov(ecx, dword_ptr(rbx + 4))?;
        code.mov(edx, dword_ptr(rax))
    });
    assert_eq!(captures(&plan), [(0, "rdi"), (2, "rbx")]);
    assert_eq!(touched(&plan, &[0x100, 0x200]), ["0 Load 100 8", "2 Load 204 4", "3 Load 200 4"]);
}

#[test]
fn the_stack_is_followed() {
    let plan = planned(|code| {
        code.push(rbp)?;
        code.mov(rbp, rsp)?;
        code.sub(rsp, 32)?;
        code.mov(dword_ptr(rbp - 4), 1)?;
        code.leave()?;
        code.ret_1(8)
    });
    assert_eq!(captures(&plan), [(0, "rsp")]);
    let all = touched(&plan, &[0x1000]);
    assert_eq!(all, ["0 Store ff8 8", "3 Store ff4 4", "4 Load ff8 8", "5 Load 1000 8"]);
}

#[test]
fn sums_are_solved_for_what_they_hide() {
    // What was in rdi is known from what is in rax.
    let plan = planned(|code| {
        code.add(rdi, qword_ptr(0x50))?;
        code.lea(rax, qword_ptr(rdi + 8))?;
        code.mov(ecx, dword_ptr(rax))?;
        code.mov(ecx, dword_ptr(rdi))
    });
    assert_eq!(captures(&plan), [(2, "rax")]);
    assert_eq!(touched(&plan, &[0x108]), ["0 Load 50 8", "2 Load 108 4", "3 Load 100 4"]);
}

#[test]
fn narrow_results_are_not_guessed() {
    let plan = planned(|code| {
        code.mov(eax, dword_ptr(rdi))?;
        code.mov(eax, edi)?;
        code.mov(ecx, dword_ptr(rax))?;
        code.xor(edx, edx)?;
        code.mov(ecx, dword_ptr(rdx + 5))?;
        code.mov(ecx, dword_ptr(edi))
    });
    assert_eq!(captures(&plan), [(0, "rdi"), (2, "rax")]);
    let all = touched(&plan, &[0x1_0000_0008, 8]);
    assert_eq!(all, ["0 Load 100000008 4", "2 Load 8 4", "4 Load 5 4", "5 Load 8 4"]);
}

#[test]
fn repeated_strings_are_one_access_each() {
    let plan = planned(|code| {
        code.rep().movsd()?;
        code.mov(al, byte_ptr(rsi))
    });
    assert_eq!(captures(&plan), [(0, "rsi"), (0, "rdi"), (1, "rdi")]);
    let up = touched(&plan, &[0x100, 0x200, 0x220]);
    assert_eq!(up, ["0 Load 100 32", "0 Store 200 32", "1 Load 120 1"]);
    let down = touched(&plan, &[0x100, 0x200, 0x1f0]);
    assert_eq!(down, ["0 Load f4 16", "0 Store 1f4 16", "1 Load f0 1"]);
    assert_eq!(touched(&plan, &[0x100, 0x200, 0x200]), ["1 Load 100 1"]);
}

#[test]
fn a_search_ends_where_its_pointer_is() {
    let plan = planned(|code| code.repne().scasb());
    assert_eq!(captures(&plan), [(0, "rdi"), (1, "rdi")]);
    assert_eq!(touched(&plan, &[0x100, 0x103]), ["0 Load 100 3"]);
}

#[test]
fn segments_have_bases() {
    let plan = planned(|code| {
        code.mov(rax, qword_ptr(0x28).fs())?;
        code.mov(rax, qword_ptr(rdi).gs())?;
        code.wrfsbase(rdi)
    });
    assert_eq!(captures(&plan), [(0, "rdi")]);
    assert_eq!(touched(&plan, &[0x10]), ["0 Load 70000028 8", "1 Load 80000010 8"]);
    assert_eq!(plan.bases.len(), 1);
}

#[test]
fn what_registers_do_not_say_is_not_said() {
    let plan = planned(|code| {
        code.db(&[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x0f])?; // vpgatherdd xmm0, [rdi + xmm1], xmm2
        code.bts(dword_ptr(rdi), eax)?;
        code.xlatb()?;
        code.xsave(ptr(rdi))?;
        code.bt(dword_ptr(rdi), 3)
    });
    let all = touched(&plan, &[0x100]);
    assert_eq!(all[1..], ["1 Update ? 4", "2 Load ? 1", "3 Update 100 0", "4 Load 100 4"]);
    assert!(all[0].starts_with("0 Load ?"), "{all:?}");
}

#[test]
fn hints_touch_nothing() {
    let plan = planned(|code| {
        code.prefetcht0(byte_ptr(rdi))?;
        code.lea(rax, ptr(rsi))?;
        code.nop_1(dword_ptr(rdx))
    });
    assert_eq!(plan.accesses, []);
    assert_eq!(plan.captures, []);
}

#[test]
fn calls_push_and_bytes_that_are_cut_are_left() {
    let mut bytes = vec![0xff, 0x50, 0x08]; // call [rax + 8]
    bytes.push(0x48);
    let plan = plan(&bytes, 0x1000, Detail::Addresses);
    assert_eq!((plan.instructions, plan.length), (1, 3));
    assert_eq!(captures(&plan), [(0, "rax"), (0, "rsp")]);
    assert_eq!(touched(&plan, &[0x10, 0x100]), ["0 Load 18 8", "0 Store f8 8"]);
}

#[test]
fn values_are_those_of_registers_where_there_are_any() {
    let plan = planned_with(Detail::Values, |code| {
        code.mov(eax, dword_ptr(rdi))?;
        code.mov(qword_ptr(rsi), rax)?;
        code.mov(byte_ptr(rsi + 8), -1)?;
        code.push(rax)?;
        code.pop(rdx)?;
        code.call(qword_ptr(rdi + 8))
    });
    assert_eq!(captures(&plan), [(0, "rdi"), (1, "rax"), (0, "rsi"), (0, "rsp"), (5, "rdx")]);
    let mut sources = vec![0xbad; REGISTERS];
    sources.extend([0x100, 0x1_2345_6789, 0x200, 0x300, 7]);
    let value = |access: &Access| access.value(&sources, Some(0x5000));
    let values: Vec<_> = plan.accesses.iter().map(value).collect();
    let end = 0x1000 + u64::from(plan.length);
    let expected = [0x2345_6789, 0x1_2345_6789, 0xff, 0x1_2345_6789, 7, 0x5000, end];
    assert_eq!(values, expected.map(Some));
}

#[test]
fn other_values_are_looked_up_behind_the_instruction() {
    let plan = planned_with(Detail::Values, |code| {
        code.add(rax, qword_ptr(rdi))?;
        code.cmp(byte_ptr(rdi), 5)?;
        code.movups(xmmword_ptr(rsi), xmm0)?;
        code.add(rax, qword_ptr(rax))?; // its address is gone then
        code.mov(ah, byte_ptr(rdi))
    });
    let memory: Vec<_> = plan
        .captures
        .iter()
        .filter_map(|capture| match capture.place {
            Captured::Operand(size) => Some((capture.before, size)),
            Captured::Register(_) => None,
        })
        .collect();
    assert_eq!(memory, [(1, 8), (2, 1), (3, 8), (5, 1)]);
    assert_eq!(plan.accesses[3].value, None);
}
