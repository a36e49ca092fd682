//! The pieces of code that the engine writes, apart from copies of the program's own. None of them
//! changes a flag.
//!
//! The distances within a piece are known to [`super::program_state`], which finds the program's registers in
//! the middle of it.

use crate::clone::cache::branch_tables::FirstTable;
use crate::clone::thread::record;
use crate::clone::thread::record::at;
use weft_abi::pieces::saying;

pub use weft_abi::pieces::{ENTRY, LEAVE, RETURN_ADDRESS, SAVE, THROUGH_TABLE};

/// Bytes that are being written to the clone: through `rw`, to be executed at `rx`.
#[derive(Debug)]
pub struct Out {
    pub rw: *mut u8,
    pub rx: u64,
    pub length: usize,
}

impl Out {
    /// Where the next byte will be executed.
    pub fn here(&self) -> u64 {
        self.rx + self.length as u64
    }

    /// Writes bytes; their number is best known when this is compiled.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: there is room: the caller that made this has checked.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.rw.add(self.length), bytes.len());
        }
        self.length += bytes.len();
    }

    /// Writes the front of sixteen bytes, which is faster than to count.
    #[inline(always)]
    pub fn front(&mut self, bytes: &[u8; 16], length: usize) {
        // SAFETY: there is room for more than that: the caller that made this has checked.
        unsafe { self.rw.add(self.length).cast::<[u8; 16]>().write_unaligned(*bytes) };
        self.length += length;
    }

    pub fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A word that says an address.
    pub fn say(&mut self, address: u64) {
        self.u64(saying(self.here(), address));
    }

    /// The distance from behind the next four bytes to a place, which must be in reach.
    pub fn distance(&mut self, to: u64) {
        let distance = to.wrapping_sub(self.here() + 4) as i64;
        self.u32(distance as i32 as u32);
    }

    /// `mov gs:[offset], register`
    pub fn save(&mut self, register: u8, offset: usize) {
        self.bytes(&[0x65, 0x48 | (register >> 3) << 2, 0x89, (register & 7) << 3 | 4, 0x25]);
        self.u32(offset as u32);
    }

    /// `mov register, gs:[offset]`
    pub fn load(&mut self, register: u8, offset: usize) {
        self.bytes(&[0x65, 0x48 | (register >> 3) << 2, 0x8b, (register & 7) << 3 | 4, 0x25]);
        self.u32(offset as u32);
    }

    /// `mov gs:[offset], register`, of 32 bits
    pub fn save_half(&mut self, register: u8, offset: usize) {
        self.bytes(&[0x65, 0x40 | (register >> 3) << 2, 0x89, (register & 7) << 3 | 4, 0x25]);
        self.u32(offset as u32);
    }

    /// `mov register, gs:[offset]`, of 32 bits
    pub fn load_half(&mut self, register: u8, offset: usize) {
        self.bytes(&[0x65, 0x40 | (register >> 3) << 2, 0x8b, (register & 7) << 3 | 4, 0x25]);
        self.u32(offset as u32);
    }

    /// `mov dword ptr gs:[offset], value`
    pub fn set_half(&mut self, offset: usize, value: u32) {
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.u32(offset as u32);
        self.u32(value);
    }

    /// `mov register, constant`
    pub fn constant(&mut self, register: u8, value: u64) {
        self.bytes(&[0x48 | register >> 3, 0xb8 | register & 7]);
        self.u64(value);
    }

    /// `jmp`
    pub fn jump(&mut self, to: u64) {
        self.byte(0xe9);
        self.distance(to);
    }

    /// Does nothing, so that the four bytes after `opcode` more can be written at once while others
    /// execute them.
    pub fn align_distance(&mut self, opcode: u64) {
        while (self.here() + opcode) % LINE > LINE - 4 {
            self.byte(0x90);
        }
    }

    /// The same for as many bytes as will be written next.
    pub fn align(&mut self, length: u64) {
        while self.here() % LINE > LINE - length {
            self.byte(0x90);
        }
    }
}

/// Whether a distance from behind an instruction can be written in four bytes.
pub fn in_reach(from: u64, to: u64) -> bool {
    i32::try_from(to.wrapping_sub(from) as i64).is_ok()
}

