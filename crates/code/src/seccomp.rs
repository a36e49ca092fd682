//! Classic BPF as seccomp uses it: a filter, what it looks at, and an interpreter.

use alloc::vec::Vec;

/// Lets a system call pass.
pub const ALLOW: u32 = 0x7fff_0000;
/// Lets it pass and logs it.
pub const LOG: u32 = 0x7ffc_0000;
/// Kills the process.
pub const KILL_PROCESS: u32 = 0x8000_0000;
/// Other answers.
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
/// The part of an answer that qualifies what is done: an error number.
const DATA: u32 = 0x0000_ffff;
/// What of an answer says what is done.
pub const ACTION: u32 = 0xffff_0000;
/// The `AUDIT_ARCH_*` of the machine.
pub const AUDIT_ARCH: u32 = 0xc000_003e;

/// Numbers of the kernel's, by its names for them.
mod bpf {
    pub const BPF_LD: u32 = 0x00;
    pub const BPF_LDX: u32 = 0x01;
    pub const BPF_ST: u32 = 0x02;
    pub const BPF_STX: u32 = 0x03;
    pub const BPF_ALU: u32 = 0x04;
    pub const BPF_JMP: u32 = 0x05;
    pub const BPF_RET: u32 = 0x06;
    pub const BPF_MISC: u32 = 0x07;
    pub const BPF_W: u32 = 0x00;
    pub const BPF_IMM: u32 = 0x00;
    pub const BPF_ABS: u32 = 0x20;
    pub const BPF_MEM: u32 = 0x60;
    pub const BPF_LEN: u32 = 0x80;
    pub const BPF_K: u32 = 0x00;
    pub const BPF_X: u32 = 0x08;
    pub const BPF_A: u32 = 0x10;
    pub const BPF_ADD: u32 = 0x00;
    pub const BPF_SUB: u32 = 0x10;
    pub const BPF_MUL: u32 = 0x20;
    pub const BPF_DIV: u32 = 0x30;
    pub const BPF_OR: u32 = 0x40;
    pub const BPF_AND: u32 = 0x50;
    pub const BPF_LSH: u32 = 0x60;
    pub const BPF_RSH: u32 = 0x70;
    pub const BPF_NEG: u32 = 0x80;
    pub const BPF_XOR: u32 = 0xa0;
    pub const BPF_JA: u32 = 0x00;
    pub const BPF_JEQ: u32 = 0x10;
    pub const BPF_JGT: u32 = 0x20;
    pub const BPF_JGE: u32 = 0x30;
    pub const BPF_JSET: u32 = 0x40;
    pub const BPF_TAX: u32 = 0x00;
    pub const BPF_TXA: u32 = 0x80;
}

/// The words a filter may keep things in.
const SCRATCH_WORDS: usize = 16;

/// How much a filter can see of a system call, in bytes.
const DATA_SIZE: u32 = 64;

/// What a filter answers that the kernel would never have accepted.
const MALFORMED: u32 = KILL_PROCESS;

/// One instruction, laid out as the kernel's `sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// How many instructions a conditional jump skips when its condition holds.
    pub jump_true: u8,
    /// How many it skips when the condition does not hold.
    pub jump_false: u8,
    /// The operand.
    pub k: u32,
}

impl Instruction {
    /// The instruction that the kernel reads from a word.
    pub const fn from_word(word: u64) -> Self {
        Self {
            code: word as u16,
            jump_true: (word >> 16) as u8,
            jump_false: (word >> 24) as u8,
            k: (word >> 32) as u32,
        }
    }
}

/// What a filter sees of a system call: the kernel's `seccomp_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeccompData {
    /// The number of the system call.
    pub number: i32,
    /// The `AUDIT_ARCH_*` of the calling code.
    pub arch: u32,
    /// The address after the `syscall` instruction.
    pub instruction_pointer: u64,
    /// The arguments.
    pub args: [u64; 6],
}

impl SeccompData {
    /// The 32-bit word at a byte offset of the kernel's structure.
    fn word(&self, offset: u32) -> Option<u32> {
        let half =
            |value: u64| if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 };
        if !offset.is_multiple_of(4) {
            return None;
        }
        match offset {
            0 => Some(self.number as u32),
            4 => Some(self.arch),
            8..16 => Some(half(self.instruction_pointer)),
            16..DATA_SIZE => Some(half(self.args[(offset as usize - 16) / 8])),
            _ => None,
        }
    }
}

