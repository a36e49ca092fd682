//! Where in a process the engine's tables go: their address is part of instructions, so it has to be low.

use crate::process::proc::{self, Mapping, Tid};
use crate::{Error, ErrorKind, Result};
use std::fs;
use weft_abi::TABLES_SIZE;

/// Where they are in most processes.
pub const USUAL: u64 = PLACES[0];

/// Places below two gigabytes, best where programs of old, and those that load others, have nothing.
const PLACES: [u64; 4] = [0x7e00_0000, 0x6000_0000, 0x20_0000, 0x10_0000];

/// Flags of mappings (`VmFlags` in proc(5)) that one has which was reserved and then left alone: it may be made
/// readable, writable and executable; and whether memory was set aside for it.
const PLAIN: [&str; 3] = ["mr", "mw", "me"];
const NO_RESERVE: &str = "nr";

/// A place for the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TablePlace {
    pub at: u64,
    /// If the program has reserved it: the flags to `mmap` that give it back as it was, otherwise 0.
    pub reserved: u64,
}

/// The place for the tables in a process that stands still.
///
/// Some programs reserve everything below four gigabytes, so that what is near a null pointer, or is an offset
/// into a heap that was taken for a pointer, is a fault (Chromium does). Of such memory a piece is borrowed:
/// nothing may be accessed there and nothing was ever written to it.
pub(super) fn find_place(pid: Tid) -> Result<TablePlace> {
    let maps = proc::maps(pid)?;
    let touches = |mapping: &Mapping, at| mapping.start.0 < at + TABLES_SIZE && at < mapping.end.0;
    if let Some(at) = PLACES.into_iter().find(|&at| !maps.iter().any(|one| touches(one, at))) {
        return Ok(TablePlace { at, reserved: 0 });
    }
    let smaps = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
    borrowed(&String::from_utf8_lossy(&smaps)).ok_or_else(|| {
        Error::new(
            ErrorKind::UnsupportedTarget,
            format!("process {pid} has no room for the engine"),
        )
        .why("it uses all memory below two gigabytes")
    })
}

/// A place in memory that was reserved and never used, from what the kernel says of all mappings.
fn borrowed(smaps: &str) -> Option<TablePlace> {
    let mut lines = smaps.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(mapping) = proc::parse_mapping(line) else { continue };
        let mut details = Vec::new();
        while let Some(detail) = lines.next_if(|line| proc::parse_mapping(line).is_none()) {
            details.extend(detail.split_once(':'));
        }
        let is_around = |at: u64| mapping.start.0 <= at && at + TABLES_SIZE <= mapping.end.0;
        let Some(at) = PLACES.into_iter().find(|&at| is_around(at)) else { continue };
        return reserved_flags(&mapping, &details).map(|reserved| TablePlace { at, reserved });
    }
    None
}

/// The flags that make a mapping as this one, if nothing can be lost of it.
fn reserved_flags(mapping: &Mapping, details: &[(&str, &str)]) -> Option<u64> {
    let detail = |name: &str| details.iter().find(|one| one.0 == name).map(|one| one.1.trim());
    let is_closed = !(mapping.read || mapping.write || mapping.execute || mapping.shared);
    let is_empty = ["Rss", "Swap"].iter().all(|name| detail(name) == Some("0 kB"));
    let flags: Vec<&str> = detail("VmFlags")?.split_whitespace().collect();
    let is_plain = flags.iter().all(|flag| PLAIN.contains(flag) || *flag == NO_RESERVE)
        && PLAIN.iter().all(|flag| flags.contains(flag));
    if !is_closed || !is_empty || !is_plain || mapping.inode != 0 || !mapping.path.is_empty() {
        return None;
    }
    let no_reserve = if flags.contains(&NO_RESERVE) { libc::MAP_NORESERVE } else { 0 };
    Some((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | no_reserve) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: &str = "00010000-100100000 ---p 00000000 00:00 0 \nSize: 4195264 kB\nRss: 0 kB\n\
        Swap: 0 kB\nVmFlags: mr mw me \n";

    #[test]
    fn what_is_reserved_and_empty_is_borrowed() {
        let plain = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let place = |reserved| Some(TablePlace { at: PLACES[0], reserved });
        assert_eq!(borrowed(GUARD), place(plain));
        let unreserved = GUARD.replace("me ", "me nr sd").replace("sd", "");
        assert_eq!(borrowed(&unreserved), place(plain | libc::MAP_NORESERVE as u64));
    }

    #[test]
    fn what_may_be_in_use_is_left_alone() {
        for (part, other) in [
            ("---p", "r--p"),
            ("---p", "---s"),
            ("Rss: 0 kB", "Rss: 4 kB"),
            ("Swap: 0 kB", "Swap: 4 kB"),
            ("me ", "me um"),
            ("me ", "me dc"),
            ("mr mw me", "mr me"),
            ("00:00 0 ", "00:00 0   [anon:heap]"),
            ("00:00 0 ", "fe:00 12   /lib/x.so"),
            ("00010000-100100000", "00010000-00100000"),
            ("VmFlags: mr mw me", "Locked: 0 kB"),
        ] {
            assert!(GUARD.contains(part));
            assert_eq!(borrowed(&GUARD.replace(part, other)), None, "{other}");
        }
    }
}
