//! Room for a first trip.
//!
//! Before weft has any memory in the target, a thread needs a few hundred bytes of code to fetch some,
//! and other threads may be running anywhere. So they go where no instruction can be: an executable
//! mapping is whole pages, the code in it ends somewhere in the last one, and the rest of that page is
//! padding. Every program has such room in one of its files; the vDSO that the kernel maps has some,
//! too. Nobody reads or executes it, so it does no harm if weft dies and leaves something there; what
//! it leaves is marked, and the next weft wipes it.

use crate::process::memory;
use crate::process::modules::program_headers;
use crate::process::proc::{Mapping, Tid};
use crate::{Error, ErrorKind, Result, TargetAddr};
use object::elf;
use object::read::elf::ProgramHeader;

/// What weft writes first where it makes use of room. Whatever follows it is weft's as well.
const MARK: [u8; 16] = *b"weft\x0f\x0bwas here\0\0";

/// Unused executable bytes of the target, all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    start: TargetAddr,
    length: usize,
    /// How many bytes an earlier weft left there.
    leftover: usize,
}

impl Room {
    /// The room that a target has: one that an earlier weft has used and not wiped, else the largest.
    /// The target must be stopped.
    pub fn find(pid: Tid, maps: &[Mapping]) -> Result<Self> {
        let rooms: Vec<Self> = maps
            .iter()
            .filter(|m| m.execute && !m.write && !m.shared)
            .filter_map(|m| room_in(pid, maps, m))
            .collect();
        rooms.into_iter().max_by_key(|room| (room.leftover, room.length)).ok_or_else(|| {
            Error::new(ErrorKind::UnsupportedTarget, format!("process {pid} has no room for weft"))
                .why("none of its executable mappings ends in unused bytes")
        })
    }

    /// Where a trip's code goes.
    pub fn code(&self) -> TargetAddr {
        self.start + MARK.len() as u64
    }

    /// Whether a weft has left something in it: it is at work, or was killed.
    pub fn is_used(&self) -> bool {
        self.leftover > 0
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: TargetAddr) -> bool {
        (address - self.start) < self.length as u64
    }

    /// Writes a trip's code.
    pub fn fill(&self, pid: Tid, stopped: Tid, code: &[u8]) -> Result<()> {
        let needed = MARK.len() + code.len();
        if needed > self.length {
            return Err(Error::new(
                ErrorKind::UnsupportedTarget,
                format!("process {pid} has too little room for weft"),
            )
            .why(format!("{} unused executable bytes, {needed} needed", self.length)));
        }
        let mut bytes = [&MARK[..], code].concat();
        // Nothing of an earlier, longer trip may stick out.
        bytes.resize(needed.max(self.leftover), 0);
        memory::force_write(pid, stopped, self.start, &bytes)
    }

    /// Makes it what it was, whatever is in it. The mark goes last, so that what is left if weft dies
    /// in between is still known for weft's.
    pub fn wipe(&self, pid: Tid, stopped: Tid) -> Result<()> {
        let body = vec![0; self.length - MARK.len()];
        memory::force_write(pid, stopped, self.start + MARK.len() as u64, &body)?;
        memory::force_write(pid, stopped, self.start, &[0; MARK.len()])
    }
}

fn room_in(pid: Tid, maps: &[Mapping], mapping: &Mapping) -> Option<Room> {
    let code_end = code_end(pid, maps, mapping)?;
    let start = TargetAddr(code_end.0.next_multiple_of(16));
    if start >= mapping.end {
        return None;
    }
    let bytes = memory::read(pid, start, (mapping.end - start) as usize).ok()?;
    free_bytes(&bytes).map(|(skip, leftover)| Room {
        start: start + skip as u64,
        length: bytes.len() - skip,
        leftover,
    })
}

/// In bytes after the end of code: how many to skip until the room starts, and how many an earlier
/// weft has left in it.
fn free_bytes(bytes: &[u8]) -> Option<(usize, usize)> {
    let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    // What is mapped behind the code may be something else of the file, but weft's comes after that.
    if let Some(mark) = bytes.chunks(MARK.len()).position(|chunk| chunk == MARK) {
        let start = mark * MARK.len();
        return Some((start, used - start));
    }
    let start = used.next_multiple_of(MARK.len());
    (bytes.len() > start + MARK.len()).then_some((start, 0))
}

/// Where the code of an executable mapping ends, by the program headers of the file behind it.
fn code_end(pid: Tid, maps: &[Mapping], mapping: &Mapping) -> Option<TargetAddr> {
    let head = maps.iter().rev().find(|m| {
        m.offset == 0
            && m.start <= mapping.start
            && (m.device, m.inode, &m.path) == (mapping.device, mapping.inode, &mapping.path)
    })?;
    let is_file = mapping.inode != 0 || mapping.path == "[vdso]";
    if !is_file {
        return None;
    }
    let (endian, segments) = program_headers(pid, head)?;
    let file_end = mapping.offset + mapping.len();
    let segment = segments.iter().find(|s| {
        let (offset, size) = (s.p_offset(endian), s.p_filesz(endian));
        s.p_type(endian) == elf::PT_LOAD
            && s.p_flags(endian).0 & elf::PF_X.0 != 0
            && offset.checked_add(size).is_some_and(|end| mapping.offset < end && end <= file_end)
    })?;
    let end = segment.p_offset(endian) + segment.p_filesz(endian);
    Some(mapping.start + (end - mapping.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_free() {
        assert_eq!(free_bytes(&[0; 64]), Some((0, 0)));
        assert_eq!(free_bytes(&[1; 64]), None);
        let mut bytes = [0; 64];
        bytes[3] = 1;
        assert_eq!(free_bytes(&bytes), Some((16, 0)));
    }

    #[test]
    fn what_an_earlier_weft_left_is_free() {
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(&MARK);
        assert_eq!(free_bytes(&bytes), Some((0, 14)));
        bytes[16..36].fill(0x90);
        assert_eq!(free_bytes(&bytes), Some((0, 36)));
        // As when it was killed before it had overwritten all of an even earlier one's.
        bytes[60] = 1;
        assert_eq!(free_bytes(&bytes), Some((0, 61)));
        let behind_the_file: Vec<u8> = [[7; 16].as_slice(), &bytes].concat();
        assert_eq!(free_bytes(&behind_the_file), Some((16, 61)));
    }

    #[test]
    fn this_very_program_has_room() {
        let me = std::process::id() as Tid;
        let maps = crate::process::proc::maps(me).unwrap();
        let room = Room::find(me, &maps).unwrap();
        assert!(room.length > 1024, "{room:?}");
        assert!(memory::read(me, room.start, room.length).unwrap().iter().all(|&b| b == 0));
    }
}
