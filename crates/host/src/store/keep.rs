//! Making files of what was noted.

use super::folder::Folder;
use super::learnt::{Mapping, Window, identity_of};
use crate::arch::cpu::picks_bits;
use crate::trip::image::engine_hash;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};
use weft_abi::stored::{Identity, StoredKey};
use weft_abi::{FIRST_BITS, TABLES_SIZE};
use weft_agent::storing::{self, Executed, Extent};

/// As often as a file's clone has grown by this part of it, it is made anew.
const PART: usize = 10;
/// What is not worth it.
const FEW: usize = 16;
/// What was changed since then may be changed once more at the same time, as far as its file system can tell.
const RECENT: Duration = Duration::from_secs(2);
/// How far a clone lies from its mapping: away from what loaders and the kernel put next to that, and near enough that
/// distances of four bytes reach all of both.
const NEAREST: u64 = 900 << 20;
const FARTHEST: u64 = 1700 << 20;
/// Below it there may be nothing below a mapping, and above it is the heap: its clone leaves room for that.
const LOW: u64 = 1 << 32;
const NEAREST_LOW: u64 = 1600 << 20;
const FARTHEST_LOW: u64 = 1900 << 20;
/// The longest mapping whose code is kept.
const LONGEST: u64 = 256 << 20;
const PAGE: u64 = 4096;

/// What an engine on this machine looks for, if its tables are at a place.
pub fn key_of(identity: Identity, table: u64) -> StoredKey {
    let mask = if picks_bits() { (1 << FIRST_BITS) - 1 } else { 0xffff };
    StoredKey { identity, engine: engine_hash(), table, mask }
}

/// Makes the files anew of which there is more to keep; in the process that has executed them, the engine has arenas.
/// An error is the first one: the others are made all the same.
pub fn keep(
    folder: &Folder,
    mappings: &[Mapping],
    arenas: &[Window],
    table: u64,
) -> io::Result<()> {
    /// As far as the place of an arena differs from run to run.
    const AROUND: u64 = 64 << 20;
    let wide = |&(at, size): &Window| (at.saturating_sub(AROUND), size + 2 * AROUND);
    let mut taken: Vec<Window> = arenas.iter().map(wide).collect();
    for mapping in mappings {
        taken.push((mapping.start, mapping.identity.length));
        taken.extend(mapping.stored);
    }
    let (mut outcome, mut has_made) = (Ok(()), false);
    for mapping in mappings {
        let key = key_of(mapping.identity, table);
        if mapping.stored.is_some() {
            folder.touch(&key);
        }
        if let Some(made) = keep_one(folder, mapping, &key, &mut taken) {
            has_made = true;
            outcome = outcome.and(made);
        }
    }
    if has_made {
        folder.trim();
    }
    outcome
}

fn keep_one(
    folder: &Folder,
    mapping: &Mapping,
    key: &StoredKey,
    taken: &mut Vec<Window>,
) -> Option<io::Result<()>> {
    if mapping.places.len() < FEW && !mapping.is_in_the_way {
        return None;
    }
    let has = folder.block_count(key).unwrap_or_default() as usize;
    if mapping.places.len() < has / PART && !mapping.is_in_the_way {
        return None;
    }
    let before = folder.get(key);
    let mut places =
        before.as_ref().map_or_else(Vec::new, |(header, bytes)| storing::places_of(header, bytes));
    let known: BTreeSet<Executed> = places.iter().copied().collect();
    let old = places.len();
    let mut seen = BTreeSet::new();
    let news = mapping.places.iter().filter(|place| !known.contains(place) && seen.insert(**place));
    places.extend(news);
    let is_more = places.len() - old >= (old / PART).max(FEW);
    let distance = match before {
        Some((header, _)) if !mapping.is_in_the_way => header.distance,
        _ => place_for(mapping.start, mapping.places.len(), key, taken)?,
    };
    if !is_more && !mapping.is_in_the_way {
        return None;
    }
    let code = read_code(&mapping.path, &mapping.identity)?;
    let path = mapping.path.as_os_str().as_bytes();
    let file = storing::store(*key, (path, &code), &places, distance, Extent::Given)?;
    taken.push((mapping.start.wrapping_add(distance), file.len() as u64));
    Some(folder.put(key, &file))
}

