//! From addresses of the program to its clone.

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
}

const EMPTY: u64 = 0;
/// No code can be here: the end of the address space.
const GONE: u64 = u64::MAX;

/// A hash table with open addressing.
#[derive(Debug)]
pub struct Map {
    places: Vec<Place>,
    /// How many are not empty.
    filled: usize,
}

fn hash(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl Map {
    pub fn new() -> Self {
        Self { places: vec![Place::default(); 1 << 12], filled: 0 }
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
        self.index(address).ok().map(|index| &self.places[index])
    }

    pub fn get_mut(&mut self, address: u64) -> Option<&mut Place> {
        self.index(address).ok().map(|index| &mut self.places[index])
    }

    pub fn insert(&mut self, place: Place) {
        if self.filled * 2 > self.places.len() {
            self.grow();
        }
        match self.index(place.address) {
            Ok(index) => self.places[index] = place,
            Err(index) => {
                self.filled += usize::from(self.places[index].address == EMPTY);
                self.places[index] = place;
            }
        }
    }

    pub fn remove(&mut self, address: u64) {
        if let Ok(index) = self.index(address) {
            self.places[index].address = GONE;
        }
    }

    pub fn clear(&mut self) {
        self.places.fill(Place::default());
        self.filled = 0;
    }

    fn grow(&mut self) {
        let live = self.places.iter().filter(|p| p.address != EMPTY && p.address != GONE);
        let size = (live.clone().count() * 4).next_power_of_two().max(1 << 12);
        let mut bigger = Self { places: vec![Place::default(); size], filled: 0 };
        for place in live {
            bigger.insert(*place);
        }
        *self = bigger;
    }
}
