//! Blocks of numbers and text that are the same in memory and in the cache.
//!
//! A block begins with what says whether it is intact: a magic number, a version, a checksum of
//! what follows, and the stamp under which it was kept. Reading from a block never goes beyond its
//! end: what is not there reads as 0 or as the empty text.

use std::ops::{Deref, Range};

/// Where the checksum is, and where what it covers begins.
const CHECKSUM_AT: usize = 12;
const CHECKED_FROM: usize = 16;

/// magic (8 bytes), version (4), checksum (4), stamp (8).
pub(crate) const HEADER_SIZE: usize = 24;

/// Where a block lives.
#[derive(Debug)]
pub(crate) enum Block {
    Built(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Built(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// What a block holds, and how.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
}

impl Format {
    /// The beginning of a new block.
    pub(crate) fn begin(self, stamp: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&stamp.to_le_bytes());
        bytes
    }

    /// Whether a block is what was written under this stamp.
    pub(crate) fn accepts(self, block: &Block, stamp: u64) -> bool {
        block.len() >= HEADER_SIZE
            && block.starts_with(&self.magic)
            && block[8..12] == self.version.to_le_bytes()
            && block[16..24] == stamp.to_le_bytes()
            && block[CHECKSUM_AT..CHECKED_FROM] == checksum(block)
    }
}

impl Block {
    /// A block whose contents are complete.
    pub(crate) fn finish(mut bytes: Vec<u8>) -> Self {
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum);
        Self::Built(bytes)
    }

    pub(crate) fn u64_at(&self, column: usize, index: usize) -> u64 {
        let at = column + index * 8;
        let bytes = self.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    pub(crate) fn u32_at(&self, column: usize, index: usize) -> u32 {
        let at = column + index * 4;
        let bytes = self.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    /// The range that a column of ends gives to an index: from the end of the one before.
    pub(crate) fn range_at(&self, ends: usize, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.u32_at(ends, before));
        start as usize..self.u32_at(ends, index) as usize
    }

    /// One of the texts that lie one after the other in a range.
    pub(crate) fn text_at(&self, ends: usize, texts: &Range<usize>, index: usize) -> &str {
        let range = self.range_at(ends, index);
        if range.end > texts.len() {
            return "";
        }
        self.text(texts.start + range.start..texts.start + range.end)
    }

    pub(crate) fn text(&self, range: Range<usize>) -> &str {
        std::str::from_utf8(self.get(range).unwrap_or_default()).unwrap_or_default()
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(&bytes[CHECKED_FROM..]).to_le_bytes()
}
