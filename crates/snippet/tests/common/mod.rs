//! A processor to run snippets on: this one. Every register, the flags and the stack are set
//! before and captured after.
#![allow(dead_code, missing_docs)]

pub mod arbitrary;

use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use weft_code::{Convention, FlagSet, RegisterSet};
use weft_snippet::layout::{Allocator, Place, Region, salt};
use weft_snippet::{
    Clock, Compiled, Datum, Env, PointKind, Site, Source, Statement, Weave, compile, runtime,
};

const WORDS: u64 = 0;
const CLOCK: u64 = 8;
const CONTEXT: u64 = 0x100;
const FLAGS: u64 = 128;
const MXCSR: u64 = 136;
const XMM: u64 = 144;
const OUT: u64 = 0x200;
const HOST_RSP: u64 = 0x500;
const SALT: u64 = 0x1000;
const RUNTIME: u64 = 0x2000;
pub const ENTER: u64 = 0x5000;
pub const EXIT: u64 = 0x6000;
pub const MAIN: u64 = 0x8000;
pub const COLD: u64 = 0x20000;
const CODE_SIZE: usize = 0x40000;
pub const STACK_SIZE: usize = 0x4000;

/// The carry, parity, auxiliary, zero, sign and overflow flags.
pub const ARITHMETIC: u64 = 0x8d5;

#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub registers: [u64; 16],
    pub flags: u64,
    pub mxcsr: u32,
    pub xmm: [u128; 16],
}

pub fn map(size: usize, low: bool, shared: bool) -> u64 {
    let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let place = if low { libc::MAP_32BIT } else { 0 };
    // SAFETY: new memory at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE | if low { libc::PROT_EXEC } else { 0 },
            kind | place | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    address as u64
}

fn write(address: u64, bytes: &[u8]) {
    // SAFETY: callers write to memory that `map` gave.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

pub struct Machine {
    pub code: u64,
    pub slabs: u64,
    pub stack: u64,
    pub env: Env,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: these were mapped for this machine, and nothing runs there now.
        unsafe {
            libc::munmap(self.code as *mut _, CODE_SIZE);
            libc::munmap(self.slabs as *mut _, self.env.region.size());
            libc::munmap(self.stack as *mut _, STACK_SIZE);
        }
    }
}

pub fn region() -> Region {
    Region { count_log2: 6, stride_log2: 18, state_end: 2048, key_shift: 12 }
}

/// An environment that code is only compiled for.
pub fn env(bmi2: bool, region: Region) -> Env {
    let mut env = Env {
        base: 0x1000_0000,
        salt: 0x1000_1000,
        region,
        routines: Default::default(),
        thread_pointer: false,
        thread_id: None,
        unwind: None,
        engine: None,
        bmi2,
        clock: Clock { source: Source::Processor, multiplier: 0x8000_0000, shift: 32, offset: 0 },
        xsave_mask: 0xe7,
        xsave_size: 2696,
    };
    env.routines = runtime(&env, 0x1000_2000).routines;
    env
}

impl Machine {
    pub fn new(bmi2: bool, word_clock: bool, region: Region) -> Self {
        let code = map(CODE_SIZE, true, false);
        let slabs = map(region.size(), false, true);
        let stack = map(STACK_SIZE, false, false);
        // SAFETY: just mapped; nobody else has it.
        let memory = unsafe { std::slice::from_raw_parts_mut(slabs as *mut u8, region.size()) };
        region.initialise(memory);
        write(code + WORDS, &slabs.to_le_bytes());
        write(code + SALT, &salt(std::process::id()).to_le_bytes());
        let source = if word_clock { Source::Word(code + CLOCK) } else { Source::Processor };
        let mut env = Env {
            base: code + WORDS,
            salt: code + SALT,
            region,
            routines: Default::default(),
            thread_pointer: false,
            thread_id: None,
            unwind: None,
            engine: None,
            bmi2: bmi2 && std::arch::is_x86_feature_detected!("bmi2"),
            clock: Clock { source, multiplier: 0x1234_5678, shift: 29, offset: 1_000_000_007 },
            xsave_mask: 0xe7,
            xsave_size: 2696,
        };
        let runtime = runtime(&env, code + RUNTIME);
        assert!(runtime.code.len() < (ENTER - RUNTIME) as usize);
        write(code + RUNTIME, &runtime.code);
        env.routines = runtime.routines;
        let machine = Self { code, slabs, stack, env };
        machine.write_switches();
        machine
    }

