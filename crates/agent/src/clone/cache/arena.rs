//! Memory for the clone: one piece of it, near the code that it is a clone of.
//!
//! It is mapped twice, to be executed here and to be written there, and nowhere both. Code that runs
//! grows from the front, code that rarely runs from the back.

use crate::clone::base::fail::fail;
use crate::clone::base::system;
use crate::clone::base::system::PAGE;
use crate::clone::cache::emit::Out;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::pieces::{Cold, MOST, MOST_COLD, MOST_HOT};
use crate::clone::cache::regions::{Region, Regions};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
use weft_abi::outline::{ArenaOutline, HalfOutline, PieceOutline};
use weft_abi::stored::ARENA_SIZE;

/// How much memory an arena may take; the kernel gives it as it is used.
pub const SIZE: u64 = ARENA_SIZE;
/// How many exits there are.
pub const EXITS: usize = 12;
pub const HEAD: u64 = 16 * EXITS as u64;

/// Exits from the clone.
#[derive(Clone, Copy, Debug)]
pub struct Gates {
    pub exit: u64,
    pub system_call: u64,
    pub wrong: u64,
    pub check: u64,
    pub sequence: u64,
    pub abort: u64,
    pub saved: u64,
    pub refused: u64,
    pub halt: u64,
    pub watch: u64,
    pub unknown: u64,
    pub slot: u64,
}

impl Gates {
    /// Those of a clone that begins at an address.
    pub fn of(start: u64) -> Self {
        let gate = |number: u64| start + number * 16;
        Self {
            exit: gate(0),
            system_call: gate(1),
            wrong: gate(2),
            check: gate(3),
            sequence: gate(4),
            abort: gate(5),
            saved: gate(6),
            refused: gate(7),
            halt: gate(8),
            watch: gate(9),
            unknown: gate(10),
            slot: gate(11),
        }
    }
}

/// What is in one half of an arena.
#[derive(Debug, Default)]
pub struct Half {
    /// Where it begins and ends.
    start: u64,
    end: u64,
    /// Where the next block goes, and where the cold part begins.
    hot: u64,
    cold: u64,
    /// Pieces of the cold part, the newest at the lowest address.
    pieces: Vec<(u32, Cold)>,
    /// Blocks in the order of their addresses.
    pub blocks: Vec<u32>,
}

impl Half {
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether it can be executed.
    fn let_run(&self, may_run: bool) {
        let (start, length) = (self.start as usize, (self.end - self.start) as usize);
        let protection = system::PROT_READ | if may_run { system::PROT_EXEC } else { 0 };
        // SAFETY: an arena's own memory, never to be written here.
        unsafe { system::call3(system::MPROTECT, start, length, protection) };
    }

    /// The piece of the cold part that holds an address: where it begins, and what it is.
    pub fn piece(&self, address: u64) -> Option<(u64, Cold)> {
        if address < self.cold || address >= self.end {
            return None;
        }
        let distance = (self.end - address) as u32;
        let index = self.pieces.partition_point(|&(start, _)| start < distance);
        let &(start, kind) = self.pieces.get(index)?;
        Some((self.end - u64::from(start), kind))
    }
}

#[derive(Debug)]
pub struct Arena {
    /// Where it is executed.
    pub rx: u64,
    /// Where it is written.
    rw: u64,
    gates: Gates,
    /// What is written to.
    pub half: Half,
    /// What was flushed, and threads may still be in.
    pub retired: Half,
    /// Where a child finds its own, while it is being forked.
    copy: usize,
}

/// Where the parts of an arena and of its halves are, for who looks from outside.
pub fn outline() -> (ArenaOutline, HalfOutline, PieceOutline) {
    let arena = ArenaOutline {
        size: size_of::<Arena>() as u64,
        start: offset_of!(Arena, rx) as u64,
        half: offset_of!(Arena, half) as u64,
        retired: offset_of!(Arena, retired) as u64,
        length: SIZE,
        head: HEAD,
    };
    let half = HalfOutline {
        start: offset_of!(Half, start) as u64,
        end: offset_of!(Half, end) as u64,
        cold: offset_of!(Half, cold) as u64,
        pieces: offset_of!(Half, pieces) as u64,
        blocks: offset_of!(Half, blocks) as u64,
    };
    let piece = PieceOutline {
        size: size_of::<(u32, Cold)>() as u64,
        start: offset_of!((u32, Cold), 0) as u64,
        kind: offset_of!((u32, Cold), 1) as u64,
    };
    (arena, half, piece)
}

