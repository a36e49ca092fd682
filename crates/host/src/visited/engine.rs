//! The clone engine in a process, whichever weft has brought it: who that is, and how far it has come.

use super::owner::{Named, named};
use crate::process::memory;
use crate::process::proc::{self, Mapping, Tid};
use crate::process::status::tracer;
use crate::trip::image::engine_hash;
use crate::{Error, ErrorKind, Result};
use std::mem::offset_of;
use weft_abi::{CLONE_MAGIC, CLONE_NAME, CloneControl};

/// Whether a mapping is what an engine shares with weft.
pub fn is_control(mapping: &Mapping) -> bool {
    mapping.shared && mapping.path == format!("/memfd:{CLONE_NAME} (deleted)")
}

/// How far a weft has come with its clone of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is memory to share, and nothing in it.
    Unsigned,
    /// It is said whose it is; all threads are where they were, or go back there.
    Begun,
    /// The process runs from it.
    Joined,
}

/// The clone that a process runs from, or was to run from.
#[derive(Debug)]
pub struct Found {
    pub control: Mapping,
    /// The weft that has brought it.
    pub owner: Named,
    pub stage: Stage,
    /// Whether its engine is the one that this weft has.
    pub is_known: bool,
}

impl Found {
    /// Whether the process runs from it, as far as is known.
    pub fn is_joined(&self) -> bool {
        self.stage == Stage::Joined
    }
}

/// The clone that a process with these mappings runs from, if it does.
pub fn find(pid: Tid, maps: &[Mapping]) -> Option<Found> {
    maps.iter().filter(|mapping| is_control(mapping)).find_map(|control| {
        let found = read(pid, control.clone());
        let is_own_view = match found.stage {
            Stage::Joined => !has_engine(maps, control),
            Stage::Begun | Stage::Unsigned => found.owner == Named::Alive(pid),
        };
        // A process that is a weft itself shares such memory with its targets.
        (!is_own_view).then_some(found)
    })
}

/// Whether there is an engine's image in front of what it shares with weft: its data, and its code before them.
fn has_engine(maps: &[Mapping], control: &Mapping) -> bool {
    let in_front = |end| maps.iter().find(|m| m.end == end && !m.shared && m.inode == 0);
    std::iter::successors(in_front(control.start), |m| in_front(m.start)).any(|m| m.execute)
}

/// What the memory says that an engine shares with weft.
fn read(pid: Tid, control: Mapping) -> Found {
    let word = |offset: usize| memory::word(pid, control.start + offset as u64);
    // A weft that has not come far enough to give it a size has not signed it, either.
    let is_unsigned = || word(offset_of!(CloneControl, magic)).unwrap_or(0) == 0;
    if is_unsigned() {
        // A weft that is about to sign it holds all threads until then.
        let is_dead = !is_held(pid) && is_unsigned();
        let owner = if is_dead { Named::Dead } else { Named::Unknown };
        return Found { control, owner, stage: Stage::Unsigned, is_known: true };
    }
    if word(offset_of!(CloneControl, magic)) != Some(CLONE_MAGIC) {
        let (owner, stage) = (Named::Unknown, Stage::Joined);
        return Found { control, owner, stage, is_known: false };
    }
    let owner = named(pid, control.start + offset_of!(CloneControl, owner) as u64);
    let is_known = word(offset_of!(CloneControl, engine)) == Some(engine_hash());
    let has_begun = is_known && word(offset_of!(CloneControl, is_joined)) == Some(0);
    let stage = if has_begun { Stage::Begun } else { Stage::Joined };
    Found { control, owner, stage, is_known }
}

/// Whether a thread of a process is traced.
fn is_held(pid: Tid) -> bool {
    proc::threads(pid).is_ok_and(|threads| threads.into_iter().any(|tid| tracer(tid).is_some()))
}

/// Fails if the program runs from a clone: its own code, where probes go, is not executed.
pub(crate) fn refuse_clone(pid: Tid, maps: &[Mapping]) -> Result<()> {
    let Some(found) = find(pid, maps) else { return Ok(()) };
    Err(Error::new(ErrorKind::AlreadyTraced, format!("process {pid} runs from a clone"))
        .why(format!("{} has taken it over", found.owner.whose()))
        .advice("end that one first"))
}