    fn write_switches(&self) {
        let context = self.code + CONTEXT;
        let general =
            [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
        let vector = [
            xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13,
            xmm14, xmm15,
        ];
        let kept = [rbx, rbp, r12, r13, r14, r15];
        let mut asm = CodeAssembler::new(64).unwrap();
        for register in kept {
            asm.push(register).unwrap();
        }
        asm.mov(qword_ptr(self.code + HOST_RSP), rsp).unwrap();
        asm.ldmxcsr(dword_ptr(context + MXCSR)).unwrap();
        for (index, register) in vector.into_iter().enumerate() {
            asm.movups(register, xmmword_ptr(context + XMM + 16 * index as u64)).unwrap();
        }
        asm.push(qword_ptr(context + FLAGS)).unwrap();
        asm.popfq().unwrap();
        for (index, register) in general.into_iter().enumerate() {
            asm.mov(register, qword_ptr(context + 8 * index as u64)).unwrap();
        }
        asm.jmp(self.code + MAIN).unwrap();
        write(self.code + ENTER, &asm.assemble(self.code + ENTER).unwrap());

        let out = context + OUT;
        let mut asm = CodeAssembler::new(64).unwrap();
        for (index, register) in general.into_iter().enumerate() {
            asm.mov(qword_ptr(out + 8 * index as u64), register).unwrap();
        }
        asm.mov(rsp, qword_ptr(self.code + HOST_RSP)).unwrap();
        asm.pushfq().unwrap();
        asm.pop(qword_ptr(out + FLAGS)).unwrap();
        asm.cld().unwrap();
        asm.stmxcsr(dword_ptr(out + MXCSR)).unwrap();
        for (index, register) in vector.into_iter().enumerate() {
            asm.movups(xmmword_ptr(out + XMM + 16 * index as u64), register).unwrap();
        }
        // The caller's mode, and not what the test set.
        asm.mov(dword_ptr(self.code + HOST_RSP + 8), 0x1f80_i32).unwrap();
        asm.ldmxcsr(dword_ptr(self.code + HOST_RSP + 8)).unwrap();
        for register in kept.into_iter().rev() {
            asm.pop(register).unwrap();
        }
        asm.ret().unwrap();
        write(self.code + EXIT, &asm.assemble(self.code + EXIT).unwrap());
    }

    pub fn set_clock(&self, ticks: u64) {
        write(self.code + CLOCK, &ticks.to_le_bytes());
    }

    /// Puts code where `run` finds it.
    pub fn install(&self, compiled: &Compiled) {
        let (mut main, cold) = compiled.place(self.code + MAIN, self.code + COLD);
        let end = self.code + MAIN + main.len() as u64 + 5;
        main.push(0xe9);
        main.extend_from_slice(&((self.code + EXIT).wrapping_sub(end) as u32).to_le_bytes());
        assert!(main.len() < (COLD - MAIN) as usize);
        write(self.code + MAIN, &main);
        write(self.code + COLD, &cold);
    }

    /// Runs what is installed.
    pub fn run(&self, before: &State) -> State {
        let context = self.code + CONTEXT;
        write(context, as_bytes(&before.registers));
        write(context + FLAGS, &(before.flags | 2).to_le_bytes());
        write(context + MXCSR, &before.mxcsr.to_le_bytes());
        write(context + XMM, as_bytes(&before.xmm));
        // SAFETY: the switch keeps what the C ABI says, and snippets write only their own memory.
        let enter: extern "C" fn() = unsafe { std::mem::transmute(self.code + ENTER) };
        enter();
        let out = context + OUT;
        let read = |at: u64, length: usize| {
            // SAFETY: inside the context, which nobody writes now.
            unsafe { std::slice::from_raw_parts((out + at) as *const u8, length) }
        };
        let word = |at| u64::from_le_bytes(read(at, 8).try_into().unwrap());
        State {
            registers: std::array::from_fn(|index| word(8 * index as u64)),
            flags: word(FLAGS),
            mxcsr: u32::from_le_bytes(read(MXCSR, 4).try_into().unwrap()),
            xmm: std::array::from_fn(|index| {
                let bytes = read(XMM + 16 * index as u64, 16);
                u128::from_le_bytes(bytes.try_into().unwrap())
            }),
        }
    }

    /// A state with distinct values everywhere and the stack pointer on the scratch stack.
    pub fn state(&self) -> State {
        let mut registers = std::array::from_fn(|index| 0x1111_1111_1111_1111 * index as u64);
        registers[4] = self.stack + STACK_SIZE as u64 - 0x800;
        State {
            registers,
            flags: 0,
            mxcsr: 0x1f80,
            xmm: std::array::from_fn(|index| 0x0123_4567_89ab_cdef * (index as u128 + 1)),
        }
    }

    /// The slab of the thread that asks; it must have one.
    #[allow(clippy::mut_from_ref)]
    pub fn slab(&self) -> &mut [u8] {
        let stride = self.env.region.stride();
        for index in 1..self.env.region.count() - 1 {
            let slab = self.slab_at(index);
            let tid = u32::from_le_bytes(slab[8..12].try_into().unwrap());
            // SAFETY: no memory is involved.
            if tid == unsafe { libc::gettid() } as u32 {
                return slab;
            }
        }
        panic!("no slab of {stride} bytes is this thread's");
    }

    #[allow(clippy::mut_from_ref)]
    pub fn slab_at(&self, index: usize) -> &mut [u8] {
        let stride = self.env.region.stride();
        let address = self.slabs + (index * stride) as u64;
        // SAFETY: tests look at a slab while nothing else writes it, or at single words.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, stride) }
    }

    pub fn memory(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.slabs as *const u8, self.env.region.size()) }
    }
}