/// What a filter does to a system call, from the mildest to the most severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Lets it pass.
    Allow,
    /// Lets it pass and logs it.
    Log,
    /// Hands it to a tracer.
    Trace,
    /// Hands it to a supervising process.
    UserNotify,
    /// Makes it fail with this error number.
    Errno(u16),
    /// Sends SIGSYS.
    Trap,
    /// Kills the thread.
    KillThread,
    /// Kills the process.
    KillProcess,
}

impl Action {
    /// Decodes what a filter returned; what the kernel does not know, it kills for.
    pub fn decode(returned: u32) -> Self {
        match returned & ACTION {
            ALLOW => Self::Allow,
            LOG => Self::Log,
            TRACE => Self::Trace,
            USER_NOTIF => Self::UserNotify,
            ERRNO => Self::Errno((returned & DATA) as u16),
            TRAP => Self::Trap,
            KILL_THREAD => Self::KillThread,
            _ => Self::KillProcess,
        }
    }

    /// Whether the call is made as if there were no filter.
    pub fn permits(self) -> bool {
        matches!(self, Self::Allow | Self::Log)
    }
}

/// A filter program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    instructions: Vec<Instruction>,
}

impl Filter {
    /// A filter of these instructions. They need not make sense: see [`Filter::run`].
    pub fn new(instructions: Vec<Instruction>) -> Self {
        Self { instructions }
    }

    /// What the filter returns. Jumps go forward only, so that it always ends; a program that the
    /// kernel would have refused kills.
    pub fn run(&self, data: &SeccompData) -> u32 {
        Machine::default().run(&self.instructions, data).unwrap_or(MALFORMED)
    }

    /// Whether it lets a system call pass, whose other arguments are 0.
    pub fn permits(&self, number: usize, first: u64) -> bool {
        let args = [first, 0, 0, 0, 0, 0];
        let call =
            SeccompData { number: number as i32, arch: AUDIT_ARCH, instruction_pointer: 0, args };
        Action::decode(self.run(&call)).permits()
    }
}

/// The registers of the filter machine.
#[derive(Default)]
struct Machine {
    accumulator: u32,
    index: u32,
    scratch: [u32; SCRATCH_WORDS],
}

impl Machine {
    /// Runs to the program's `ret`; `None` when the program is malformed.
    fn run(&mut self, program: &[Instruction], data: &SeccompData) -> Option<u32> {
        use bpf::{
            BPF_ABS, BPF_ALU, BPF_IMM, BPF_JMP, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM, BPF_MISC,
            BPF_RET, BPF_ST, BPF_STX, BPF_W,
        };
        let mut at = 0;
        loop {
            let instruction = program.get(at)?;
            at += 1;
            let (code, k) = (u32::from(instruction.code), instruction.k);
            // Only whole words can be loaded.
            let mode = code & !7;
            match code & 7 {
                BPF_LD if mode == BPF_W | BPF_ABS => self.accumulator = data.word(k)?,
                BPF_LD if mode == BPF_W | BPF_LEN => self.accumulator = DATA_SIZE,
                BPF_LD if mode == BPF_IMM => self.accumulator = k,
                BPF_LD if mode == BPF_MEM => self.accumulator = *self.scratch.get(k as usize)?,
                BPF_LDX if mode == BPF_W | BPF_LEN => self.index = DATA_SIZE,
                BPF_LDX if mode == BPF_IMM => self.index = k,
                BPF_LDX if mode == BPF_MEM => self.index = *self.scratch.get(k as usize)?,
                BPF_ST => *self.scratch.get_mut(k as usize)? = self.accumulator,
                BPF_STX => *self.scratch.get_mut(k as usize)? = self.index,
                BPF_ALU => match self.compute(code, k)? {
                    Some(result) => self.accumulator = result,
                    // The kernel lets a filter that divides by zero return zero.
                    None => return Some(0),
                },
                BPF_JMP => at = at.checked_add(self.jump(code, instruction)?)?,
                BPF_RET => return self.returned(code, k),
                BPF_MISC if mode == bpf::BPF_TAX => self.index = self.accumulator,
                BPF_MISC if mode == bpf::BPF_TXA => self.accumulator = self.index,
                _ => return None,
            }
        }
    }