/// A store within a line of the processor's cache is seen as a whole or not at all.
pub const LINE: u64 = 64;

pub const RAX: u8 = 0;
pub const RCX: u8 = 1;

/// The number of the table's entry for the address in `rcx`, to `rax`. No flag is changed. In as many bytes either
/// way, so that the pieces that it is part of are the same on all processors.
fn number(out: &mut Out, table: FirstTable) {
    if table.is_wide {
        out.bytes(&[0x65, 0xc4, 0xe2, 0x72, 0xf5, 0x04, 0x25]); // pext eax, ecx, gs:[mask]
        out.u32(at!(mask) as u32);
    } else {
        out.bytes(&[0x0f, 0xb7, 0xc1]); // movzx eax, cx
        out.bytes(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]); // nop
    }
}

/// Jumps to the entry of the table for the address in `rcx`.
pub fn through_table(out: &mut Out, table: FirstTable) {
    number(out, table);
    out.bytes(&[0xff, 0x24, 0xc5]); // jmp [rax * 8 + table]
    out.u32(table.at);
}

/// The same by a gate, in as many bytes: for code that is not to go on by itself.
pub fn through_gate(out: &mut Out, gate: u64) {
    out.jump(gate);
    out.bytes(&NOTHING);
    out.bytes(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]); // nop
}

/// A return that goes through a gate, up to that: `rcx` and `rax` are the program's when it begins.
pub fn step_out(out: &mut Out, popped: u16) {
    out.save(RCX, at!(rcx));
    out.bytes(&[0x48, 0x8b, 0x0c, 0x24]); // mov rcx, [rsp]
    out.save(RAX, at!(rax));
    out.bytes(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp + 8 + popped]
    out.u32(8 + u32::from(popped));
}

/// A return: `rcx` and `rax` are the program's when it begins.
pub fn ret(out: &mut Out, table: FirstTable, popped: u16) {
    out.save(RCX, at!(rcx));
    out.bytes(&[0x48, 0x8b, 0x0c, 0x24]); // mov rcx, [rsp]
    out.save(RAX, at!(rax));
    number(out, table);
    out.bytes(&[0x48, 0x8b, 0x04, 0xc5]); // mov rax, [rax * 8 + table]
    out.u32(table.at);
    out.bytes(&[0x48, 0x89, 0x04, 0x24]); // mov [rsp], rax
    if popped == 0 {
        out.byte(0xc3);
    } else {
        out.byte(0xc2);
        out.bytes(&popped.to_le_bytes());
    }
}

/// How long [`ret`] is that pops nothing.
pub const RETURN: usize = 46;

/// What indirect branches enter a block by: makes sure that it is the right one, and gives `rax` and
/// `rcx` back.
pub fn entry(out: &mut Out, address: u64, wrong: u64) {
    out.constant(RAX, !address);
    enter(out, wrong);
}

/// The same where the address is another one in each process.
pub fn entry_by_distance(out: &mut Out, address: u64, wrong: u64) {
    out.bytes(&[0x48, 0x8d, 0x05]); // lea rax, [rip + distance]
    out.distance(address);
    out.bytes(&[0x48, 0xf7, 0xd0]); // not rax
    enter(out, wrong);
}

/// An entry from where `rax` is the complement of its address.
fn enter(out: &mut Out, wrong: u64) {
    out.bytes(&[0x48, 0x8d, 0x4c, 0x01, 0x01]); // lea rcx, [rcx + rax + 1]
    out.bytes(&[0xe3, 0x05]); // jrcxz
    out.jump(wrong);
    out.load(RAX, at!(rax));
    out.load(RCX, at!(rcx));
}

/// Puts what a called function finds as its return address in its place, through `rax`. In one piece: a
/// return soon after would wait for two. `word` is where the address stands if it is out of reach.
pub fn return_address(out: &mut Out, address: u64, word: Option<u64>) {
    let (code, at) = match word {
        None => (0x8d, address),    // lea rax, [rip + distance]
        Some(word) => (0x8b, word), // mov rax, [rip + distance]
    };
    out.bytes(&[0x48, code, 0x05]);
    out.distance(at);
    out.bytes(&[0x48, 0x89, 0x04, 0x24]); // mov [rsp], rax
}

