//! Changes of code. A page from which code was translated is not writable, whatever the program
//! believes; the first write to it is seen, what was translated from it is forgotten, and the page can
//! be written until code from it is wanted again.

use crate::clone::base::system::{PAGE, PROT_WRITE};
use crate::clone::base::{program, system};
use crate::clone::cache::regions::Regions;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

#[derive(Debug, Default)]
struct Page {
    blocks: Vec<u32>,
    /// Whether the engine has taken the right to write away.
    is_guarded: bool,
    /// How often that was noticed.
    writes: u32,
}

/// After so many writes a page is not guarded any more: its code is looked at whenever it is entered.
const OFTEN: u32 = 200;

/// The pages with code that was translated, by number.
#[derive(Debug, Default)]
pub struct Pages {
    pages: BTreeMap<u64, Page>,
    /// How many of them are guarded.
    guarded: usize,
}

impl Pages {
    /// Makes writes to the page of an address fault, so that they are seen.
    pub fn guard(&mut self, regions: &Regions, address: u64) {
        let number = address / PAGE;
        let Some(region) = regions.at(address).filter(|region| region.is_writable()) else {
            return;
        };
        let page = self.pages.entry(number).or_default();
        if !page.is_guarded {
            page.is_guarded = true;
            self.guarded += 1;
            protect(number, region.protection & !PROT_WRITE);
        }
    }

    /// Whether a page can be read: it is tried once.
    pub fn is_readable(&mut self, address: u64) -> bool {
        let number = address / PAGE;
        let is_known = self.pages.contains_key(&number);
        if !is_known && program::read::<u8>(address).is_some() {
            self.pages.insert(number, Page::default());
            return true;
        }
        is_known
    }

    /// Remembers a block.
    pub fn add(&mut self, start: u64, end: u64, block: u32) {
        for number in start / PAGE..=(end - 1) / PAGE {
            self.pages.entry(number).or_default().blocks.push(block);
        }
    }

    /// Forgets the blocks in a range, and that its pages are guarded; returns them.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<u32> {
        let pages = self.pages.range_mut(start / PAGE..end.div_ceil(PAGE));
        let mut blocks = Vec::new();
        for (_, page) in pages {
            self.guarded -= usize::from(core::mem::take(&mut page.is_guarded));
            blocks.append(&mut page.blocks);
        }
        blocks
    }

    /// The blocks in the pages of a place.
    pub fn blocks_of(&self, place: &Range<u64>) -> Vec<u32> {
        let pages = self.pages.range(place.start / PAGE..place.end.div_ceil(PAGE));
        pages.flat_map(|(_, page)| page.blocks.iter().copied()).collect()
    }

    /// Forgets a range that is no longer what it was.
    pub fn remove(&mut self, start: u64, end: u64) {
        let mut rest = self.pages.split_off(&(start / PAGE));
        let mut after = rest.split_off(&end.div_ceil(PAGE));
        self.guarded -= rest.values().filter(|page| page.is_guarded).count();
        self.pages.append(&mut after);
    }

    /// Remembers that a page was written to.
    pub fn count_write(&mut self, number: u64) {
        if let Some(page) = self.pages.get_mut(&number) {
            page.writes += 1;
        }
    }

    /// Excludes the page of an address from being guarded. Returns its number if it is guarded now.
    pub fn never_guard(&mut self, address: u64) -> Option<u64> {
        self.pages.entry(address / PAGE).or_default().writes = OFTEN + 1;
        self.guarded(address)
    }

    /// Whether a page is written to all the time.
    pub fn is_often_written(&self, address: u64) -> bool {
        self.pages.get(&(address / PAGE)).is_some_and(|page| page.writes > OFTEN)
    }

    /// Forgets all blocks; guarded pages stay so.
    pub fn forget_blocks(&mut self) {
        self.pages.values_mut().for_each(|page| page.blocks.clear());
    }

    /// Whether any page is guarded.
    pub fn has_guarded(&self) -> bool {
        self.guarded != 0
    }

    /// The guarded page that holds an address.
    pub fn guarded(&self, address: u64) -> Option<u64> {
        let number = address / PAGE;
        self.pages.get(&number).filter(|page| page.is_guarded).map(|_| number)
    }

    /// The guarded pages among some that follow an address.
    pub fn guarded_after(&self, address: u64, count: u64) -> Vec<u64> {
        let first = address / PAGE;
        let pages = self.pages.range(first..first + count);
        pages.filter(|(_, page)| page.is_guarded).map(|(&number, _)| number).collect()
    }

    /// All guarded pages.
    pub fn all_guarded(&self) -> Vec<u64> {
        // Where a child was killed that was changing the map, it cannot be walked through: mostly it need not be.
        if !self.has_guarded() {
            return Vec::new();
        }
        self.pages.iter().filter(|(_, page)| page.is_guarded).map(|(&number, _)| number).collect()
    }
}

/// Changes the protection of a page.
pub fn protect(number: u64, protection: usize) {
    // SAFETY: the program's page, with the rights that the program requested, or less.
    unsafe {
        system::call3(system::MPROTECT, (number * PAGE) as usize, PAGE as usize, protection);
    }
}
