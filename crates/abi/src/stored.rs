//! Clones that are kept in files: what a program has executed of one of its files is translated once, and mapped by
//! whoever executes that file afterwards.
//!
//! A file holds the clone of one mapping of a file that can be executed. It lies at a fixed distance from that
//! mapping, so that all distances between the two are right wherever the loader has put it. What differs between
//! processes is in *slots*, which are memory of each process.
//!
//! ```text
//!   description      a header, then tables                     read only
//!   code             the front that runs, the cold part        executable
//!   slots            where the agent is, where branches lead   each process has its own
//! ```

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first eight bytes of a file.
pub const STORED_MAGIC: u64 = u64::from_le_bytes(*b"weftsto1");
/// How pages are aligned.
const PAGE: u64 = 4096;
/// The longest code, and the longest description.
pub const LONGEST_CODE: u64 = 64 << 20;
/// See above.
pub const LONGEST_TABLES: u64 = 64 << 20;
/// The most slots.
pub const MOST_SLOTS: u64 = 1 << 22;

/// What is mapped: by what the kernel says of a file when its contents have not changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How long it is.
    pub size: u64,
    /// When it was written last: seconds, nanoseconds.
    pub modified: [u64; 2],
    /// When anything of it was changed.
    pub changed: [u64; 2],
    /// Where in it the mapping begins, and how long that is.
    pub offset: u64,
    /// See above.
    pub length: u64,
}

/// What a clone was made of, and for whom.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredKey {
    /// What was translated.
    pub identity: Identity,
    /// The engine that has translated it.
    pub engine: u64,
    /// Where the first table for indirect branches is, and which bits of an address choose an entry.
    pub table: u64,
    /// See above.
    pub mask: u64,
}

/// A table in a description: where it is, and how many entries it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// How far behind the beginning of the file.
    pub at: u64,
    /// Entries, or bytes of what has none.
    pub count: u64,
}

/// The beginning of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredHeader {
    /// [`STORED_MAGIC`].
    pub magic: u64,
    /// Of everything behind it in the description, and of the code: see [`Checksum`].
    pub checksum: u64,
    /// What it was made of.
    pub key: StoredKey,
    /// From where the mapping begins to where the code does.
    pub distance: u64,
    /// How long the description is, in whole pages.
    pub tables_length: u64,
    /// How long the code is, in whole pages.
    pub code_length: u64,
    /// How much of its front is used, and where its cold part begins.
    pub hot: u64,
    /// See above.
    pub cold: u64,
    /// How many slots there are: first the ways to the agent.
    pub slots: u64,
    /// What was translated: from where to where in the mapping.
    pub first: u64,
    /// See above.
    pub last: u64,
    /// [`StoredBlock`], in the order of their code.
    pub blocks: Table,
    /// The records of all blocks, one after the other.
    pub records: Table,
    /// [`StoredPiece`], the newest last, at the lowest address.
    pub pieces: Table,
    /// [`StoredPlace`]: a hash table, by [`place_hash`].
    pub places: Table,
    /// For each slot that is not a way to the agent where in the code it leads as long as nothing is linked: four bytes.
    pub targets: Table,
    /// The path of the file that it is the clone of, for people.
    pub path: Table,
    /// [`StoredRange`]: where in the mapping there is what was translated.
    pub ranges: Table,
    /// The sum of that: see [`Checksum`].
    pub original: u64,
}

/// A part of a mapping, by distances from its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredRange {
    /// Where it begins.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
}

/// A block. Places in the mapping and in the code are distances from their beginnings.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBlock {
    /// Where its code is.
    pub code: u32,
    /// Where what it was made of begins.
    pub start: u32,
    /// Where that ends.
    pub end: u32,
    /// Where its records begin.
    pub records: u32,
}

/// A piece of the cold part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredPiece {
    /// How far before the end of the code it begins.
    pub distance: u32,
    /// What it is: a [`Cold`](crate::pieces::Cold).
    pub kind: u32,
}

/// Where the code of an address is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredPlace {
    /// The address, plus one; 0 if there is none here.
    pub address: u32,
    /// Where its code is.
    pub body: u32,
    /// Where indirect branches enter; 0 if they cannot. From [`CALL_LENGTH`] on the length of the call right behind which
    /// that is, if there is one.
    pub entry: u32,
}

/// See [`StoredPlace::entry`]: no code is as long as these bits say, and no instruction longer than they can.
pub const CALL_LENGTH: u32 = 28;
const _: () = assert!(LONGEST_CODE <= 1 << CALL_LENGTH);

