//! What a weft that was killed has left in a target.
//!
//! It does no harm there, but it is in the way of "nothing is left". So the weft that attaches next takes it
//! out; only memory whose owner is known to be dead, and only when no thread is in it.

use super::owner::{Named, named};
use crate::arch::instructions::BREAKPOINT;
use crate::base::page::PAGE;
use crate::process::edit::Edit;
use crate::process::memory;
use crate::process::proc::{Mapping, Tid};
use crate::process::stopped::Stopped;
use crate::trip::room::Room;
use crate::trip::sharing::MemoryRange;
use crate::{Result, TargetAddr};
use std::mem::offset_of;
use weft_abi::{
    CHANGE_COUNT, CHANGE_SIZE, CHANGES_OFFSET, Change, ControlBlock, MAGIC, MEMORY_NAME,
    PROBES_MAGIC, PROBES_NAME, PROBES_VERSION, Piece, ProbesHead, VALUES_COUNT, VERSION,
};

/// Memory of wefts that are dead.
pub fn abandoned(pid: Tid, maps: &[Mapping]) -> Vec<MemoryRange> {
    let mut ranges = Vec::new();
    for (index, code) in maps.iter().enumerate().filter(|(_, m)| is_wefts(m) && m.offset == 0) {
        // A weft that died early may have got no further than the executable part.
        let data = maps
            .get(index + 1)
            .filter(|m| is_wefts(m) && m.start == code.end && m.file() == code.file());
        if data.is_none_or(|data| owner_of_agent(pid, data) == Named::Dead) {
            let end = data.map_or(code.end, |data| data.end);
            ranges.push((code.start, end - code.start));
        }
    }
    ranges
}

/// Whether some thread is still on a trip that a dead weft has sent it on. It comes back by itself.
pub fn has_thread_on_trip(stopped: &Stopped, room: &Room, abandoned: &[MemoryRange]) -> bool {
    stopped.threads().values().any(|registers| {
        let at = registers.instruction();
        room.contains(at) || abandoned.iter().any(|&(start, length)| at - start < length)
    })
}

/// Who owns the memory that a control block describes. Memory without a control block was never finished: its
/// owner was killed while it held the target, or else it would hold it now.
fn owner_of_agent(pid: Tid, data: &Mapping) -> Named {
    let pages = (0..data.len()).step_by(PAGE as usize).map(|offset| data.start + offset);
    let word = |at: TargetAddr| memory::word(pid, at);
    let Some(control) = pages.into_iter().find(|&page| word(page) == Some(MAGIC)) else {
        return Named::Dead;
    };
    let version = word(control + offset_of!(ControlBlock, version) as u64).unwrap_or(0) as u32;
    if version != VERSION {
        // It cannot be read, so nothing is known about its owner: let it be.
        return Named::Unknown;
    }
    named(pid, control + offset_of!(ControlBlock, owner) as u64)
}

/// The probes of a weft that is dead.
#[derive(Debug)]
pub struct AbandonedProbes {
    /// What restores the code.
    edits: Vec<Edit>,
    /// Where the code of the probes is.
    pub code: std::ops::Range<TargetAddr>,
    /// All memory that belongs to them.
    pub memory: Vec<MemoryRange>,
}

/// Where a weft has noted what it has changed.
#[derive(Debug)]
pub struct Head {
    pid: Tid,
    /// Where it begins.
    pub at: TargetAddr,
    /// Whether it is of a version that can be read.
    pub is_known: bool,
    /// The weft that has noted it.
    pub owner: Named,
}

/// Where wefts have noted what they have changed in a process.
pub fn heads(pid: Tid, maps: &[Mapping]) -> impl Iterator<Item = Head> {
    let name = format!("/memfd:{PROBES_NAME} (deleted)");
    // A weft that is the process itself may write to those of its targets.
    let is_head = move |m: &&Mapping| m.shared && m.offset == 0 && !m.write && m.path == name;
    let heads = maps.iter().filter(is_head);
    heads.filter_map(move |mapping| {
        let at = mapping.start;
        let head_word = |offset: usize| memory::word(pid, at + offset as u64);
        if head_word(offset_of!(ProbesHead, magic)) != Some(PROBES_MAGIC) {
            // Its owner was killed before it had changed anything.
            return None;
        }
        let version = head_word(offset_of!(ProbesHead, version))? as u32;
        let owner = named(pid, at + offset_of!(ProbesHead, owner) as u64);
        Some(Head { pid, at, is_known: version == PROBES_VERSION, owner })
    })
}

impl Head {
    fn word(&self, offset: usize) -> Option<u64> {
        memory::word(self.pid, self.at + offset as u64)
    }

    fn piece(&self, offset: usize) -> Option<MemoryRange> {
        let start = self.word(offset + offset_of!(Piece, start))?;
        let length = self.word(offset + offset_of!(Piece, length))?;
        (start != 0).then_some((TargetAddr(start), length))
    }

