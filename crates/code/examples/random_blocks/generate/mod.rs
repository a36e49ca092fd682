//! Blocks of random instructions: anything may be in them, but for what cannot be compared.
//!
//! All addresses that a block reaches are chosen here: registers are set right before an instruction that reaches
//! memory by them. So there is nothing to find where another way of running the code has put something of its own.

mod plain;

use std::collections::HashSet;

use weft_code::iced_x86::{Code, Decoder, InstructionInfoFactory};

use crate::machine::instructions::Random;

/// Where the blocks are.
pub const CODE: u64 = 0x3000_8000_0000;
pub const CODE_SIZE: u64 = 256 << 20;
/// The same memory, at four places: near the code, at both ends of what a distance reaches, and where 32 bits do.
pub const NEAR: u64 = CODE - (16 << 20);
pub const BELOW: u64 = CODE - 0x6f00_0000;
pub const ABOVE: u64 = CODE + CODE_SIZE + 0x6800_0000;
pub const LOW: u64 = 0x2000_0000;
pub const PLACES: [u64; 4] = [NEAR, BELOW, ABOVE, LOW];
/// Four pages for operands, the last of them for indexes, four as a stack, and one that cannot be written.
pub const PAGE: u64 = 4096;
pub const INDEXES: u64 = 3 * PAGE;
pub const STACK: u64 = 4 * PAGE;
pub const WRITABLE: u64 = 8 * PAGE;
pub const MAPPED: u64 = 9 * PAGE;
/// What `gs` is based on.
pub const GS_BASE: u64 = 0x40;

/// A stack pointer that was changed at will is set to the next of these; what lies in the ones before is not looked at.
pub const STACK_PART: u64 = 512;
const STACK_PARTS: u64 = (WRITABLE - STACK) / STACK_PART;

/// Where a stack pointer begins in a part of the stack.
pub fn stack_in(part: u64, random: &mut Random) -> u64 {
    let odd = if random.below(8) == 0 { random.below(8) } else { 0 };
    NEAR + STACK + part * STACK_PART + 256 + 8 * random.below(16) + odd
}

/// What every block starts with.
pub const FIRST_PART: u64 = STACK_PARTS - 1;

/// Flags that a program may set without being trapped: all that count, and the direction of strings.
pub const FLAGS: u64 = 0xcd5;

/// How many functions there may be in functions.
const DEEPEST: u32 = 2;

const RCX: u8 = 1;
const RSP: u8 = 4;

/// Encodings to choose from.
pub struct Forms {
    /// Those that have been seen to run to their end.
    pub running: Vec<[u8; 15]>,
    pub trapping: Vec<[u8; 15]>,
    pub codes: HashSet<Code>,
}

pub struct Generator<'a> {
    forms: &'a Forms,
    pub random: Random,
    factory: InstructionInfoFactory,
    start: u64,
    pub bytes: Vec<u8>,
    /// Where each piece begins; branches lead to pieces.
    pieces: Vec<usize>,
    /// Branches to pieces that are still to come.
    branches: Vec<Branch>,
    /// The parts of the stack that are left.
    parts: u64,
    /// Whether the code can be read but not written.
    is_fixed: bool,
}

struct Branch {
    at: usize,
    width: Width,
    piece: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// A distance of one byte, or of four.
    Short,
    Near,
    /// An address.
    Absolute,
}

/// By what an address is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All bits of a register.
    Any,
    /// A distance of four bytes.
    Distance,
    /// 32 bits.
    Low,
}

/// What an instruction in the middle of something may not do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    None,
    /// It may not change `rcx`, which counts.
    Counting,
    /// It may change neither the stack pointer nor what it points to: there is a return address.
    Called,
}

impl<'a> Generator<'a> {
    pub fn new(forms: &'a Forms, seed: u64, start: u64, is_fixed: bool) -> Self {
        Self {
            forms,
            random: Random(seed),
            factory: InstructionInfoFactory::new(),
            start,
            bytes: Vec::new(),
            pieces: Vec::new(),
            branches: Vec::new(),
            parts: FIRST_PART,
            is_fixed,
        }
    }

    /// Makes a block of at most so many bytes. Whoever comes to its end meets whatever is there.
    pub fn block(&mut self, most: usize) {
        const LONGEST_PIECE: usize = 640;
        let count = 1 + self.random.below(14);
        for _ in 0..count {
            if self.bytes.len() + LONGEST_PIECE > most {
                break;
            }
            self.pieces.push(self.bytes.len());
            self.piece();
        }
        self.pieces.push(self.bytes.len());
        for branch in std::mem::take(&mut self.branches) {
            self.lead(&branch);
        }
    }