impl StoredPlace {
    /// Where indirect branches enter, and how long the call is right behind which that is; 0 if there is none.
    pub fn entry(&self) -> (u32, u8) {
        (self.entry & ((1 << CALL_LENGTH) - 1), (self.entry >> CALL_LENGTH) as u8)
    }
}

/// Where in a table of places an address is looked for first.
pub fn place_hash(address: u32) -> usize {
    (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// How many bytes a header takes in a file.
pub const HEADER_LENGTH: usize = size_of::<StoredHeader>();
const HEADER_WORDS: usize = HEADER_LENGTH / 8;
/// From where on a file is part of its checksum.
pub const CHECKED_FROM: usize = 16;

impl StoredHeader {
    /// A header from its bytes.
    pub fn from_bytes(bytes: &[u8; HEADER_LENGTH]) -> Self {
        // SAFETY: it is made of words, as many, and any of them is one.
        unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; HEADER_LENGTH] {
        // SAFETY: it is made of words, and nothing is between them.
        unsafe {
            core::mem::transmute::<[u64; HEADER_WORDS], _>(core::ptr::read(
                core::ptr::from_ref(self).cast(),
            ))
        }
    }

    /// Whether a file of a length can be one that has this header: all that it speaks of is in it.
    pub fn is_sound(&self, file_length: u64) -> bool {
        let is_in = |table: &Table, size: u64| {
            table.at >= HEADER_LENGTH as u64
                && table.at.is_multiple_of(8)
                && table
                    .count
                    .checked_mul(size)
                    .and_then(|length| table.at.checked_add(length))
                    .is_some_and(|end| end <= self.tables_length)
        };
        let is_whole =
            |length: u64, most: u64| length.is_multiple_of(PAGE) && (PAGE..=most).contains(&length);
        self.magic == STORED_MAGIC
            && is_whole(self.tables_length, LONGEST_TABLES)
            && is_whole(self.code_length, LONGEST_CODE)
            && file_length == self.tables_length + self.code_length
            && self.hot <= self.cold
            && self.cold <= self.code_length
            && self.hot.is_multiple_of(8)
            && self.cold.is_multiple_of(8)
            && self.slots <= MOST_SLOTS
            && self.targets.count <= self.slots
            && self.first < self.last
            && self.last <= self.key.identity.length
            && self.places.count.is_power_of_two()
            && self.blocks.count != 0
            && is_in(&self.blocks, size_of::<StoredBlock>() as u64)
            && is_in(&self.records, 1)
            && is_in(&self.pieces, size_of::<StoredPiece>() as u64)
            && is_in(&self.places, size_of::<StoredPlace>() as u64)
            && is_in(&self.targets, 4)
            && is_in(&self.path, 1)
            && is_in(&self.ranges, size_of::<StoredRange>() as u64)
    }

    /// How much memory the slots take.
    pub fn slots_length(&self) -> u64 {
        (self.slots * 8).next_multiple_of(PAGE)
    }
}

/// A sum of bytes by which damage is noticed: quick enough to read all of a file each time that it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Checksum([u64; 4]);

impl Default for Checksum {
    fn default() -> Self {
        Self([
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
        ])
    }
}

impl Checksum {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

    /// Adds bytes: whole words, but for the last that are added.
    pub fn add(&mut self, bytes: &[u8]) {
        let mix = |lane: &mut u64, word: u64| {
            *lane = (*lane ^ word).wrapping_mul(Self::FACTOR);
            *lane ^= *lane >> 29;
        };
        let (rows, rest) = bytes.as_chunks::<32>();
        for row in rows {
            let (words, _) = row.as_chunks::<8>();
            for (lane, word) in self.0.iter_mut().zip(words) {
                mix(lane, u64::from_le_bytes(*word));
            }
        }
        for (index, part) in rest.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            mix(&mut self.0[index], u64::from_le_bytes(word));
        }
        mix(&mut self.0[3], bytes.len() as u64);
    }

    /// The sum.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0x4528_21e6_38d0_1377, |sum: u64, &lane| {
            let mixed = (sum.rotate_left(23) ^ lane).wrapping_mul(Self::FACTOR);
            mixed ^ mixed >> 32
        })
    }
}

/// The sum of a file of this header, of which these are the bytes from [`CHECKED_FROM`] on to the code, the front of the
/// code and its cold part.
pub fn sum_of(tables: &[u8], hot: &[u8], cold: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    [tables, hot, cold].iter().for_each(|part| sum.add(part));
    sum.sum()
}

