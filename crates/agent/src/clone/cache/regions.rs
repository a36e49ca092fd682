//! What the program has mapped, as far as code is concerned: kept up to date by the system calls that
//! change it.

use crate::clone::base::system;
use crate::clone::base::system::{PROT_EXEC, PROT_READ, PROT_WRITE};
use alloc::vec::Vec;
use weft_abi::REGION_SHARED;

/// A run of pages with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// As the program requested.
    pub protection: usize,
    /// Whether others can change it without this mapping being written to.
    pub is_shared: bool,
}

impl Region {
    /// Addresses where there is nothing, and nothing shall be.
    pub fn kept(start: u64, end: u64) -> Self {
        Self { start, end, protection: system::PROT_NONE, is_shared: false }
    }

    pub fn is_code(&self) -> bool {
        self.protection & PROT_EXEC != 0
    }

    pub fn is_writable(&self) -> bool {
        self.protection & PROT_WRITE != 0
    }
}

/// All that is mapped, in order.
#[derive(Clone, Debug, Default)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// What is mapped according to the host: see [`weft_abi::region_words`].
    pub fn from_host(words: &[u64]) -> Self {
        let region = |&[start, end, how]: &[u64; 3]| Region {
            start,
            end,
            protection: how as usize & (PROT_READ | PROT_WRITE | PROT_EXEC),
            is_shared: how & REGION_SHARED != 0,
        };
        Self(words.as_chunks().0.iter().map(region).collect())
    }

    /// Reads `/proc/self/maps`; `None` if there is no `/proc`, or no descriptor left to read it by. The engine's
    /// own memory is among it.
    pub fn read() -> Option<Self> {
        let mut regions = Self::default();
        // SAFETY: the path is a text that ends with a zero; the buffer outlives the call.
        unsafe {
            let path = c"/proc/self/maps".as_ptr() as usize;
            let file = system::call3(system::OPEN, path, 0x8_0000, 0);
            let file = usize::try_from(file).ok()?;
            let mut text = Vec::new();
            let mut buffer = [0u8; 4096];
            loop {
                let got = system::call3(system::READ, file, buffer.as_mut_ptr() as usize, 4096);
                let Ok(got @ 1..) = usize::try_from(got) else { break };
                text.extend_from_slice(&buffer[..got]);
            }
            system::call3(system::CLOSE, file, 0, 0);
            for line in text.split(|&byte| byte == b'\n') {
                if let Some(region) = parse(line) {
                    regions.0.push(region);
                }
            }
        }
        Some(regions).filter(|regions| !regions.0.is_empty())
    }

    pub fn at(&self, address: u64) -> Option<&Region> {
        let index = self.0.partition_point(|region| region.end <= address);
        self.0.get(index).filter(|region| region.start <= address)
    }

    /// What is mapped from an address on without a gap and can be executed: its end.
    pub fn code_end(&self, address: u64) -> Option<u64> {
        let index = self.0.partition_point(|region| region.end <= address);
        let mut end = None;
        for region in &self.0[index..] {
            let is_next = region.start <= end.unwrap_or(address);
            if !is_next || !region.is_code() || region.protection & PROT_READ == 0 {
                break;
            }
            end = Some(region.end);
        }
        end
    }

    /// Forgets what was mapped in a range.
    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.0.partition_point(|region| region.end <= start);
        let last = self.0.partition_point(|region| region.start < end);
        if first >= last {
            return;
        }
        let before = Region { end: start, ..self.0[first] };
        let after = Region { start: end, ..self.0[last - 1] };
        let kept = [before, after].into_iter().filter(|region| region.start < region.end);
        self.0.splice(first..last, kept);
    }

    /// Remembers what is mapped in a range from now on.
    pub fn insert(&mut self, new: Region) {
        self.remove(new.start, new.end);
        let index = self.0.partition_point(|region| region.start < new.start);
        self.0.insert(index, new);
    }

    /// Changes the protection of what is mapped in a range.
    pub fn protect(&mut self, start: u64, end: u64, protection: usize) {
        let first = self.0.partition_point(|region| region.end <= start);
        let last = self.0.partition_point(|region| region.start < end);
        let inside: Vec<Region> = self.0[first..last.max(first)].to_vec();
        for region in inside {
            let changed =
                Region { start: region.start.max(start), end: region.end.min(end), ..region };
            self.insert(Region { protection, ..changed });
        }
    }

    /// A free range of some size, as near to an address as there is, and well away from everything that
    /// grows.
    pub fn room(&self, near: u64, size: u64) -> Option<u64> {
        const MARGIN: u64 = 32 << 20;
        /// What the program may yet map right below, where there is room for it and more.
        const ROOMY: u64 = 512 << 20;
        const VAST: u64 = 1 << 32;
        /// What may grow down towards the room: a stack.
        const STACK: u64 = 1 << 28;
        const LOWEST: u64 = 1 << 20;
        const HIGHEST: u64 = 0x7fff_ffff_f000;
        let mut best: Option<u64> = None;
        let mut free_from = LOWEST;
        let ends = self.0.iter().map(|region| (region.start, region.end));
        for (start, end) in ends.filter(|ends| ends.0 < HIGHEST).chain([(HIGHEST, HIGHEST)]) {
            let margin = match start.saturating_sub(free_from) {
                _ if start > near => STACK,
                VAST.. => ROOMY,
                _ => MARGIN,
            };
            if start.saturating_sub(free_from) > size + MARGIN + margin {
                // Right below what is there, or above it, but not where a heap grows.
                for candidate in [start - margin - size, free_from + (1 << 29)] {
                    let fits =
                        candidate >= free_from + MARGIN && candidate + size + margin <= start;
                    if fits
                        && best.is_none_or(|best| candidate.abs_diff(near) < best.abs_diff(near))
                    {
                        best = Some(candidate);
                    }
                }
            }
            free_from = free_from.max(end);
        }
        best.map(|at| at & !0xfff)
    }
}

fn parse(line: &[u8]) -> Option<Region> {
    let number = |text: &[u8]| {
        text.iter().try_fold(0u64, |sum, &digit| {
            let value = (digit as char).to_digit(16)?;
            Some(sum << 4 | u64::from(value))
        })
    };
    let mut words = line.split(|&byte| byte == b' ');
    let mut range = words.next()?.split(|&byte| byte == b'-');
    let (start, end) = (number(range.next()?)?, number(range.next()?)?);
    let letters = words.next()?;
    let has = |index: usize, letter: u8| letters.get(index) == Some(&letter);
    let protection = [(0, b'r', PROT_READ), (1, b'w', PROT_WRITE), (2, b'x', PROT_EXEC)]
        .into_iter()
        .filter(|&(index, letter, _)| has(index, letter))
        .map(|(_, _, bit)| bit)
        .sum();
    Some(Region { start, end, protection, is_shared: has(3, b's') })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_near_any_code() {
        let regions = Regions::read().unwrap();
        for region in regions.0.iter().filter(|region| region.is_code()) {
            let end = regions.code_end(region.start);
            if region.start < 1 << 47 {
                assert!(end.is_some_and(|end| end >= region.end), "{region:x?} {end:x?}");
                let room = regions.room(region.start, 128 << 20).unwrap();
                assert!(room.abs_diff(region.start) < 3 << 29, "{room:x} for {region:x?}");
            }
        }
    }
}
