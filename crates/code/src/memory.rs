//! Which instructions read and write memory, and where.

use crate::effects::number;
use crate::{Register, RegisterSet};
use alloc::vec::Vec;
use iced_x86::{
    Code, CodeSize, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, UsedMemory,
};

/// What an instruction does with memory, as a programmer thinks of loads and stores: what calls, returns, pushes and
/// pops move through the stack does not count, nor do hints about memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Whether it reads, or may read.
    pub reads: bool,
    /// Whether it writes, or may write.
    pub writes: bool,
}

impl MemoryUse {
    /// That of an instruction.
    pub fn of(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let mut found = Self::default();
        // The decoder's word for calls, returns, pushes, pops and the like.
        if instruction.is_stack_instruction() || is_hint(instruction.mnemonic()) {
            return found;
        }
        for used in factory.info(instruction).used_memory() {
            let (reads, writes) = directions(used.access());
            found.reads |= reads;
            found.writes |= writes;
        }
        found
    }
}

/// Whether memory is read, and whether it is written, or may be.
fn directions(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
    }
}

/// The segments whose base is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// What threads have their own memory by.
    Fs,
    /// Free for the program to use.
    Gs,
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From memory.
    Load,
    /// To memory.
    Store,
}

/// One access of an instruction to memory, with the registers as they are before the instruction: the address is the
/// sum of all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The segment whose base is a part of it.
    pub segment: Option<Segment>,
    /// A register that is a part of it.
    pub base: Option<Register>,
    /// Another one, shifted to the left.
    pub index: Option<(Register, u8)>,
    /// Whether only the lowest byte of that counts.
    pub is_byte_index: bool,
    /// A constant part.
    pub displacement: i64,
    /// Whether all of that, but for the segment, is cut off to 32 bits.
    pub is_narrow: bool,
    /// How many bytes; 0 if only the processor knows.
    pub size: u32,
    /// Whether it is repeated as often as `rcx` says, or less.
    pub is_repeated: bool,
}

impl Access {
    /// The accesses of an instruction in one direction, those through the stack included. Nothing stands for one that
    /// has several addresses.
    pub fn all(
        instruction: &Instruction,
        direction: Direction,
        factory: &mut InstructionInfoFactory,
    ) -> Vec<Option<Self>> {
        if is_hint(instruction.mnemonic()) {
            return Vec::new();
        }
        let is_wanted = |used: &&UsedMemory| {
            let (reads, writes) = directions(used.access());
            if direction == Direction::Load { reads } else { writes }
        };
        let used = factory.info(instruction).used_memory().iter().filter(is_wanted);
        used.map(|used| Self::of(instruction, used)).collect()
    }

    fn of(instruction: &Instruction, used: &UsedMemory) -> Option<Self> {
        use iced_x86::Register as Name;
        if used.vsib_size() != 0 {
            return None;
        }
        let mut access = Self {
            segment: match used.segment() {
                Name::FS => Some(Segment::Fs),
                Name::GS => Some(Segment::Gs),
                _ => None,
            },
            displacement: used.displacement() as i64,
            is_narrow: used.address_size() == CodeSize::Code32,
            size: used.memory_size().size() as u32,
            is_repeated: instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
            ..Self::default()
        };
        if access.is_repeated {
            access.size = instruction.memory_size().size() as u32;
        }
        match used.base() {
            Name::None => {}
            Name::RIP | Name::EIP => {
                access.displacement = instruction.ip_rel_memory_address() as i64
            }
            base => access.base = Some(number(base)?),
        }
        if used.index() != Name::None {
            access.index = Some((number(used.index())?, used.scale().trailing_zeros() as u8));
            access.is_byte_index = used.index() == Name::AL;
        }
        Some(access)
    }

    /// The registers that say where it is.
    pub fn address_registers(&self) -> RegisterSet {
        let parts = self.base.into_iter().chain(self.index.map(|index| index.0));
        parts.fold(RegisterSet::NONE, RegisterSet::with)
    }

    /// The registers that say how much it is.
    pub fn size_registers(&self) -> RegisterSet {
        if self.is_repeated { RegisterSet::of(&[Register::RCX]) } else { RegisterSet::NONE }
    }
}

/// Whether an instruction asks the kernel for something.
pub fn is_system_call(instruction: &Instruction) -> bool {
    instruction.code() == Code::Syscall
}