/// How long the name of a file is, with what it ends in.
pub const NAME_LENGTH: usize = 32 + SUFFIX.len();
/// What names end in.
pub const SUFFIX: &[u8; 6] = b".clone";

impl StoredKey {
    /// The name of the file.
    pub fn name(&self) -> [u8; NAME_LENGTH] {
        // SAFETY: it is made of words, and nothing is between them.
        let bytes = unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>())
        };
        let mut sum = Checksum::default();
        sum.add(bytes);
        let first = sum.sum();
        sum.add(bytes);
        let mut name = [0; NAME_LENGTH];
        for (index, place) in name[..32].iter_mut().enumerate() {
            let half = if index < 16 { first } else { sum.sum() };
            let digit = half >> (60 - 4 * (index % 16)) & 15;
            *place = b"0123456789abcdef"[digit as usize];
        }
        name[32..].copy_from_slice(SUFFIX);
        name
    }
}

/// The most mappings that are noted for one program.
pub const MAPPING_COUNT: usize = 256;
/// The most places that are noted.
pub const LEARNT_COUNT: usize = 1 << 18;
/// How much room the clone takes that is made as a program runs: near each part of its code as much.
pub const ARENA_SIZE: u64 = 128 << 20;
/// How many such places are noted.
pub const ARENA_COUNT: usize = 16;
/// The longest path of a folder that an engine looks in.
pub const LONGEST_FOLDER: usize = 1024;
/// Whose files those are, in a user namespace, that belong to nobody there: so it may be anybody's.
pub const UNMAPPED_USER: u32 = 65_534;
/// How much room there is for the names of folders.
pub const FOLDERS_SIZE: usize = 4096;
/// How much room there is for the name of a file.
pub const PATH_SIZE: usize = 408;

/// In what is learnt: a branch that is not direct leads there.
pub const ENTERED: u64 = 1 << 63;

/// A mapping of a file that can be executed.
#[repr(C)]
#[derive(Debug)]
pub struct NotedMapping {
    /// The words of its [`Identity`].
    pub identity: [AtomicU64; IDENTITY_WORDS],
    /// Where it is.
    pub start: AtomicU64,
    /// Where its clone was mapped from a file, and how much memory that takes; 0 if it was not.
    pub stored: [AtomicU64; 2],
    /// Whether all of this is written: one of [`noted`].
    pub state: AtomicU32,
    /// How long the name of its file is.
    pub path_length: AtomicU32,
    /// That name, in the mount namespace of the program.
    pub path: [AtomicU8; PATH_SIZE],
}

/// What is known of a mapping.
pub mod noted {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// There is no file with its clone.
    pub const NEW: u32 = 1;
    /// Its clone was mapped from a file.
    pub const STORED: u32 = 2;
    /// There is a file, but something else was where it would have gone.
    pub const IN_THE_WAY: u32 = 3;
}

const IDENTITY_WORDS: usize = size_of::<Identity>() / 8;

impl Identity {
    /// Its words.
    pub fn words(&self) -> [u64; IDENTITY_WORDS] {
        // SAFETY: it is made of words, and nothing is between them.
        unsafe { core::mem::transmute(*self) }
    }

    /// An identity from its words.
    pub fn from_words(words: [u64; IDENTITY_WORDS]) -> Self {
        // SAFETY: it is made of words, as many, and any of them is one.
        unsafe { core::mem::transmute(words) }
    }
}

/// What the engine and weft tell each other of clones that are kept in files.
#[repr(C)]
#[derive(Debug)]
pub struct Learnt {
    /// Whether files are used, and what is executed is noted.
    pub is_on: AtomicU32,
    /// How many mappings are noted. The host notes those that are there when the engine begins.
    pub mappings: AtomicU32,
    /// How many places.
    pub count: AtomicU32,
    reserved: AtomicU32,
    /// The folders of the files, one in each line, with a zero behind them.
    pub folder: [AtomicU8; FOLDERS_SIZE],
    /// Where other parts of the clone are, of [`ARENA_SIZE`] bytes each; 0 where there is none.
    pub arenas: [AtomicU64; ARENA_COUNT],
    /// The mappings.
    pub noted: [NotedMapping; MAPPING_COUNT],
    /// What was translated: the number of a mapping in the upper half, with [`ENTERED`] where that holds; the distance
    /// from where that begins, plus one, in the lower half.
    pub places: [AtomicU64; LEARNT_COUNT],
}