    /// Has a branch lead to its piece, or to the last one if there are not so many.
    fn lead(&mut self, branch: &Branch) {
        let target = self.pieces[branch.piece.min(self.pieces.len() - 1)];
        let place = &mut self.bytes[branch.at..];
        match branch.width {
            Width::Short => {
                place[0] = i8::try_from(target - branch.at - 1).unwrap_or(0) as u8;
            }
            Width::Near => {
                let distance = target as i32 - branch.at as i32 - 4;
                place[..4].copy_from_slice(&distance.to_le_bytes());
            }
            Width::Absolute => {
                place[..8].copy_from_slice(&(self.start + target as u64).to_le_bytes());
            }
        }
    }

    fn here(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn chance(&mut self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len() as u64) as usize]
    }

    fn emit(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn piece(&mut self) {
        match self.random.below(100) {
            0..5 => self.conditional(),
            5..7 => self.jump(),
            7..10 => self.count_down(),
            10..13 => self.function(DEEPEST),
            13..15 => self.call(),
            15..20 => self.indirect(),
            20..22 => self.pushed_return(),
            22..24 => self.set_flags(),
            24 => self.odd(),
            25 => self.trapping(),
            _ => self.plain(Care::None),
        }
    }

    /// Leaves room for where a piece from here on will be: its distance or its address.
    fn ahead(&mut self, width: Width) {
        let piece = self.pieces.len() + self.random.below(3) as usize;
        self.branches.push(Branch { at: self.bytes.len(), width, piece });
        let room = match width {
            Width::Short => 1,
            Width::Near => 4,
            Width::Absolute => 8,
        };
        self.bytes.resize(self.bytes.len() + room, 0);
    }

    /// Prefixes that mean nothing to a branch.
    fn idle_prefix(&mut self) {
        if self.chance(4) {
            let prefix = self.pick(&[0x2e, 0x3e, 0xf2, 0x26, 0x36]);
            self.emit(&[prefix]);
        }
        if self.chance(8) {
            let rex = 0x40 | self.random.below(16) as u8;
            self.emit(&[rex]);
        }
    }

    fn conditional(&mut self) {
        self.idle_prefix();
        let condition = self.random.below(16) as u8;
        if self.chance(2) {
            self.emit(&[0x70 | condition]);
            self.ahead(Width::Short);
        } else {
            self.emit(&[0x0f, 0x80 | condition]);
            self.ahead(Width::Near);
        }
    }

    fn jump(&mut self) {
        self.idle_prefix();
        match self.random.below(4) {
            0 => {
                self.emit(&[0xeb]);
                self.ahead(Width::Short);
            }
            1 => {
                self.emit(&[0xe9]);
                self.ahead(Width::Near);
            }
            _ => {
                if self.chance(2) {
                    self.emit(&[0x67]);
                }
                let opcode = self.pick(&[0xe0, 0xe1, 0xe2, 0xe3]);
                self.emit(&[opcode]);
                self.ahead(Width::Short);
            }
        }
    }

    /// A loop by `rcx`.
    fn count_down(&mut self) {
        let times = 1 + self.random.below(6);
        self.set_register(RCX, times);
        let again = self.bytes.len();
        for _ in 0..1 + self.random.below(2) {
            self.plain(Care::Counting);
        }
        if self.chance(4) {
            self.emit(&[0x67]);
        }
        let opcode = self.pick(&[0xe0, 0xe1, 0xe2, 0xe2]);
        let distance = again as i64 - self.bytes.len() as i64 - 2;
        self.emit(&[opcode, i8::try_from(distance).unwrap_or(0) as u8]);
    }

    /// A function that is called and returns, behind a jump over it.
    fn function(&mut self, depth: u32) {
        let call = self.bytes.len();
        self.emit(&[0xe8, 5, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
        for _ in 0..self.random.below(3) {
            if depth > 0 && self.chance(3) {
                self.function(depth - 1);
            } else {
                self.plain(Care::Called);
            }
        }
        if self.chance(6) {
            self.idle_prefix();
        }
        // Not what a function around it returns by.
        if depth == DEEPEST && self.chance(4) {
            let popped = self.random.below(4) as u8 * 8;
            self.emit(&[0xc2, popped, 0]);
        } else {
            self.emit(&[0xc3]);
        }
        let distance = (self.bytes.len() - call - 10) as u32;
        self.bytes[call + 6..call + 10].copy_from_slice(&distance.to_le_bytes());
    }

    /// A call that need not return.
    fn call(&mut self) {
        self.idle_prefix();
        self.emit(&[0xe8]);
        self.ahead(Width::Near);
    }

    /// Sets a register to the address of a piece to come.
    fn address_ahead(&mut self, register: u8) {
        if self.chance(2) {
            self.emit(&[0x48 | (register >> 3) << 2, 0x8d, (register & 7) << 3 | 5]);
            self.ahead(Width::Near);
        } else {
            self.emit(&[0x48 | register >> 3, 0xb8 | register & 7]);
            self.ahead(Width::Absolute);
        }
    }

    fn any_register(&mut self) -> u8 {
        loop {
            let register = self.random.below(16) as u8;
            if register != RSP {
                return register;
            }
        }
    }

    fn indirect(&mut self) {
        let register = self.any_register();
        if self.chance(20) {
            // To where nothing can be executed.
            let nowhere = self.pick(&[NEAR + 64, NEAR - 8, LOW + MAPPED, 0, 0x1000, ABOVE + 3]);
            self.set_register(register, nowhere);
        } else {
            self.address_ahead(register);
        }
        let field = self.pick(&[2_u8, 4]); // call, jmp
        let high = register >> 3;
        match self.random.below(4) {
            0 => {
                self.idle_prefix_without_rex();
                self.emit(&[0x40 | high, 0xff, 0xc0 | field << 3 | register & 7]);
            }
            1 => {
                // By an address relative to the instruction.
                let place = NEAR + 8 * self.random.below(256);
                let distance = self.distance(place, 7);
                self.emit(&[0x48 | high << 2, 0x89, (register & 7) << 3 | 5]);
                self.emit(&distance);
                let place = if self.chance(16) { self.unreadable(Reach::Distance) } else { place };
                let distance = self.distance(place, 6);
                self.emit(&[0xff, field << 3 | 5]);
                self.emit(&distance);
            }
            2 => {
                // By the stack, where a call pushes.
                let offset = self.random.below(4) as u8 * 8;
                self.emit(&[0x48 | high << 2, 0x89, (register & 7) << 3 | 0x44, 0x24, offset]);
                self.idle_prefix_without_rex();
                self.emit(&[0xff, field << 3 | 0x44, 0x24, offset]);
            }
            _ => {
                // By a register and an index, at times of 32 bits.
                let place = NEAR + 8 * self.random.below(256);
                let distance = self.distance(place, 7);
                self.emit(&[0x48 | high << 2, 0x89, (register & 7) << 3 | 5]);
                self.emit(&distance);
                let base = self.any_register();
                let index = self.any_register();
                if base == index {
                    return;
                }
                let scale = self.random.below(4) as u8;
                let offset = self.random.next() as i8;
                let count = self.random.below(16);
                let is_short = self.chance(4);
                let mut target = if is_short { place - NEAR + LOW } else { place };
                if self.chance(16) {
                    let reach = if is_short { Reach::Low } else { Reach::Any };
                    target = self.unreadable(reach);
                }
                let left =
                    target.wrapping_sub(count << scale).wrapping_sub(i64::from(offset) as u64);
                self.set_register(index, count);
                self.set_register(base, if is_short { left & 0xffff_ffff } else { left });
                if is_short {
                    self.emit(&[0x67]);
                }
                let sib = scale << 6 | (index & 7) << 3 | base & 7;
                let rex = 0x40 | (index >> 3) << 1 | base >> 3;
                self.emit(&[rex, 0xff, 0x44 | field << 3, sib, offset as u8]);
            }
        }
    }

    fn idle_prefix_without_rex(&mut self) {
        if self.chance(4) {
            let prefix = self.pick(&[0x2e, 0x3e, 0xf2]);
            self.emit(&[prefix]);
        }
    }

    /// A return to where no call was.
    fn pushed_return(&mut self) {
        let register = self.any_register();
        self.address_ahead(register);
        let (rex, low) = (0x40 | register >> 3, register & 7);
        if self.chance(2) {
            self.emit(&[rex, 0x50 | low]);
        } else {
            self.emit(&[0x48 | (register >> 3) << 2, 0x89, low << 3 | 4, 0x24]);
        }
        if self.chance(3) {
            self.emit(&[0xc2, 16, 0]);
        } else {
            self.emit(&[0xc3]);
        }
    }

    fn set_flags(&mut self) {
        let flags = (self.random.next() & FLAGS | 0x202) as u32;
        self.emit(&[0x68]);
        self.emit(&flags.to_le_bytes());
        self.emit(&[0x9d]);
    }

    /// What always traps.
    fn odd(&mut self) {
        match self.random.below(8) {
            0 => self.emit(&[0xcc]),
            1 => self.emit(&[0xf1]),
            2 => self.emit(&[0x0f, 0x0b]),
            3 => self.emit(&[0x0f, 0xb9, 0xc0]),
            4 => {
                // Longer than instructions can be.
                self.emit(&[0x66; 15]);
                self.emit(&[0x90]);
            }
            5 => self.undecodable(),
            _ => self.without_stack(),
        }
    }

    fn undecodable(&mut self) {
        for _ in 0..64 {
            let mut bytes = [0xcc; 15];
            let head = self.pick(&[&[][..], &[0x0f], &[0x0f, 0x38], &[0xc5], &[0x62], &[0xf0]]);
            bytes[..head.len()].copy_from_slice(head);
            let length = head.len() + 1 + self.random.below(3) as usize;
            for byte in &mut bytes[head.len()..length] {
                *byte = self.random.next() as u8;
            }
            if Decoder::with_ip(64, &bytes, 0, 0).decode().is_invalid() {
                self.emit(&bytes[..length]);
                self.emit(&[0xcc; 12]);
                return;
            }
        }
    }

    /// Has the stack be where there is none.
    fn without_stack(&mut self) {
        let nowhere = self.unreadable(Reach::Any);
        self.set_register(RSP, nowhere);
        match self.random.below(8) {
            0 => self.emit(&[0x50]),
            1 => self.emit(&[0x59]),
            2 => self.call(),
            3 => self.emit(&[0xc3]),
            4 => self.emit(&[0xc2, 8, 0]),
            5 => self.emit(&[0xff, 0xd0]),
            6 => self.emit(&[0xff, 0x24, 0x24]),
            _ => self.emit(&[0xff, 0x14, 0x24]),
        }
        // Should it have been there all the same.
        self.emit(&[0x0f, 0x0b]);
    }

    fn set_register(&mut self, register: u8, value: u64) {
        match u32::try_from(value) {
            Ok(value) if value < 1 << 20 => {
                if register > 7 {
                    self.emit(&[0x41]);
                }
                self.emit(&[0xb8 | register & 7]);
                self.emit(&value.to_le_bytes());
            }
            _ => {
                self.emit(&[0x48 | register >> 3, 0xb8 | register & 7]);
                self.emit(&value.to_le_bytes());
            }
        }
    }

    /// From behind an instruction of so many bytes to a place.
    fn distance(&self, place: u64, length: u64) -> [u8; 4] {
        (place.wrapping_sub(self.here() + length) as u32).to_le_bytes()
    }

    /// An address where so many bytes cannot all be read and written.
    fn nowhere(&mut self, size: u64, reach: Reach) -> u64 {
        let kind = match reach {
            Reach::Any => self.random.below(7),
            Reach::Distance => self.random.below(4),
            Reach::Low => 6 + self.random.below(2),
        };
        match kind {
            0 => ABOVE + WRITABLE - self.random.below(size),
            // Partly there.
            1 => NEAR - 1 - self.random.below(size),
            2 => BELOW + MAPPED - self.random.below(size),
            3 => NEAR + MAPPED + self.random.below(PAGE),
            4 => 0xffff_8000_0000_1000,
            5 => 0x8000_0000_0000_0000 | self.random.next() >> 8,
            6 => self.random.below(PAGE),
            _ => LOW + MAPPED,
        }
    }

    /// An address where eight bytes cannot be read: if they could, they would be somewhere to go.
    fn unreadable(&mut self, reach: Reach) -> u64 {
        loop {
            let address = self.nowhere(8, reach);
            if !(ABOVE..ABOVE + MAPPED).contains(&address) {
                return address;
            }
        }
    }

    /// An address for an operand.
    fn operand(&mut self, size: u64, is_aligned: bool, reach: Reach) -> u64 {
        let odd = !is_aligned && self.chance(4);
        let offset =
            PAGE + 64 * self.random.below(64) + if odd { self.random.below(64) } else { 0 };
        if !is_aligned && self.chance(32) {
            return self.nowhere(size, reach);
        }
        if self.is_fixed && !is_aligned && reach != Reach::Low && self.chance(64) {
            return self.start;
        }
        let place = match reach {
            Reach::Low => LOW,
            Reach::Distance => self.pick(&[NEAR, NEAR, BELOW, ABOVE]),
            _ => self.pick(&PLACES),
        };
        place + offset
    }
}