impl Arena {
    /// Maps an arena near an address. What is known to be mapped need not be all of it.
    pub fn map(near: u64, exits: [u64; EXITS], half: u64, mut known: Regions) -> Option<Self> {
        /// What the heap may grow to before anything else is considered to be near it.
        const HEAP: u64 = 256 << 20;
        let rw = system::map_shared(SIZE as usize)?;
        // It begins up to a gigabyte above the program, and is not mapped before its first use.
        let heap = system::heap_end().next_multiple_of(PAGE);
        known.insert(Region::kept(heap, heap + HEAP));
        let rx = loop {
            let rx = known.room(near, SIZE)?;
            match system::reserve(rx as usize, SIZE as usize) {
                system::EEXIST => known.insert(Region::kept(rx, rx + SIZE)),
                at if at == rx as isize => break rx,
                _ => return None,
            }
        };
        // SAFETY: nothing is there but what was just reserved.
        unsafe { second_view(rw, rx as usize)? };
        let rw = rw as u64;
        let gates = Gates::of(rx);
        let mut head = Out { rw: rw as *mut u8, rx, length: 0 };
        for exit in exits {
            head.bytes(&[0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc]); // jmp [rip + 2]
            head.u64(exit);
        }
        let mut arena =
            Self { rx, rw, gates, half: Half::default(), retired: Half::default(), copy: 0 };
        arena.use_half(half);
        Some(arena)
    }

    /// An arena of a length in a buffer that outlives it, for code that is executed elsewhere, at `rx`. Only for writing.
    pub fn in_buffer(buffer: &mut [u8], rx: u64) -> Self {
        let (start, end) = (rx + HEAD, rx + buffer.len() as u64);
        let half = Half { start, end, hot: start, cold: end, ..Half::default() };
        let rw = buffer.as_mut_ptr() as u64;
        Self { rx, rw, gates: Gates::of(rx), half, retired: Half::default(), copy: 0 }
    }

    /// How far it is filled: its front, its cold part, and how many pieces that has.
    pub fn filled(&self) -> (u64, u64, usize) {
        (self.half.hot, self.half.cold, self.half.pieces.len())
    }

    /// Forgets what was written since it was so far.
    pub fn empty_to(&mut self, (hot, cold, pieces): (u64, u64, usize)) {
        (self.half.hot, self.half.cold) = (hot, cold);
        self.half.pieces.truncate(pieces);
    }

    /// The pieces of the cold part: how far before its end each begins, and what it is.
    pub fn pieces(&self) -> &[(u32, Cold)] {
        &self.half.pieces
    }

    /// Begins anew in one half of the memory.
    fn use_half(&mut self, half: u64) {
        // The exits have a page of their own: it stays executable.
        let start = (self.rx + half * (SIZE / 2)).max(self.rx + PAGE);
        let end = self.rx + (half + 1) * (SIZE / 2);
        self.half = Half { start, end, hot: start, cold: end, ..Half::default() };
    }

    /// Flushes everything and continues in the other half, where no thread may be any more. A thread that is still
    /// in this one faults there, since it is not executable any more, and is led on by the handler.
    pub fn retire(&mut self, half: u64) {
        self.let_retired_run(true);
        self.half.let_run(false);
        let old = core::mem::take(&mut self.half);
        self.use_half(half);
        self.retired = old;
    }

    /// Sets whether what was flushed can be executed.
    pub fn let_retired_run(&self, may_run: bool) {
        if self.retired.end != 0 {
            self.retired.let_run(may_run);
        }
    }

    pub fn gates(&self) -> Gates {
        self.gates
    }

    /// Where it is executed.
    pub fn range(&self) -> Range<u64> {
        self.rx..self.rx + SIZE
    }

    pub fn contains(&self, address: u64) -> bool {
        self.range().contains(&address)
    }

