//! Which instructions read and write memory.

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

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
            let (reads, writes) = match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => (false, false),
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            };
            found.reads |= reads;
            found.writes |= writes;
        }
        found
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
}