    /// What is noted.
    pub fn changes(&self) -> Vec<Change> {
        let end = self.word(offset_of!(ProbesHead, changes_end)).unwrap_or(0);
        let length = (end as usize).min(CHANGE_COUNT) * size_of::<Change>();
        let bytes = memory::read(self.pid, self.at + CHANGES_OFFSET as u64, length);
        let bytes = bytes.unwrap_or_default();
        // SAFETY: an entry is as long as a `Change`, which is plain bytes.
        let entry = |bytes: &[u8]| unsafe { bytes.as_ptr().cast::<Change>().read_unaligned() };
        let all = bytes.chunks_exact(size_of::<Change>()).map(entry);
        all.filter(|change| (1..=CHANGE_SIZE).contains(&usize::from(change.length))).collect()
    }

    /// The probes, if they can be taken out from what is noted.
    fn probes(&self, maps: &[Mapping]) -> Option<AbandonedProbes> {
        let (code, length) = self.piece(offset_of!(ProbesHead, code))?;
        let values = (0..VALUES_COUNT)
            .filter_map(|n| self.piece(offset_of!(ProbesHead, values) + n * size_of::<Piece>()))
            .filter(|&(start, _)| maps.iter().any(|m| m.start == start));
        let all = self.piece(offset_of!(ProbesHead, all))?;
        let edit = |change: Change| {
            let length = usize::from(change.length);
            Edit {
                at: TargetAddr(change.at),
                old: change.woven[..length].to_vec(),
                new: change.original[..length].to_vec(),
            }
        };
        let changes = self.changes().into_iter().filter(|change| change.original != change.woven);
        let mut edits: Vec<Edit> = changes.map(edit).collect();
        edits.sort_unstable_by_key(|edit| edit.at);
        Some(AbandonedProbes {
            edits,
            code: code..code + length,
            memory: [all].into_iter().chain(values).collect(),
        })
    }
}

impl AbandonedProbes {
    /// What restores the code as it is now. A weft that is killed in the middle of a change leaves some of its
    /// bytes as they were, and may leave a breakpoint for the first of them: see [`crate::process::edit`].
    pub fn edits_now(&self, pid: Tid) -> Result<Vec<Edit>> {
        let places: Vec<_> = self.edits.iter().map(|edit| (edit.at, edit.old.len())).collect();
        let found = memory::read_many(pid, &places)?;
        let now = self.edits.iter().zip(found).filter_map(|(edit, found)| {
            let found = found.filter(|found| is_partly_made(edit, found))?;
            Some(Edit { old: found, ..edit.clone() })
        });
        Ok(now.collect())
    }
}

/// Whether bytes are somewhere between what undoing a change finds and what it leaves, and not yet the latter.
fn is_partly_made(undo: &Edit, found: &[u8]) -> bool {
    let is_known = |(index, &byte): (usize, &u8)| {
        byte == undo.old[index] || byte == undo.new[index] || (index == 0 && byte == BREAKPOINT)
    };
    found != undo.new && found.iter().enumerate().all(is_known)
}

/// The probes of wefts that are dead.
pub fn abandoned_probes(pid: Tid, maps: &[Mapping]) -> Vec<AbandonedProbes> {
    let dead = heads(pid, maps).filter(|head| head.is_known && head.owner == Named::Dead);
    dead.filter_map(|head| head.probes(maps)).collect()
}

/// The weft that has an agent or probes in a process and is not known to be dead.
pub fn living_owner(pid: Tid, maps: &[Mapping]) -> Option<Named> {
    let agents = maps.iter().filter(|m| is_wefts(m) && m.offset != 0);
    let agents = agents.map(|data| owner_of_agent(pid, data));
    agents.chain(heads(pid, maps).map(|head| head.owner)).find(|&owner| owner != Named::Dead)
}

/// Whether a mapping is the memory of some weft that is in the process. In a process that is a weft itself, there is also
/// what it shares with its targets: that begins as what may be written, where a target has code.
pub fn is_wefts(mapping: &Mapping) -> bool {
    let is_own_view = mapping.offset == 0 && mapping.write;
    mapping.shared && mapping.path == format!("/memfd:{MEMORY_NAME} (deleted)") && !is_own_view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_interrupted_is_known() {
        let undo =
            Edit { at: TargetAddr(0), old: vec![0xe9, 1, 2, 3, 4], new: vec![5, 6, 7, 8, 9] };
        for found in [[0xe9, 1, 2, 3, 4], [0xcc, 1, 2, 3, 4], [0xcc, 6, 7, 8, 9], [5, 1, 2, 8, 9]] {
            assert!(is_partly_made(&undo, &found), "{found:?}");
        }
        // What is restored already, and what another tool has written.
        for found in [[5, 6, 7, 8, 9], [0xe9, 1, 2, 3, 9 + 1], [1, 6, 7, 8, 9]] {
            assert!(!is_partly_made(&undo, &found), "{found:?}");
        }
    }
}