    /// Whether a distance of four bytes from anywhere in here leads to an address.
    pub fn reaches(&self, address: u64) -> bool {
        in_reach(self.rx, address) && in_reach(self.rx + SIZE, address)
    }

    /// The address in here that ends in 32 bits.
    pub fn ending_in(&self, low: u32) -> Option<u64> {
        let address = self.rx + u64::from(low.wrapping_sub(self.rx as u32));
        self.contains(address).then_some(address)
    }

    /// Whether an address is in the jumps to the agent.
    pub fn is_gate(&self, address: u64) -> bool {
        (self.rx..self.rx + HEAD).contains(&address)
    }

    /// How many bytes are in use.
    pub fn used(&self) -> u64 {
        (self.half.hot - self.half.start) + (self.half.end - self.half.cold)
    }

    /// Whether there is room for what a thread may want at once.
    pub fn has_room(&self) -> bool {
        const BLOCKS: usize = 8;
        let most = MOST + MOST * MOST_COLD / MOST_HOT;
        self.half.cold - self.half.hot > (BLOCKS * most) as u64
    }

    /// Where the next block is written.
    pub fn hot(&self) -> Out {
        Out { rw: self.writable(self.half.hot), rx: self.half.hot, length: 0 }
    }

    /// Keeps what was written.
    pub fn take_hot(&mut self, length: usize) {
        self.half.hot = (self.half.hot + length as u64).next_multiple_of(16);
    }

    /// Takes room in the cold part.
    pub fn cold(&mut self, length: usize, kind: Cold) -> Out {
        let half = &mut self.half;
        half.cold = (half.cold - length as u64) & !15;
        half.pieces.push(((half.end - half.cold) as u32, kind));
        Out { rw: self.writable(self.half.cold), rx: self.half.cold, length: 0 }
    }

    /// Where an address of the clone is written.
    pub fn writable(&self, rx: u64) -> *mut u8 {
        (rx - self.rx + self.rw) as *mut u8
    }

    /// Makes a copy for a child that is about to be forked: what it inherits is its parent's, which goes on
    /// changing it.
    pub fn copy_for_child(&mut self) {
        let Some(copy) = system::map_shared(SIZE as usize) else { fail("no memory for a child") };
        let offset = |address: u64| (address - self.rx) as usize;
        let Half { start, end, hot, cold, .. } = self.half;
        let [begin, end, hot, cold] = [start, end, hot, cold].map(offset);
        for (from, to) in [(0, HEAD as usize), (begin, hot), (cold, end)] {
            let target = (copy + from) as *mut u8;
            // SAFETY: new memory, as large as what is copied to it.
            unsafe {
                let source = (self.rw as *const u8).add(from);
                core::ptr::copy_nonoverlapping(source, target, to - from);
            }
        }
        self.copy = copy;
    }

    /// In the child: takes the copy.
    pub fn part_from_parent(&mut self) {
        let size = SIZE as usize;
        // SAFETY: the copy takes the place of both views of this arena.
        unsafe {
            if second_view(self.copy, self.rx as usize).is_none() {
                fail("no memory for a child");
            }
            let moved = system::MREMAP_MAYMOVE | system::MREMAP_FIXED;
            system::call6(system::MREMAP, [self.copy, size, size, moved, self.rw as usize, 0]);
        }
        // The child has one thread, and that is not in there.
        self.retired = Half::default();
    }

    /// In the parent: the copy is the child's.
    pub fn forget_copy(&mut self) {
        system::unmap(self.copy, SIZE as usize);
    }

    /// Unmaps both views, where no thread may be any more.
    pub fn unmap(&self) {
        system::unmap(self.rx as usize, SIZE as usize);
        system::unmap(self.rw as usize, SIZE as usize);
    }
}

/// Maps shared memory a second time, to be executed, at an address.
///
/// # Safety
/// Whatever is at the address is replaced.
unsafe fn second_view(rw: usize, rx: usize) -> Option<()> {
    let size = SIZE as usize;
    // SAFETY: the caller vouches for the place.
    unsafe {
        if !system::map_again(rw, size, rx) {
            return None;
        }
        let protection = system::PROT_READ | system::PROT_EXEC;
        (system::call3(system::MPROTECT, rx, size, protection) == 0).then_some(())
    }
}
