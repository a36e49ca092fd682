//! The parts of a machine's state that code reads and writes.

use core::ops::{BitAnd, BitOr, Not};

/// A general register, by the number that the processor gives it: `rax` is 0, `r15` is 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u8);

impl Register {
    /// The accumulator.
    pub const RAX: Self = Self(0);
    /// The counter.
    pub const RCX: Self = Self(1);
    /// The third argument.
    pub const RDX: Self = Self(2);
    /// Saved by the callee.
    pub const RBX: Self = Self(3);
    /// The stack pointer.
    pub const RSP: Self = Self(4);
    /// The frame pointer.
    pub const RBP: Self = Self(5);
    /// The second argument.
    pub const RSI: Self = Self(6);
    /// The first argument.
    pub const RDI: Self = Self(7);
    /// The fifth argument.
    pub const R8: Self = Self(8);
    /// The sixth argument.
    pub const R9: Self = Self(9);
    /// Scratch, and the static chain.
    pub const R10: Self = Self(10);
    /// Scratch.
    pub const R11: Self = Self(11);
    /// Saved by the callee.
    pub const R12: Self = Self(12);
    /// Saved by the callee.
    pub const R13: Self = Self(13);
    /// Saved by the callee; the current goroutine in Go.
    pub const R14: Self = Self(14);
    /// Saved by the callee.
    pub const R15: Self = Self(15);

    /// The name of all its 64 bits.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        NAMES[self.0 as usize & 15]
    }
}

/// A set of general registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisterSet(pub u16);

impl RegisterSet {
    /// None.
    pub const NONE: Self = Self(0);
    /// All sixteen.
    pub const ALL: Self = Self(u16::MAX);

    /// The set of these.
    pub const fn of(registers: &[Register]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < registers.len() {
            bits |= 1 << registers[index].0;
            index += 1;
        }
        Self(bits)
    }

    /// Whether a register is in it.
    pub const fn contains(self, register: Register) -> bool {
        self.0 >> register.0 & 1 != 0
    }

    /// This set with one more.
    pub const fn with(self, register: Register) -> Self {
        Self(self.0 | 1 << register.0)
    }

    /// This set without one.
    pub const fn without(self, register: Register) -> Self {
        Self(self.0 & !(1 << register.0))
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its members, by number.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..16).map(Register).filter(move |&register| self.contains(register))
    }
}

/// A set of the arithmetic flags, each with the bit that it has in `rflags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagSet(pub u16);

impl FlagSet {
    /// None.
    pub const NONE: Self = Self(0);
    /// Carry.
    pub const CF: Self = Self(1 << 0);
    /// Parity.
    pub const PF: Self = Self(1 << 2);
    /// Auxiliary carry.
    pub const AF: Self = Self(1 << 4);
    /// Zero.
    pub const ZF: Self = Self(1 << 6);
    /// Sign.
    pub const SF: Self = Self(1 << 7);
    /// Direction.
    pub const DF: Self = Self(1 << 10);
    /// Overflow.
    pub const OF: Self = Self(1 << 11);
    /// Those that arithmetic sets: all but the direction flag.
    pub const ARITHMETIC: Self =
        Self(Self::CF.0 | Self::PF.0 | Self::AF.0 | Self::ZF.0 | Self::SF.0 | Self::OF.0);
    /// All of them.
    pub const ALL: Self = Self(Self::ARITHMETIC.0 | Self::DF.0);

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any flag is in both.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// How a function gets its arguments and what it may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convention {
    /// The System V ABI: C, C++, Rust and most others.
    SystemV,
    /// Go's register-based ABI.
    Go,
    /// Hand-written, or unknown: nothing may be assumed.
    #[default]
    Unknown,
}

macro_rules! set_operators {
    ($set:ident, $all:expr) => {
        impl BitOr for $set {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
        impl BitAnd for $set {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
        impl Not for $set {
            type Output = Self;
            fn not(self) -> Self {
                Self(!self.0 & $all)
            }
        }
    };
}

set_operators!(RegisterSet, u16::MAX);
set_operators!(FlagSet, FlagSet::ALL.0);
