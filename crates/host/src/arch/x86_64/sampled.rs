//! The registers that the kernel samples of a thread.

/// Which of them, as bits that are numbered by the kernel's `perf_regs.h`.
pub const SAMPLED_REGISTERS: u64 =
    1 << DX | 1 << SI | 1 << DI | 1 << BP | 1 << SP | 1 << IP | 1 << R8 | 1 << R9 | 1 << R10;
/// How many.
pub const SAMPLED_COUNT: usize = SAMPLED_REGISTERS.count_ones() as usize;
/// What the kernel says of a thread that runs 64-bit code.
pub const SAMPLED_ABI: u64 = 2;

const DX: u32 = 3;
const SI: u32 = 4;
const DI: u32 = 5;
const BP: u32 = 6;
const SP: u32 = 7;
const IP: u32 = 8;
const R8: u32 = 16;
const R9: u32 = 17;
const R10: u32 = 18;

/// Those of a thread, as the program has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
    /// Of the system call, if it is in one.
    pub arguments: [u64; 6],
}

impl From<[u64; SAMPLED_COUNT]> for Sampled {
    /// In the order of their bits.
    fn from([dx, si, di, bp, sp, pc, r8, r9, r10]: [u64; SAMPLED_COUNT]) -> Self {
        Self { pc, sp, bp, arguments: [di, si, dx, r10, r8, r9] }
    }
}
