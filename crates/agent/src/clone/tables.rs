//! Where indirect branches find their way within the clone.
//!
//! The first table is asked by the clone itself, by the lowest bits of an address: its own address is part of
//! instructions, so it has to be low. What it holds is not certain: the code that it leads to checks. The
//! second table is asked on the way out, by more of the address, for those that share an entry.

use super::{switch, system};

/// One entry for each value of the lowest sixteen bits of an address.
const FIRST: usize = 1 << 16;
pub const SECOND_BITS: u32 = 16;
const SECOND: usize = 1 << SECOND_BITS;
const SIZE: usize = FIRST * 8 + SECOND * 16;
/// Spreads addresses over the second table.
pub const FACTOR: i32 = 0x9e37_79b1_u32 as i32;
/// Where they may be: below two gigabytes, and best where programs of old, and those that load others, have
/// nothing.
const PLACES: [usize; 4] = [0x7e00_0000, 0x6000_0000, 0x20_0000, 0x10_0000];

/// Both tables.
#[derive(Debug)]
pub struct Tables {
    at: usize,
}

impl Tables {
    /// Maps them, with nothing in them; none if there is no room below two gigabytes.
    pub fn map() -> Option<Self> {
        let flags = system::MAP_PRIVATE | system::MAP_ANONYMOUS | system::MAP_FIXED_NOREPLACE;
        let protection = system::PROT_READ | system::PROT_WRITE;
        for at in PLACES {
            let args = [at, SIZE, protection, flags, usize::MAX, 0];
            // SAFETY: new memory, where there is nothing.
            if unsafe { system::call6(system::MMAP, args) } == at as isize {
                let mut tables = Self { at };
                tables.clear();
                return Some(tables);
            }
        }
        None
    }

    /// Takes them out of memory, where nobody may be who needs them.
    pub fn unmap(&self) {
        system::unmap(self.at, SIZE);
    }

    /// Where they are.
    pub fn range(&self) -> core::ops::Range<u64> {
        self.at as u64..(self.at + SIZE) as u64
    }

    /// Where the first one is.
    pub fn first(&self) -> u32 {
        self.at as u32
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
            core::ptr::write_volatile(second, self.nobody(second));
            core::ptr::write_volatile(second.add(1), entry);
            core::ptr::write_volatile(second, address);
        }
    }

    /// Leads branches to an address to the agent.
    pub fn forget(&mut self, address: u64) {
        // SAFETY: as above.
        unsafe {
            core::ptr::write_volatile(self.first_of(address), missing());
            let second = self.second_of(address);
            if *second == address {
                core::ptr::write_volatile(second, self.nobody(second));
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // SAFETY: the tables lie there.
        unsafe {
            core::slice::from_raw_parts_mut(self.at as *mut u64, FIRST).fill(missing());
            // What is zero already need not be touched.
            let second = core::slice::from_raw_parts_mut(self.second() as *mut [u64; 2], SECOND);
            second.iter_mut().filter(|entry| entry[0] != 0).for_each(|entry| entry[0] = 0);
            let first = self.second_of(0);
            *first = self.nobody(first);
        }
    }

    fn first_of(&self, address: u64) -> *mut u64 {
        (self.at + (address as usize & (FIRST - 1)) * 8) as *mut u64
    }

    /// The address of an entry of the second table that is nobody's: one whose entry is another. Programs
    /// do go to address zero.
    fn nobody(&self, entry: *mut u64) -> u64 {
        u64::from(entry == self.second_of(0))
    }

    fn second_of(&self, address: u64) -> *mut u64 {
        let index = (address as u32).wrapping_mul(FACTOR as u32) >> (32 - SECOND_BITS);
        (self.second() as usize + index as usize * 16) as *mut u64
    }
}

/// Where branches go that the tables do not know.
fn missing() -> u64 {
    switch::gate_missing as *const () as u64
}