/// Whether an instruction names memory only to say something about caches.
pub(crate) fn is_hint(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Prefetch
            | Mnemonic::Prefetchit0
            | Mnemonic::Prefetchit1
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
            | Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Clwb
            | Mnemonic::Cldemote
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use iced_x86::{Decoder, DecoderOptions};

    fn decode(bytes: &[u8]) -> Instruction {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), bytes.len(), "{instruction:?}");
        instruction
    }

    #[test]
    fn loads_and_stores() {
        const NEITHER: (bool, bool) = (false, false);
        const LOAD: (bool, bool) = (true, false);
        const STORE: (bool, bool) = (false, true);
        const BOTH: (bool, bool) = (true, true);
        let cases: &[(&str, &[u8], (bool, bool))] = &[
            ("mov rax, [rdi]", &[0x48, 0x8b, 0x07], LOAD),
            ("mov [rdi], rax", &[0x48, 0x89, 0x07], STORE),
            ("mov rax, rdi", &[0x48, 0x89, 0xf8], NEITHER),
            ("mov [rsp+8], rax", &[0x48, 0x89, 0x44, 0x24, 0x08], STORE),
            ("mov rax, fs:[0]", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], LOAD),
            ("add [rdi], rax", &[0x48, 0x01, 0x07], BOTH),
            ("add rax, [rdi]", &[0x48, 0x03, 0x07], LOAD),
            ("cmp [rdi], rax", &[0x48, 0x39, 0x07], LOAD),
            ("cmove rax, [rdi]", &[0x48, 0x0f, 0x44, 0x07], LOAD),
            ("lock cmpxchg [rdi], rsi", &[0xf0, 0x48, 0x0f, 0xb1, 0x37], BOTH),
            ("xchg [rdi], rax", &[0x48, 0x87, 0x07], BOTH),
            ("movaps xmm0, [rdi]", &[0x0f, 0x28, 0x07], LOAD),
            ("movaps [rdi], xmm0", &[0x0f, 0x29, 0x07], STORE),
            ("movsq", &[0x48, 0xa5], BOTH),
            ("rep stosb", &[0xf3, 0xaa], STORE),
            ("scasb", &[0xae], LOAD),
            ("sete [rdi]", &[0x0f, 0x94, 0x07], STORE),
            ("vpgatherdd xmm0, [rdi+xmm1], xmm2", &[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x0f], LOAD),
            ("fstp qword [rdi]", &[0xdd, 0x1f], STORE),
            ("jmp [rdi]", &[0xff, 0x27], LOAD),
            ("lea rax, [rdi]", &[0x48, 0x8d, 0x07], NEITHER),
            ("nop [rax]", &[0x0f, 0x1f, 0x00], NEITHER),
            ("endbr64", &[0xf3, 0x0f, 0x1e, 0xfa], NEITHER),
            ("prefetcht0 [rdi]", &[0x0f, 0x18, 0x0f], NEITHER),
            ("prefetchw [rdi]", &[0x0f, 0x0d, 0x0f], NEITHER),
            ("clflush [rdi]", &[0x0f, 0xae, 0x3f], NEITHER),
            ("push rax", &[0x50], NEITHER),
            ("push [rdi]", &[0xff, 0x37], NEITHER),
            ("pop rax", &[0x58], NEITHER),
            ("pop [rdi]", &[0x8f, 0x07], NEITHER),
            ("pushfq", &[0x9c], NEITHER),
            ("leave", &[0xc9], NEITHER),
            ("call rel", &[0xe8, 0, 0, 0, 0], NEITHER),
            ("call [rdi]", &[0xff, 0x17], NEITHER),
            ("ret", &[0xc3], NEITHER),
            ("ret 8", &[0xc2, 0x08, 0x00], NEITHER),
            ("syscall", &[0x0f, 0x05], NEITHER),
            ("jmp rel", &[0xe9, 0, 0, 0, 0], NEITHER),
        ];
        let mut factory = InstructionInfoFactory::new();
        for (text, bytes, expected) in cases {
            let found = MemoryUse::of(&decode(bytes), &mut factory);
            assert_eq!((found.reads, found.writes), *expected, "{text}");
        }
    }

    #[test]
    fn system_calls() {
        assert!(is_system_call(&decode(&[0x0f, 0x05])));
        assert!(!is_system_call(&decode(&[0xe8, 0, 0, 0, 0])));
        assert!(!is_system_call(&decode(&[0xcd, 0x80])));
    }

    /// The loads and the stores of an instruction at 0x1000, as text.
    fn accesses(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), bytes.len());
        let mut factory = InstructionInfoFactory::new();
        let mut all = |direction| {
            let found = Access::all(&instruction, direction, &mut factory);
            found
                .iter()
                .map(|access| access.map_or("several".into(), |access| text(&access)))
                .collect()
        };
        (all(Direction::Load), all(Direction::Store))
    }

    fn text(access: &Access) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(access.segment.map(|segment| format!("{segment:?}")));
        parts.extend(access.base.map(|base| base.name().into()));
        let byte = if access.is_byte_index { " & 255" } else { "" };
        parts.extend(access.index.map(|(index, by)| format!("{}{byte} << {by}", index.name())));
        if access.displacement != 0 || parts.is_empty() {
            parts.push(format!("{:#x}", access.displacement));
        }
        let narrow = if access.is_narrow { "narrow " } else { "" };
        let times = if access.is_repeated { " times rcx" } else { "" };
        format!("{narrow}{} : {}{times}", parts.join(" + "), access.size)
    }

    /// An instruction, its bytes, its loads and its stores.
    type Case = (&'static str, &'static [u8], &'static [&'static str], &'static [&'static str]);

    #[test]
    fn where_instructions_access_memory() {
        const PUSHED: &str = "rsp + 0xfffffffffffffff8 : 8";
        let cases: &[Case] = &[
            (
                "mov eax, [rdi + rsi*4 + 8]",
                &[0x8b, 0x44, 0xb7, 8],
                &["rdi + rsi << 2 + 0x8 : 4"],
                &[],
            ),
            ("mov [rip + 16], al", &[0x88, 0x05, 16, 0, 0, 0], &[], &["0x1016 : 1"]),
            (
                "mov rax, fs:[0x28]",
                &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],
                &["Fs + 0x28 : 8"],
                &[],
            ),
            ("add gs:[rcx], rax", &[0x65, 0x48, 0x01, 0x01], &["Gs + rcx : 8"], &["Gs + rcx : 8"]),
            ("mov eax, [edi + 4]", &[0x67, 0x8b, 0x47, 4], &["narrow rdi + 0x4 : 4"], &[]),
            ("movaps [rdi], xmm0", &[0x0f, 0x29, 0x07], &[], &["rdi : 16"]),
            ("push rax", &[0x50], &[], &[PUSHED]),
            ("push [rdi]", &[0xff, 0x37], &["rdi : 8"], &[PUSHED]),
            ("pop rax", &[0x58], &["rsp : 8"], &[]),
            ("pop [rsp + 8]", &[0x8f, 0x44, 0x24, 8], &["rsp : 8"], &["rsp + 0x10 : 8"]),
            ("call rel", &[0xe8, 0, 0, 0, 0], &[], &[PUSHED]),
            ("call [rdi]", &[0xff, 0x17], &["rdi : 8"], &[PUSHED]),
            ("ret", &[0xc3], &["rsp : 8"], &[]),
            ("leave", &[0xc9], &["rbp : 8"], &[]),
            ("movsq", &[0x48, 0xa5], &["rsi : 8"], &["rdi : 8"]),
            ("rep movsb", &[0xf3, 0xa4], &["rsi : 1 times rcx"], &["rdi : 1 times rcx"]),
            ("repe cmpsb", &[0xf3, 0xa6], &["rsi : 1 times rcx", "rdi : 1 times rcx"], &[]),
            ("xlatb", &[0xd7], &["rbx + rax & 255 << 0 : 1"], &[]),
            ("vpgatherdd xmm0, ..", &[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x0f], &["several"], &[]),
            ("lea rax, [rdi]", &[0x48, 0x8d, 0x07], &[], &[]),
            ("prefetcht0 [rdi]", &[0x0f, 0x18, 0x0f], &[], &[]),
        ];
        for (name, bytes, loads, stores) in cases {
            let (found_loads, found_stores) = accesses(bytes);
            assert_eq!(
                (&found_loads[..], &found_stores[..]),
                (&text_of(loads)[..], &text_of(stores)[..]),
                "{name}"
            );
        }
    }

    fn text_of(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).into()).collect()
    }
}
