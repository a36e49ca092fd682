//! The registers of a thread as the kernel lays them out in a signal's frame.

use crate::clone::base::signals::{SIGTRAP, TRAP_FLAG, bit};

/// The machine's registers in a frame, as the kernel lays them out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub flags: u64,
    pub link: u64,
    pub stack: [u64; 3],
    /// `r8` to `r15`, `rdi`, `rsi`, `rbp`, `rbx`, `rdx`, `rax`, `rcx`, `rsp`.
    pub registers: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub segments: u64,
    pub error: u64,
    pub trap: u64,
    pub old_mask: u64,
    pub address: u64,
    pub vectors: u64,
    pub reserved: [u64; 8],
    pub mask: u64,
}

/// Which register of the machine each of a frame's is.
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];

/// What lies on the stack when a handler begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    pub restorer: u64,
    pub context: Context,
    pub info: [u64; 16],
}

/// A fault, as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    pub signal: usize,
    pub info: &'a [u64; 16],
    pub context: &'a Context,
}

impl Context {
    pub fn general(&self) -> [u64; 16] {
        let mut general = [0; 16];
        for (value, register) in self.registers.into_iter().zip(ORDER) {
            general[register] = value;
        }
        general
    }

    /// Traps after each instruction, unless the thread blocks that.
    pub fn trap(&mut self) {
        if self.mask & bit(SIGTRAP) == 0 {
            self.rflags |= TRAP_FLAG;
        }
    }

    pub fn set_general(&mut self, general: &[u64; 16]) {
        self.registers = ORDER.map(|register| general[register]);
    }
}