/// Puts an address below the stack, where a return has left one of the clone's.
pub fn address_below(out: &mut Out, address: u64) {
    out.bytes(&[0xc7, 0x44, 0x24, 0xf8]); // mov dword ptr [rsp - 8], constant
    out.u32(address as u32);
    out.bytes(&[0xc7, 0x44, 0x24, 0xfc]); // mov dword ptr [rsp - 4], constant
    out.u32((address >> 32) as u32);
}

/// How long [`address_below`] is.
pub const ADDRESS_BELOW: usize = 16;

/// Jumps to a place in another part of the clone, which may be out of reach.
pub fn jump(out: &mut Out, to: u64) {
    if in_reach(out.here() + 5, to) {
        return out.jump(to);
    }
    out.bytes(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
    out.u64(to);
}

/// The most bytes of [`jump`].
pub const FAR_JUMP: usize = 14;

/// Leaves the clone with `rcx` pointing at what follows.
pub fn leave(out: &mut Out, gate: u64) {
    out.save(RCX, at!(rcx));
    out.bytes(&[0x48, 0x8d, 0x0d, 5, 0, 0, 0]); // lea rcx, [rip + 5]
    out.jump(gate);
}

/// The same, with a word behind it that says an address.
pub fn leave_with(out: &mut Out, gate: u64, address: u64) {
    leave(out, gate);
    out.say(address);
}

/// Increments a counter at an offset from `gs`; changes flags if those are free.
pub fn count(out: &mut Out, offset: u32, are_flags_free: bool) {
    if are_flags_free {
        out.bytes(&[0x65, 0x48, 0xff, 0x04, 0x25]); // inc qword ptr gs:[offset]
        out.u32(offset);
        return;
    }
    out.save(RAX, at!(far));
    out.load(RAX, offset as usize);
    out.bytes(&[0x48, 0x8d, 0x40, 0x01]); // lea rax, [rax + 1]
    out.save(RAX, offset as usize);
    out.load(RAX, at!(far));
}

/// Does nothing, in as many bytes as a jump has.
pub const NOTHING: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// The most bytes of [`count`].
pub const COUNT: usize = 4 * SAVE as usize + 4;

/// Where the parts of [`arm`] lead to.
pub struct Armed {
    /// The address of the program's descriptor, and of the clone's.
    pub original: u64,
    pub descriptor: u64,
    /// Where the sequence begins in the program.
    pub start: u64,
    /// The way to the agent.
    pub gate: u64,
}

/// The beginning of a restartable sequence: where the program has announced its descriptor to the kernel, announces
/// the clone's instead. Where none is announced, or the kernel has cleared it, leaves for the agent.
pub fn arm(out: &mut Out, armed: &Armed) {
    const CURRENT: u8 = record::CURRENT as u8;
    let (rax, rcx) = (at!(kept), at!(kept) + 8);
    out.save(RAX, rax);
    out.save(RCX, rcx);
    out.set_half(at!(kept_names), record::kept_names(RAX, RCX));
    out.load(RCX, at!(area));
    out.bytes(&[0x48, 0x8b, 0x49, CURRENT]); // mov rcx, [rcx + CURRENT]
    out.constant(RAX, armed.original.wrapping_neg());
    out.bytes(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx + rax]
    out.bytes(&[0xe3, 18]); // jrcxz to announcing
    out.constant(RAX, armed.original);
    out.bytes(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx + rax]
    out.bytes(&[0xe3, 69]); // jrcxz to leaving
    out.bytes(&[0xeb, 35]); // jmp over announcing
    let announcing = out.length;
    out.load(RCX, at!(area));
    out.constant(RAX, armed.descriptor);
    out.set_half(at!(missed), 0);
    out.bytes(&[0x48, 0x89, 0x41, CURRENT]); // mov [rcx + CURRENT], rax
    debug_assert_eq!(out.length, announcing + 35);
    out.load(RAX, rax);
    out.load(RCX, rcx);
    out.set_half(at!(kept_names), 0);
    out.bytes(&[0xeb, 18 + LEAVE as u8 + 8]); // jmp over leaving
    debug_assert_eq!(out.length, announcing + 67);
    out.load(RAX, rax);
    out.load(RCX, rcx);
    leave_with(out, armed.gate, armed.start);
}
