//! Targets of indirect branches within the clone.
//!
//! The clone itself looks in the first table, by the lowest bits of an address: its own address is part of
//! instructions, so it has to be low. What it holds is not certain: the code that it leads to checks. The
//! second table is looked at before a thread leaves, by more of the address, for those that share an entry.

use crate::clone::base::system;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::{FIRST_BITS, SECOND_BITS, TABLES_SIZE, option};

const FIRST: usize = 1 << FIRST_BITS;
/// What chooses an entry of it by instructions that every processor has.
const NARROW: u64 = 0xffff;
const SECOND: usize = 1 << SECOND_BITS;
const MADV_HUGEPAGE: usize = 14;
const SIZE: usize = TABLES_SIZE as usize;
const _: () = assert!(SIZE == FIRST * 8 + SECOND * 16);
/// Spreads addresses over the second table.
pub const FACTOR: i32 = 0x9e37_79b1_u32 as i32;

/// Where they are; 0 while they are nowhere.
static PLACE: AtomicU64 = AtomicU64::new(0);

/// Whether they are in memory that a program is about to change: because that was its own, or because it does not ask
/// what is there.
pub fn are_in(range: &Range<u64>) -> bool {
    let at = PLACE.load(Relaxed);
    at != 0 && range.start < at + TABLES_SIZE && at < range.end
}

/// The first table, for code that looks in it.
#[derive(Clone, Copy, Debug)]
pub struct FirstTable {
    /// Where it is.
    pub at: u32,
    /// Whether more than the lowest sixteen bits of an address choose an entry: those of [`Tables::mask`].
    pub is_wide: bool,
}

/// Both tables.
#[derive(Debug)]
pub struct Tables {
    at: usize,
    /// The bits of an address that choose an entry of the first one.
    pub mask: u64,
    /// If they are in memory that the program has reserved: the flags to `mmap` that it had.
    reserved: usize,
    /// Where branches go that they do not know.
    pub missing: u64,
}

impl Tables {
    /// Maps them, with nothing in them, where the host has found a place; `None` if there is no memory.
    pub fn map(at: usize, reserved: usize, options: u64, missing: u64) -> Option<Self> {
        let place = if reserved == 0 { system::MAP_FIXED_NOREPLACE } else { system::MAP_FIXED };
        let flags = system::MAP_PRIVATE | system::MAP_ANONYMOUS | place;
        let args = [at, SIZE, system::PROT_READ | system::PROT_WRITE, flags, usize::MAX, 0];
        // SAFETY: new memory, where there is nothing, or nothing that can be accessed.
        if unsafe { system::call6(system::MMAP, args) } != at as isize {
            return None;
        }
        if options & option::HUGE_PAGES != 0 {
            // One fault instead of hundreds, and branches miss the processor's table of pages less. Nothing depends
            // on whether the kernel has one.
            // SAFETY: advice about memory that was just mapped.
            let _ = unsafe { system::call3(system::MADVISE, at, FIRST * 8, MADV_HUGEPAGE) };
        }
        let mask = if options & option::PICKS_BITS != 0 { FIRST as u64 - 1 } else { NARROW };
        let mut tables = Self { at, mask, reserved, missing };
        // The kernel gives what is zero: an empty second table.
        tables.clear_first();
        PLACE.store(at as u64, Relaxed);
        Some(tables)
    }

    /// Unmaps them, and leaves the place as it was. No thread may need them any more.
    pub fn unmap(&self) {
        if self.reserved == 0 {
            return system::unmap(self.at, SIZE);
        }
        let args = [self.at, SIZE, 0, self.reserved | system::MAP_FIXED, usize::MAX, 0];
        // SAFETY: only they are there. The kernel makes one mapping of it and what is around it.
        unsafe { system::call6(system::MMAP, args) };
    }

    /// Where they are.
    pub fn range(&self) -> Range<u64> {
        self.at as u64..(self.at + SIZE) as u64
    }

    /// The first one.
    pub fn first(&self) -> FirstTable {
        FirstTable { at: self.at as u32, is_wide: self.mask != NARROW }
    }

    /// Where the second one is.
    pub fn second(&self) -> u64 {
        (self.at + FIRST * 8) as u64
    }

    /// Leads branches to an address to its entry.
    pub fn set(&mut self, address: u64, entry: u64) {
        // SAFETY: within the tables. Others read them meanwhile: an entry of the second is not one for a
        // moment.
        unsafe {
            core::ptr::write_volatile(self.first_of(address), entry);
            let second = self.second_of(address);
            core::ptr::write_volatile(second, self.none_at(second));
            core::ptr::write_volatile(second.add(1), entry);
            core::ptr::write_volatile(second, address);
        }
    }

    /// Leads branches to an address to the agent.
    pub fn forget(&mut self, address: u64) {
        // SAFETY: as above.
        unsafe {
            core::ptr::write_volatile(self.first_of(address), self.missing);
            let second = self.second_of(address);
            if *second == address {
                core::ptr::write_volatile(second, self.none_at(second));
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // SAFETY: the tables lie there.
        unsafe {
            // What is zero already need not be touched.
            let second = core::slice::from_raw_parts_mut(self.second() as *mut [u64; 2], SECOND);
            second.iter_mut().filter(|entry| entry[0] != 0).for_each(|entry| entry[0] = 0);
        }
        self.clear_first();
    }

    /// Forgets everything where the second table is zero.
    fn clear_first(&mut self) {
        // SAFETY: the tables lie there.
        unsafe {
            let used = self.mask as usize + 1;
            core::slice::from_raw_parts_mut(self.at as *mut u64, used).fill(self.missing);
            let none = self.second_of(0);
            *none = self.none_at(none);
        }
    }

    fn first_of(&self, address: u64) -> *mut u64 {
        (self.at + (address & self.mask) as usize * 8) as *mut u64
    }

    /// The address of an entry of the second table that stands for none: one whose entry is another. Programs
    /// do go to address zero.
    fn none_at(&self, entry: *mut u64) -> u64 {
        u64::from(entry == self.second_of(0))
    }

    fn second_of(&self, address: u64) -> *mut u64 {
        let index = (address as u32).wrapping_mul(FACTOR as u32) >> (32 - SECOND_BITS);
        (self.second() as usize + index as usize * 16) as *mut u64
    }
}