/// The code of a mapping, if its file is still what it was.
pub fn read_code(path: &Path, identity: &Identity) -> Option<Vec<u8>> {
    if identity.length > LONGEST || !path.is_absolute() {
        return None;
    }
    // It may be anything by now: a pipe would keep weft waiting.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let is_same = |file: &File| {
        let status = file.metadata().ok()?;
        let now = identity_of(&status, identity.offset, identity.length);
        (status.is_file() && now == *identity).then_some(())
    };
    is_same(&file)?;
    let [seconds, nanoseconds] = identity.changed;
    let changed = Duration::new(seconds, nanoseconds as u32);
    let age =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(changed)?;
    if age < RECENT {
        return None;
    }
    let length = identity.length.min(identity.size.checked_sub(identity.offset)?);
    let mut code = vec![0; length as usize];
    file.read_exact_at(&mut code, identity.offset).ok()?;
    is_same(&file)?;
    Some(code)
}

/// How far from its mapping a clone goes: where nothing of this process is, so that all of its clones have room
/// whenever its loader puts its files side by side again.
pub fn place_for(start: u64, places: usize, key: &StoredKey, taken: &[Window]) -> Option<u64> {
    /// About as much as the clone can take.
    const BYTES_OF_PLACE: u64 = 1024;
    const TRIES: u64 = 64;
    let length = (places as u64 * BYTES_OF_PLACE).max(1 << 20);
    let tables = (key.table, TABLES_SIZE);
    let is_free = |at: u64| {
        taken.iter().chain([&tables]).all(|&(other, size)| {
            at.saturating_add(length) <= other || other.saturating_add(size) <= at
        })
    };
    let is_low = start < LOW;
    let (nearest, farthest) =
        if is_low { (NEAREST_LOW, FARTHEST_LOW) } else { (NEAREST, FARTHEST) };
    let name = key.name();
    let seed = name.iter().fold(start, |seed, &byte| {
        (seed ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
    });
    let mut random = (0..TRIES).map(|number| {
        let mixed = (seed ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25);
        nearest + (mixed ^ mixed >> 31) % (farthest - nearest) / PAGE * PAGE
    });
    random.find_map(|far| {
        let at = if is_low { start.checked_add(far)? } else { start.checked_sub(far)? };
        is_free(at).then(|| at.wrapping_sub(start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_abi::stored::ARENA_SIZE;

    /// The heap of a program at a fixed address is above it, and has to have room.
    #[test]
    fn a_low_program_keeps_room_for_its_heap() {
        const TABLES: u64 = 0x7e00_0000;
        let start = 0x40_0000;
        for inode in 0..1000 {
            let key = key_of(Identity { inode, ..Identity::default() }, TABLES);
            let distance = place_for(start, 300_000, &key, &[]).unwrap();
            let at = start + distance;
            assert!((NEAREST_LOW..=FARTHEST_LOW).contains(&distance));
            assert!(at + 300_000 * 1024 <= TABLES, "{at:x}");
        }
    }

    #[test]
    fn clones_of_one_process_are_not_in_each_others_way() {
        let start = 0x5555_5555_0000;
        let mut taken = vec![(start - (1100 << 20), ARENA_SIZE)];
        for inode in 0..40 {
            let key = key_of(Identity { inode, ..Identity::default() }, 0x7e00_0000);
            let Some(distance) = place_for(start, 4000, &key, &taken) else { continue };
            let place = (start.wrapping_add(distance), 4000 * 1024);
            assert!(
                taken.iter().all(|&(at, size)| place.0 + place.1 <= at || at + size <= place.0)
            );
            taken.push(place);
        }
        assert!(taken.len() > 20, "{}", taken.len());
    }
}
