//! From addresses of the program to its clone.

use crate::clone::cache::blocks::{Block, Start};
use alloc::vec;
use alloc::vec::Vec;

/// Where the code of an address is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub address: u64,
    pub body: u64,
    /// Where indirect branches enter; 0 while there is no such place.
    pub entry: u64,
    pub block: u32,
    /// What counts arrivals otherwise than by direct branches; 0 while nothing does.
    pub counter: u32,
    /// How long the call is right behind which indirect branches enter, and which returns here; 0 if there is none.
    pub call_length: u8,
}

const EMPTY: u64 = 0;
/// No code can be here: the end of the address space.
const GONE: u64 = u64::MAX;

/// Which addresses may have a place: one bit each, so that those of a block lie side by side. Before an
/// instruction is translated its address is looked for, nearly always in vain: in the table that would be a miss of
/// the processor's cache each time.
#[derive(Debug)]
struct Filter(Vec<u64>);

impl Filter {
    /// Half a megabyte, of which the kernel gives what is used.
    const WORDS: usize = 1 << 16;
    /// So many of them are for addresses that follow each other: a page, so that a small program uses few.
    const RUN: usize = 512;

    fn new() -> Self {
        Self(vec![0; Self::WORDS])
    }

    fn bit(address: u64) -> (usize, u64) {
        let run = hash(address / (64 * Self::RUN as u64)) % (Self::WORDS / Self::RUN);
        let word = (address / 64) as usize % Self::RUN;
        (run * Self::RUN + word, 1 << (address % 64))
    }

    fn insert(&mut self, address: u64) {
        let (word, bit) = Self::bit(address);
        self.0[word] |= bit;
    }

    fn may_have(&self, address: u64) -> bool {
        let (word, bit) = Self::bit(address);
        self.0[word] & bit != 0
    }

    fn clear(&mut self) {
        self.0.iter_mut().filter(|word| **word != 0).for_each(|word| *word = 0);
    }
}

/// A hash table with open addressing.
#[derive(Debug)]
pub struct Map {
    places: Vec<Place>,
    /// What was inserted since it was cleared.
    seen: Filter,
    /// How many are not empty.
    filled: usize,
}

fn hash(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl Map {
    pub fn new() -> Self {
        Self { places: vec![Place::default(); 1 << 12], seen: Filter::new(), filled: 0 }
    }

    fn index(&self, address: u64) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let mut index = hash(address) & mask;
        let mut gone = None;
        loop {
            let found = self.places[index].address;
            if found == address {
                return Ok(index);
            }
            if found == EMPTY {
                return Err(gone.unwrap_or(index));
            }
            if found == GONE && gone.is_none() {
                gone = Some(index);
            }
            index = (index + 1) & mask;
        }
    }

    pub fn get(&self, address: u64) -> Option<&Place> {
        if !self.seen.may_have(address) {
            return None;
        }
        self.index(address).ok().map(|index| &self.places[index])
    }

    pub fn get_mut(&mut self, address: u64) -> Option<&mut Place> {
        self.index(address).ok().map(|index| &mut self.places[index])
    }

    pub fn insert(&mut self, place: Place) {
        if self.filled * 2 > self.places.len() {
            self.grow();
        }
        self.seen.insert(place.address);
        match self.index(place.address) {
            Ok(index) => self.places[index] = place,
            Err(index) => {
                self.filled += usize::from(self.places[index].address == EMPTY);
                self.places[index] = place;
            }
        }
    }

    /// Adds what a block has code for.
    pub fn add(&mut self, block: &Block, number: u32) {
        let key = block.starts[0].address;
        for start in &block.starts {
            // The first is what was looked for. Others may be known already; where calls return to, the place
            // right behind the call is the best.
            let known = self.get(start.address);
            let is_better = known.is_none_or(|known| known.entry == 0 && start.entry != 0);
            if is_better || start.address == key {
                let Start { address, body, entry, counter, call_length } = *start;
                self.insert(Place { address, body, entry, block: number, counter, call_length });
            }
        }
    }

    /// All that it has.
    pub fn all(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| place.address != EMPTY && place.address != GONE)
    }

    pub fn remove(&mut self, address: u64) {
        if let Ok(index) = self.index(address) {
            self.places[index].address = GONE;
        }
    }

    pub fn clear(&mut self) {
        self.places.fill(Place::default());
        self.seen.clear();
        self.filled = 0;
    }

    fn grow(&mut self) {
        let live: Vec<Place> = self.all().copied().collect();
        let size = (live.len() * 4).next_power_of_two().max(1 << 12);
        self.places = vec![Place::default(); size];
        self.filled = 0;
        live.into_iter().for_each(|place| self.insert(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Numbers that look random, the same each time.
    fn numbers() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(1u64), |last| {
            Some(last.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f))
        })
        .map(|number| number >> 33)
    }

    #[test]
    fn it_has_what_was_inserted_and_not_removed() {
        let (mut map, mut model) = (Map::new(), HashMap::new());
        let mut numbers = numbers();
        let mut next = move |below: u64| numbers.next().unwrap() % below;
        for round in 0..200_000 {
            // Code in several places, and some that share the filter's bits.
            let module = [0x40_0000, 0x5555_5555_0000, 0x7fff_f7d0_0000][next(3) as usize];
            let address = module + next(1 << 16) + (next(4) << 27);
            match next(8) {
                0 => {
                    map.remove(address);
                    model.remove(&address);
                }
                1..=5 => {
                    let place = Place { address, body: round, ..Place::default() };
                    map.insert(place);
                    model.insert(address, place);
                }
                _ => {}
            }
            assert_eq!(map.get(address), model.get(&address));
            if round % 70_000 == 69_999 {
                map.clear();
                model.clear();
            }
        }
        assert!(model.iter().all(|(&address, place)| map.get(address) == Some(place)));
    }
}
