//! What a body must keep for the program, and where.

use crate::site::Site;
use alloc::vec::Vec;
use weft_code::{Register, RegisterSet};

/// Where a register of the program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In a dead one.
    Register(Register),
    /// Pushed.
    Stack,
}

/// Where the flags wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagsHome {
    /// In `ax`, which nothing else uses.
    Accumulator,
    /// In a dead register.
    Register(Register),
    /// Pushed.
    Stack,
}

/// What is saved. It only ever grows, so the passes come to an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) homes: Vec<(Register, Home)>,
    pub(super) flags: Option<FlagsHome>,
    used: RegisterSet,
    slots: u32,
    xmm: u8,
    floats: bool,
}

/// What a pass used.
pub(super) struct Use<'a> {
    pub(super) used: RegisterSet,
    pub(super) reads: RegisterSet,
    pub(super) flags: bool,
    pub(super) slots: u32,
    pub(super) xmm: u8,
    pub(super) floats: bool,
    pub(super) site: &'a Site,
}

impl Plan {
    /// Adds what a pass used.
    pub(super) fn extend(&mut self, pass: Use<'_>) {
        let rax = Register::RAX;
        self.used = self.used | pass.used;
        self.slots = self.slots.max(pass.slots);
        self.xmm |= pass.xmm;
        self.floats |= pass.floats;
        // Dead, used by nothing, read by nothing.
        let taken = self.used | pass.reads | self.home_registers();
        let mut spare = (pass.site.dead & !taken).without(Register::RSP).without(rax);
        let mut next_spare = || {
            let register = spare.iter().next()?;
            spare = spare.without(register);
            Some(register)
        };
        if pass.flags {
            let occupied = self.used.contains(rax);
            if self.flags.is_none() || (occupied && self.flags == Some(FlagsHome::Accumulator)) {
                self.flags = Some(match (occupied, occupied.then(&mut next_spare).flatten()) {
                    (false, _) => FlagsHome::Accumulator,
                    (true, Some(register)) => FlagsHome::Register(register),
                    (true, None) => FlagsHome::Stack,
                });
            }
        }
        let touched = if pass.flags { self.used.with(rax) } else { self.used };
        for register in (touched & (!pass.site.dead | pass.reads)).iter() {
            if self.home_of(register).is_none() {
                let home = next_spare().map_or(Home::Stack, Home::Register);
                self.homes.push((register, home));
            }
        }
    }

    pub(super) fn home_of(&self, register: Register) -> Option<Home> {
        self.homes.iter().find(|home| home.0 == register).map(|home| home.1)
    }

    /// The registers that are homes.
    pub(super) fn home_registers(&self) -> RegisterSet {
        let homes = self.homes.iter().fold(RegisterSet::NONE, |set, &(_, home)| match home {
            Home::Register(register) => set.with(register),
            Home::Stack => set,
        });
        match self.flags {
            Some(FlagsHome::Register(register)) => homes.with(register),
            _ => homes,
        }
    }

    fn pushes(&self) -> u32 {
        let registers = self.homes.iter().filter(|home| home.1 == Home::Stack).count() as u32;
        registers + u32::from(self.flags == Some(FlagsHome::Stack))
    }

    /// Where a pushed register is, from the stack pointer.
    pub(super) fn saved_at(&self, register: Register) -> i32 {
        let on_stack = |home: &&(Register, Home)| home.1 == Home::Stack;
        let after =
            self.homes.iter().filter(on_stack).rev().take_while(|home| home.0 != register).count();
        let flags = u32::from(self.flags == Some(FlagsHome::Stack));
        (self.locals() + 8 * (flags + after as u32)) as i32
    }

    /// How much is below what was pushed: slots, vector registers, and the floating-point mode.
    pub(super) fn locals(&self) -> u32 {
        8 * self.slots + 16 * self.xmm.count_ones() + if self.floats { 24 } else { 0 }
    }

    /// How far the stack pointer is moved, but for the red zone.
    pub(super) fn stack_size(&self) -> u32 {
        self.locals() + 8 * self.pushes()
    }

    pub(super) fn uses_stack(&self) -> bool {
        self.stack_size() > 0
    }

    /// Which vector registers are saved, and where.
    pub(super) fn xmm_homes(&self) -> impl Iterator<Item = (u8, i32)> {
        let (set, start) = (self.xmm, 8 * self.slots as i32);
        let used = (0..8).filter(move |number| set >> number & 1 != 0);
        used.enumerate().map(move |(index, number)| (number, start + 16 * index as i32))
    }

    /// Where the floating-point mode is saved.
    pub(super) fn mxcsr(&self) -> Option<i32> {
        self.floats.then(|| (8 * self.slots + 16 * self.xmm.count_ones()) as i32)
    }
}