    /// The second operand: a constant or the index register.
    fn operand(&self, code: u32, k: u32) -> u32 {
        if code & bpf::BPF_X == 0 { k } else { self.index }
    }

    /// The result of an arithmetic operation: `None` when it is malformed, `Some(None)` for a
    /// division by zero.
    fn compute(&self, code: u32, k: u32) -> Option<Option<u32>> {
        let (left, right) = (self.accumulator, self.operand(code, k));
        Some(match code & 0xf0 {
            bpf::BPF_ADD => Some(left.wrapping_add(right)),
            bpf::BPF_SUB => Some(left.wrapping_sub(right)),
            bpf::BPF_MUL => Some(left.wrapping_mul(right)),
            bpf::BPF_DIV => left.checked_div(right),
            bpf::BPF_AND => Some(left & right),
            bpf::BPF_OR => Some(left | right),
            bpf::BPF_XOR => Some(left ^ right),
            bpf::BPF_LSH => Some(left.wrapping_shl(right)),
            bpf::BPF_RSH => Some(left.wrapping_shr(right)),
            bpf::BPF_NEG => Some(left.wrapping_neg()),
            _ => return None,
        })
    }

    /// How many instructions a jump skips.
    fn jump(&self, code: u32, instruction: &Instruction) -> Option<usize> {
        let (left, right) = (self.accumulator, self.operand(code, instruction.k));
        let holds = match code & 0xf0 {
            bpf::BPF_JA => return usize::try_from(instruction.k).ok(),
            bpf::BPF_JEQ => left == right,
            bpf::BPF_JGT => left > right,
            bpf::BPF_JGE => left >= right,
            bpf::BPF_JSET => left & right != 0,
            _ => return None,
        };
        Some(usize::from(if holds { instruction.jump_true } else { instruction.jump_false }))
    }

    fn returned(&self, code: u32, k: u32) -> Option<u32> {
        match code & 0x18 {
            bpf::BPF_K => Some(k),
            bpf::BPF_A => Some(self.accumulator),
            _ => None,
        }
    }
}

/// Instructions by name, for tests.
#[cfg(test)]
mod assemble {
    use super::{Instruction, bpf};

    pub fn op(code: u32, k: u32) -> Instruction {
        Instruction { code: code as u16, k, ..Instruction::default() }
    }

    pub fn load(offset: u32) -> Instruction {
        op(bpf::BPF_LD | bpf::BPF_W | bpf::BPF_ABS, offset)
    }

    pub fn ret(value: u32) -> Instruction {
        op(bpf::BPF_RET | bpf::BPF_K, value)
    }

    pub fn jump(condition: u32, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
        Instruction { jump_true, jump_false, ..op(bpf::BPF_JMP | condition, k) }
    }
}

#[cfg(test)]
mod tests {
    use super::assemble::*;
    use super::bpf::*;
    use super::*;

    const RET_A: u32 = BPF_RET | BPF_A;

    const DATA: SeccompData = SeccompData {
        number: 9,
        arch: 0xc000_003e,
        instruction_pointer: 0x1111_2222_3333_4444,
        args: [0xaaaa_bbbb_cccc_dddd, 1, 2, 3, 4, 0x5555_6666_7777_8888],
    };

    fn run(program: &[Instruction]) -> u32 {
        Filter::new(program.to_vec()).run(&DATA)
    }

    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!([ALLOW, LOG], [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_LOG]);
        assert_eq!(KILL_PROCESS, libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(ACTION, libc::SECCOMP_RET_ACTION_FULL);
    }

    #[test]
    fn every_word_of_the_data_can_be_loaded() {
        let expected = [
            (0, 9),
            (4, 0xc000_003e),
            (8, 0x3333_4444),
            (12, 0x1111_2222),
            (16, 0xcccc_dddd),
            (20, 0xaaaa_bbbb),
            (24, 1),
            (56, 0x7777_8888),
            (60, 0x5555_6666),
        ];
        for (offset, value) in expected {
            assert_eq!(run(&[load(offset), op(RET_A, 0)]), value, "offset {offset}");
        }
    }

