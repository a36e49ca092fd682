//! What a weft that was killed has left in a target.
//!
//! It does no harm there, but it is in the way of "nothing is left". So whoever attaches next takes it
//! out; only memory whose owner is known to be dead, and only when no thread is in it.

use crate::agent::is_wefts;
use crate::proc::{self, Mapping, Tid};
use crate::room::{PAGE, Room};
use crate::stopped::Stopped;
use crate::weave::Edit;
use crate::{Result, TargetAddr, memory};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use weft_abi::{
    CHANGE_COUNT, CHANGE_SIZE, CHANGES_OFFSET, Change, ControlBlock, MAGIC, Owner, PROBES_MAGIC,
    PROBES_NAME, PROBES_VERSION, Piece, ProbesHead, VALUES_COUNT, VERSION,
};

/// A range of the target's memory.
pub type Range = (TargetAddr, u64);

/// Memory of wefts that are dead.
pub fn abandoned(pid: Tid, maps: &[Mapping]) -> Vec<Range> {
    let mut ranges = Vec::new();
    for (index, code) in maps.iter().enumerate().filter(|(_, m)| is_wefts(m) && m.offset == 0) {
        // A weft that died early may have got no further than the executable part.
        let data = maps
            .get(index + 1)
            .filter(|m| is_wefts(m) && m.start == code.end && m.inode == code.inode);
        let owner_lives = data.is_some_and(|data| owner_lives(pid, data));
        if !owner_lives {
            let end = data.map_or(code.end, |data| data.end);
            ranges.push((code.start, end - code.start));
        }
    }
    ranges
}

/// Whether some thread is still on a trip that a dead weft has sent it on. It comes back by itself.
pub fn someone_is_away(stopped: &Stopped, room: &Room, abandoned: &[Range]) -> bool {
    stopped.threads().values().any(|registers| {
        let at = registers.instruction();
        room.contains(at) || abandoned.iter().any(|&(start, length)| at - start < length)
    })
}

/// Whether the owner that a control block names still runs. Memory without a control block was never
/// finished: its owner was killed while it held the target, or else it would hold it now.
fn owner_lives(pid: Tid, data: &Mapping) -> bool {
    let pages = (0..data.len()).step_by(PAGE as usize).map(|offset| data.start + offset);
    let word = |at: TargetAddr| word(pid, at);
    let Some(control) = pages.into_iter().find(|&page| word(page) == Some(MAGIC)) else {
        return false;
    };
    let version = word(control + offset_of!(ControlBlock, version) as u64).unwrap_or(0) as u32;
    if version != VERSION {
        // It cannot be read, so nothing is known about its owner: let it be.
        return true;
    }
    is_alive(pid, control + offset_of!(ControlBlock, owner) as u64)
}

/// Names this weft as the owner.
pub fn sign(owner: &Owner) -> Result<()> {
    let me = std::process::id() as Tid;
    owner.pid.store(me as u64, Relaxed);
    owner.start_time.store(proc::stat(me)?.start_time, Relaxed);
    owner.pid_namespace.store(proc::namespace(me, "pid").unwrap_or(0), Relaxed);
    Ok(())
}

/// Whether the owner that is named at an address of the target still runs, as far as can be known.
fn is_alive(pid: Tid, owner: TargetAddr) -> bool {
    let field = |offset: usize| word(pid, owner + offset as u64).unwrap_or(0);
    let namespace = field(offset_of!(Owner, pid_namespace));
    if Some(namespace) != proc::namespace(std::process::id() as Tid, "pid") {
        return true;
    }
    proc::stat(field(offset_of!(Owner, pid)) as Tid)
        .is_ok_and(|stat| stat.start_time == field(offset_of!(Owner, start_time)))
}

fn word(pid: Tid, at: TargetAddr) -> Option<u64> {
    memory::read(pid, at, 8).ok().map(|b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
}

/// The probes of a weft that is dead.
#[derive(Debug)]
pub struct AbandonedProbes {
    /// What restores the code.
    pub edits: Vec<Edit>,
    /// Where the code of the probes is.
    pub code: std::ops::Range<TargetAddr>,
    /// All memory that belongs to them.
    pub memory: Vec<Range>,
}

/// The probes of wefts that are dead.
pub fn abandoned_probes(pid: Tid, maps: &[Mapping]) -> Vec<AbandonedProbes> {
    let name = format!("/memfd:{PROBES_NAME} (deleted)");
    maps.iter()
        .filter(|m| m.shared && m.offset == 0 && m.path == name)
        .filter_map(|head| {
            let head_word = |offset: usize| word(pid, head.start + offset as u64);
            let is_known = head_word(offset_of!(ProbesHead, magic)) == Some(PROBES_MAGIC)
                && head_word(offset_of!(ProbesHead, version))? as u32 == PROBES_VERSION;
            if !is_known || is_alive(pid, head.start + offset_of!(ProbesHead, owner) as u64) {
                return None;
            }
            let piece = |offset: usize| -> Option<Range> {
                let start = head_word(offset + offset_of!(Piece, start))?;
                let length = head_word(offset + offset_of!(Piece, length))?;
                (start != 0).then_some((TargetAddr(start), length))
            };
            let (code, length) = piece(offset_of!(ProbesHead, code))?;
            let values = (0..VALUES_COUNT)
                .filter_map(|n| piece(offset_of!(ProbesHead, values) + n * size_of::<Piece>()))
                .filter(|&(start, _)| maps.iter().any(|m| m.start == start));
            let all = piece(offset_of!(ProbesHead, all))?;
            Some(AbandonedProbes {
                edits: restoring(pid, head),
                code: code..code + length,
                memory: [all].into_iter().chain(values).collect(),
            })
        })
        .collect()
}

/// The edits that undo the changes which the head of probes notes.
fn restoring(pid: Tid, head: &Mapping) -> Vec<Edit> {
    let mut edits = Vec::new();
    let start = head.start + CHANGES_OFFSET as u64;
    let length = CHANGE_COUNT * size_of::<Change>();
    let bytes = memory::read(pid, start, length).unwrap_or_default();
    for entry in bytes.chunks_exact(size_of::<Change>()) {
        // SAFETY: the entry is as long as a `Change`, which is plain bytes.
        let change: Change = unsafe { entry.as_ptr().cast::<Change>().read_unaligned() };
        let length = usize::from(change.length).min(CHANGE_SIZE);
        if length != 0 {
            edits.push(Edit {
                at: TargetAddr(change.at),
                old: change.woven[..length].to_vec(),
                new: change.original[..length].to_vec(),
            });
        }
    }
    edits.sort_unstable_by_key(|edit| edit.at);
    edits
}
