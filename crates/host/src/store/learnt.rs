//! What processes have noted of the code that they have executed. They can write anything there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::stored::{
    ARENA_SIZE, ENTERED, Identity, LEARNT_COUNT, Learnt, MAPPING_COUNT, NotedMapping, PATH_SIZE,
    noted,
};
use weft_agent::storing::Executed;

/// Where something is in memory, and how much of it that takes.
pub type Window = (u64, u64);

/// A mapping, and what was executed of it.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// What it is a mapping of, as the process says.
    pub identity: Identity,
    /// Its name there.
    pub path: PathBuf,
    /// Where it was.
    pub start: u64,
    /// Where its clone was mapped from a file.
    pub stored: Option<Window>,
    /// Whether something was where that would have gone.
    pub is_in_the_way: bool,
    /// What there was no clone of in a file, in the order in which it was executed.
    pub places: Vec<Executed>,
}

/// What the kernel says of a file by which its contents are known.
pub fn identity_of(status: &Metadata, offset: u64, length: u64) -> Identity {
    Identity {
        device: status.dev(),
        inode: status.ino(),
        size: status.size(),
        modified: [status.mtime() as u64, status.mtime_nsec() as u64],
        changed: [status.ctime() as u64, status.ctime_nsec() as u64],
        offset,
        length,
    }
}

/// Tells an engine that has not begun to use the files of some folders, and what is mapped already.
pub fn prepare(learnt: &Learnt, folders: &[&Path], maps: &[crate::proc::Mapping]) {
    let names: Vec<&[u8]> = folders.iter().map(|folder| folder.as_os_str().as_bytes()).collect();
    let name = names.join(&b'\n');
    let Some(places) = learnt.folder.get(..name.len() + 1) else { return };
    name.iter().zip(places).for_each(|(byte, place)| place.store(*byte, Relaxed));
    let is_code = |mapping: &&crate::proc::Mapping| {
        mapping.execute && mapping.read && !mapping.write && !mapping.shared && mapping.inode != 0
    };
    let mut count = 0;
    for (mapping, noted) in maps.iter().filter(is_code).zip(&learnt.noted) {
        let Some(status) =
            fs::metadata(&mapping.path).ok().filter(|status| status.ino() == mapping.inode)
        else {
            continue;
        };
        let identity = identity_of(&status, mapping.offset, mapping.len());
        note(noted, &identity, mapping.start.0, mapping.path.as_bytes());
        count += 1;
    }
    learnt.mappings.store(count, Release);
    learnt.is_on.store(1, Release);
}

fn note(noted: &NotedMapping, identity: &Identity, start: u64, path: &[u8]) {
    let words = identity.words();
    words.iter().zip(&noted.identity).for_each(|(word, place)| place.store(*word, Relaxed));
    noted.start.store(start, Relaxed);
    let length = path.len().min(PATH_SIZE);
    path.iter().zip(&noted.path).for_each(|(byte, place)| place.store(*byte, Relaxed));
    noted.path_length.store(length as u32, Relaxed);
}

/// How much was noted so far.
pub fn count(learnt: &Learnt) -> usize {
    (learnt.count.load(Relaxed) as usize).min(LEARNT_COUNT)
}

/// Where the engine has put what it has made as the program ran.
pub fn arenas(learnt: &Learnt) -> Vec<Window> {
    let starts = learnt.arenas.iter().map(|start| start.load(Relaxed));
    starts.filter(|&start| start != 0).map(|start| (start, ARENA_SIZE)).collect()
}

/// What was noted.
pub fn read(learnt: &Learnt) -> Vec<Mapping> {
    let mut places: BTreeMap<usize, Vec<Executed>> = BTreeMap::new();
    for place in &learnt.places[..count(learnt)] {
        let word = place.load(Acquire);
        let number = ((word & !ENTERED) >> 32) as usize;
        // One that is just being written is zero.
        let Some(offset) = (word as u32).checked_sub(1) else { continue };
        let executed = Executed { offset, is_entered: word & ENTERED != 0 };
        places.entry(number).or_default().push(executed);
    }
    let count = (learnt.mappings.load(Acquire) as usize).min(MAPPING_COUNT);
    let mappings = learnt.noted[..count].iter().enumerate();
    mappings
        .filter_map(|(number, noted)| mapping(noted, places.remove(&number).unwrap_or_default()))
        .collect()
}

fn mapping(noted: &NotedMapping, places: Vec<Executed>) -> Option<Mapping> {
    let state = noted.state.load(Acquire);
    if state == noted::NONE {
        return None;
    }
    let length = (noted.path_length.load(Relaxed) as usize).min(PATH_SIZE);
    let path: Vec<u8> = noted.path[..length].iter().map(|byte| byte.load(Relaxed)).collect();
    let window = noted.stored.each_ref().map(|word| word.load(Relaxed));
    Some(Mapping {
        identity: Identity::from_words(noted.identity.each_ref().map(|word| word.load(Relaxed))),
        path: PathBuf::from(OsStr::from_bytes(&path)),
        start: noted.start.load(Relaxed),
        stored: (state == noted::STORED).then_some((window[0], window[1])),
        is_in_the_way: state == noted::IN_THE_WAY,
        places,
    })
}