pub fn as_bytes<T: Copy, const N: usize>(values: &[T; N]) -> &[u8] {
    // SAFETY: arrays of integers have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of::<[T; N]>()) }
}

pub fn places(region: &Region, data: &[Datum]) -> Vec<Place> {
    let mut allocator = Allocator::new(region);
    data.iter().map(|datum| allocator.place(datum).expect("room")).collect()
}

/// A function's entry where the usual registers are dead.
pub fn site(kind: PointKind) -> Site {
    use weft_code::Register;
    Site {
        kind,
        convention: Convention::SystemV,
        dead: RegisterSet::of(&[Register::RAX, Register::R10, Register::R11]),
        live_flags: FlagSet::NONE,
        red_zone: true,
        address: 0x40_1000,
        stack_shift: 0,
        access: None,
    }
}

pub fn parse(text: &str) -> Weave {
    Weave::parse(text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

pub fn body(weave: &Weave, kind: PointKind) -> &[Statement] {
    weave.body(kind).expect("a body")
}

pub fn compiled(machine: &Machine, weave: &Weave, site: &Site) -> Compiled {
    let places = places(&machine.env.region, &weave.data);
    let body = body(weave, site.kind);
    compile(&weave.data, body, site, &machine.env, &places).expect("it compiles")
}

/// Each instruction with its offset.
pub fn disassemble(code: &[u8], at: u64) -> Vec<(u64, String)> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_rip_relative_addresses(false);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        lines.push((instruction.ip() - at, line));
    }
    lines
}
