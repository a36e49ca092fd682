//! Finding callers without unwind tables, checked against unwind tables.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};
use object::{Object, ObjectSection, ObjectSegment};
use std::fs;
use weft_code::iced_x86::{Decoder, DecoderOptions};
use weft_code::{Base, Known, LONGEST, Place, Return, ends_with_call, returns};

const RBP: Register = Register(6);
const RSP: Register = Register(7);

fn ways(code: &[u8]) -> Vec<Return> {
    returns(0, |at| bytes_at(code, usize::try_from(at).unwrap()))
}

fn bytes_at(code: &[u8], at: usize) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let there = code.get(at..).unwrap_or_default();
    let length = there.len().min(LONGEST);
    bytes[..length].copy_from_slice(&there[..length]);
    (bytes, length)
}

const fn place(base: Base, offset: i64) -> Place {
    Place { base, offset }
}

#[test]
fn frames_are_given_back() {
    let sp = |offset| place(Base::StackPointer, offset);
    let own = Some(Known::Is(place(Base::FramePointer, 0)));
    // add rsp, 0x18; pop rbx; pop rbp; ret
    assert_eq!(
        ways(&[0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0xc3]),
        [Return {
            at: sp(0x28),
            stack_pointer: sp(0x30),
            frame_pointer: Some(Known::In(sp(0x20)))
        }]
    );
    // push rbp; mov rbp, rsp; leave; ret 0x10
    assert_eq!(
        ways(&[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc2, 0x10, 0]),
        [Return { at: sp(0), stack_pointer: sp(0x18), frame_pointer: own }]
    );
    // leave; ret: whatever the stack pointer is.
    let bp = |offset| place(Base::FramePointer, offset);
    assert_eq!(
        ways(&[0xc9, 0xc3]),
        [Return { at: bp(8), stack_pointer: bp(16), frame_pointer: Some(Known::In(bp(0))) }]
    );
    // jmp to itself; and rsp, rax; ret: nothing is known.
    assert_eq!(ways(&[0xeb, 0xfe]), []);
    assert_eq!(ways(&[0x48, 0x21, 0xc4, 0xc3]), []);
}

#[test]
fn calls_are_known_by_their_bytes() {
    assert!(ends_with_call(&[0, 0, 0, 0xe8, 1, 2, 3, 4]));
    assert!(ends_with_call(&[0x90, 0xff, 0xd0]));
    assert!(ends_with_call(&[0x90, 0x41, 0xff, 0x94, 0x24, 1, 0, 0, 0]));
    assert!(!ends_with_call(&[0x90; 8]));
    assert!(!ends_with_call(&[0xff, 0xe0]));
    assert!(!ends_with_call(&[]));
}

/// Every instruction of the functions of a library that has tables: what they say is among the answers, nearly always
/// as the first one.
#[test]
fn answers_are_those_of_unwind_tables() {
    let path = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"]
        .into_iter()
        .find_map(|path| fs::read(path).ok());
    let Some(bytes) = path else { return };
    let file = object::File::parse(&*bytes).unwrap();
    let segment = |at: u64| {
        file.segments()
            .find(|one| one.address() <= at && at < one.address() + one.size())
            .map(|one| (one.address(), one.data().unwrap()))
    };
    let section = file.section_by_name(".eh_frame").unwrap();
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let frames = EhFrame::new(section.data().unwrap(), LittleEndian);
    let (mut first, mut among, mut all) = (0, 0, 0);
    let mut entries = frames.entries(&bases);
    let mut context = UnwindContext::new();
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        let (start, end) = (fde.initial_address(), fde.initial_address() + fde.len());
        let Some((base, code)) = segment(start) else { continue };
        let read = |at: u64| match at.checked_sub(base) {
            Some(offset) => bytes_at(code, usize::try_from(offset).unwrap()),
            None => ([0; LONGEST], 0),
        };
        let offset = usize::try_from(start - base).unwrap();
        let length = usize::try_from(end - start).unwrap();
        let decoder =
            Decoder::with_ip(64, &code[offset..offset + length], start, DecoderOptions::NONE);
        for instruction in decoder.into_iter().step_by(7) {
            let at = instruction.ip();
            let row = fde.unwind_info_for_address(&frames, &bases, &mut context, at).unwrap();
            let &CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { continue };
            let base = match register {
                RSP => Base::StackPointer,
                RBP => Base::FramePointer,
                _ => continue,
            };
            let rbp = match row.register(RBP) {
                None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => {
                    Some(Known::Is(place(Base::FramePointer, 0)))
                }
                Some(RegisterRule::Offset(more)) => Some(Known::In(place(base, offset + more))),
                _ => continue,
            };
            let expected = Return {
                at: place(base, offset - 8),
                stack_pointer: place(base, offset),
                frame_pointer: rbp,
            };
            let found = returns(at, read);
            all += 1;
            // A frame pointer names the same place in two ways.
            let is_same =
                |one: &Return| *one == expected || (one.at != expected.at && one.at.base != base);
            first += usize::from(found.first().is_some_and(is_same));
            among += usize::from(found.iter().any(is_same));
        }
    }
    println!("{all} instructions: {first} at once, {among} among the answers");
    assert!(all > 10_000);
    assert!(first * 100 >= all * 97, "{first} of {all}");
}
