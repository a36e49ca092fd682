//! What a weft that was killed has left in a target.
//!
//! It does no harm there, but it is in the way of "nothing is left". So whoever attaches next takes it
//! out; only memory whose owner is known to be dead, and only when no thread is in it.

use crate::agent::is_wefts;
use crate::proc::{self, Mapping, Tid};
use crate::room::{PAGE, Room};
use crate::stopped::Stopped;
use crate::{TargetAddr, memory};
use std::mem::offset_of;
use weft_abi::{ControlBlock, MAGIC, Owner, VERSION};

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
    let word = |at: TargetAddr| {
        memory::read(pid, at, 8).ok().map(|b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
    };
    let Some(control) = pages.into_iter().find(|&page| word(page) == Some(MAGIC)) else {
        return false;
    };
    let version = word(control + offset_of!(ControlBlock, version) as u64).unwrap_or(0) as u32;
    if version != VERSION {
        // It cannot be read, so nothing is known about its owner: let it be.
        return true;
    }
    let owner = control + offset_of!(ControlBlock, owner) as u64;
    let field = |offset: usize| word(owner + offset as u64).unwrap_or(0);
    let namespace = field(offset_of!(Owner, pid_namespace));
    if Some(namespace) != proc::namespace(std::process::id() as Tid, "pid") {
        return true;
    }
    proc::stat(field(offset_of!(Owner, pid)) as Tid)
        .is_ok_and(|stat| stat.start_time == field(offset_of!(Owner, start_time)))
}