    #[test]
    fn arithmetic_wraps_as_in_the_kernel() {
        let cases = [
            (BPF_ADD, u32::MAX, 2, 1),
            (BPF_SUB, 1, 2, u32::MAX),
            (BPF_MUL, 1 << 31, 2, 0),
            (BPF_DIV, 7, 2, 3),
            (BPF_AND, 6, 3, 2),
            (BPF_OR, 6, 3, 7),
            (BPF_XOR, 6, 3, 5),
            (BPF_LSH, 1, 33, 2),
            (BPF_RSH, 4, 1, 2),
            (BPF_NEG, 1, 0, u32::MAX),
        ];
        for (operation, left, right, result) in cases {
            let start = op(BPF_LD | BPF_IMM, left);
            let constant = [start, op(BPF_ALU | operation | BPF_K, right), op(RET_A, 0)];
            assert_eq!(run(&constant), result, "{operation:#x} k");
            let index = [
                start,
                op(BPF_LDX | BPF_IMM, right),
                op(BPF_ALU | operation | BPF_X, 0),
                op(RET_A, 0),
            ];
            assert_eq!(run(&index), result, "{operation:#x} x");
        }
    }

    #[test]
    fn division_by_zero_returns_zero() {
        assert_eq!(run(&[op(BPF_ALU | BPF_DIV | BPF_X, 0), ret(ALLOW)]), 0);
    }

    #[test]
    fn jumps_go_where_their_condition_says() {
        // The accumulator is 9; the answer is 1 when the jump is taken, else 2.
        let cases = [
            (BPF_JEQ, 9, 1),
            (BPF_JEQ, 8, 2),
            (BPF_JGT, 8, 1),
            (BPF_JGT, 9, 2),
            (BPF_JGE, 9, 1),
            (BPF_JGE, 10, 2),
            (BPF_JSET, 1, 1),
            (BPF_JSET, 6, 2),
        ];
        for (condition, k, answer) in cases {
            let constant = [load(0), jump(condition | BPF_K, k, 1, 0), ret(2), ret(1)];
            assert_eq!(run(&constant), answer, "{condition:#x} {k}");
            let index = [
                load(0),
                op(BPF_LDX | BPF_IMM, k),
                jump(condition | BPF_X, 0, 1, 0),
                ret(2),
                ret(1),
            ];
            assert_eq!(run(&index), answer, "{condition:#x} x {k}");
        }
        assert_eq!(run(&[op(BPF_JMP | BPF_JA, 1), ret(2), ret(1)]), 1);
    }

    #[test]
    fn values_pass_through_scratch_and_index() {
        let program = [
            load(24),
            op(BPF_ST, 15),
            op(BPF_LDX | BPF_MEM, 15),
            op(BPF_STX, 3),
            op(BPF_LD | BPF_IMM, 7),
            op(BPF_MISC | BPF_TXA, 0),
            op(BPF_MISC | BPF_TAX, 0),
            op(BPF_LD | BPF_MEM, 3),
            op(BPF_ALU | BPF_ADD | BPF_X, 0),
            op(RET_A, 0),
        ];
        assert_eq!(run(&program), 2);
        assert_eq!(run(&[op(BPF_LD | BPF_W | BPF_LEN, 0), op(RET_A, 0)]), 64);
        let length = [op(BPF_LDX | BPF_W | BPF_LEN, 0), op(BPF_MISC | BPF_TXA, 0), op(RET_A, 0)];
        assert_eq!(run(&length), 64);
    }

    #[test]
    fn what_the_kernel_would_refuse_kills() {
        let malformed: [&[Instruction]; 7] = [
            &[],
            &[load(0)],
            &[load(2), ret(0)],
            &[load(64), ret(0)],
            &[op(BPF_ST, 16), ret(0)],
            &[op(BPF_JMP | BPF_JA, u32::MAX), ret(0)],
            &[op(BPF_LD | 0x10 | BPF_ABS, 0), ret(0)],
        ];
        for program in malformed {
            assert_eq!(run(program), KILL_PROCESS, "{program:?}");
        }
    }
}
