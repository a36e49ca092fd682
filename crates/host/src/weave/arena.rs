//! Memory in the target for the code of probes, near the code that they are woven into.
//!
//! ```text
//! base     one private page    the salt, see `weft_snippet`; zero again in a forked child
//!          --------------------------------------------------------------------------------
//!          head, changes       readable in the target: what a later weft needs to clean up
//!          code                executable in the target, writable only in weft's view
//! ```

use super::extents::Extents;
use crate::arch::{Step, Value};
use crate::base::page::PAGE;
use crate::process::memory;
use crate::process::proc::{self, FileId, Mapping};
use crate::process::stopped::Stopped;
use crate::trip::place;
use crate::trip::sharing::{Sharing, map_shared};
use crate::visited::agent::Agent;
use crate::visited::owner::sign;
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::{
    CHANGE_COUNT, CHANGES_OFFSET, Change, PROBES_MAGIC, PROBES_NAME, PROBES_VERSION, ProbesHead,
};

/// How much code fits.
const CODE: u64 = 64 << 20;
/// The head and the changes.
const HEAD: u64 =
    ((CHANGES_OFFSET + CHANGE_COUNT * size_of::<Change>()) as u64).next_multiple_of(PAGE);
/// All of it.
const LENGTH: u64 = PAGE + HEAD + CODE;
/// How far a jump reaches, with something to spare.
const REACH: u64 = (1 << 31) - (1 << 20);
/// Where pieces of code begin: a jump lands on a whole line of the instruction fetch.
const ALIGNMENT: u64 = 16;

/// One piece of such memory.
#[derive(Debug)]
pub struct Arena {
    base: TargetAddr,
    memory: MmapMut,
    /// Free code, counted from the start of the code.
    free: Extents,
    unused_changes: Vec<u32>,
    changes_end: u32,
    file: FileId,
    since: u64,
}

impl Arena {
    /// Brings one in, as near to an address as there is room.
    pub fn create(
        agent: &mut Agent,
        stopped: &Stopped,
        maps: &[Mapping],
        near: TargetAddr,
        salt: u64,
    ) -> Result<Self> {
        let base = place::find_near(stopped.pid(), maps, near, LENGTH)?;
        let memory = agent.share(stopped, &creating(base))?;
        let mut arena = Self {
            base,
            memory,
            free: Extents::new(0..CODE),
            unused_changes: Vec::new(),
            changes_end: 0,
            file: FileId::default(),
            since: proc::now(),
        };
        let shared = base + PAGE;
        let maps = proc::maps(stopped.pid())?;
        arena.file = maps.iter().find(|m| m.start == shared).map(Mapping::file).unwrap_or_default();
        arena.fill_head()?;
        memory::write(stopped.pid(), arena.salt(), &salt.to_ne_bytes())?;
        Ok(arena)
    }

    fn fill_head(&mut self) -> Result<()> {
        let head = self.head();
        head.version.store(PROBES_VERSION, Relaxed);
        head.size.store(size_of::<ProbesHead>() as u32, Relaxed);
        sign(&head.owner)?;
        head.all.start.store(self.base.0, Relaxed);
        head.all.length.store(LENGTH, Relaxed);
        head.code.start.store(self.code().start.0, Relaxed);
        head.code.length.store(CODE, Relaxed);
        head.magic.store(PROBES_MAGIC, Release);
        Ok(())
    }

    /// What says whose this is and what belongs to it.
    pub fn head(&self) -> &ProbesHead {
        // SAFETY: it is the start of the memory, which is larger and page-aligned; all of its fields
        // are atomics, for which every bit pattern is a value.
        unsafe { &*self.memory.as_ptr().cast() }
    }

    /// What the shared memory is to the kernel, by which those that map it are known.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Where its head is in the target.
    pub fn head_at(&self) -> TargetAddr {
        self.base + PAGE
    }

    /// Whether a process with these mappings has it.
    pub fn is_in(&self, maps: &[Mapping]) -> bool {
        maps.iter().any(|m| m.shared && m.start == self.head_at() && m.file() == self.file)
    }

    /// Since when it is there, in clock ticks since boot.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Everything that is mapped for it.
    pub fn all(&self) -> (TargetAddr, u64) {
        (self.base, LENGTH)
    }

    /// Where the salt is.
    pub fn salt(&self) -> TargetAddr {
        self.base
    }

    /// The addresses of the code.
    pub fn code(&self) -> Range<TargetAddr> {
        let start = self.base + PAGE + HEAD;
        start..start + CODE
    }

    /// Whether jumps between all of a range and all of the arena are possible.
    pub fn reaches(&self, range: &Range<TargetAddr>) -> bool {
        let (low, high) = (self.base.0.min(range.start.0), (self.base.0 + LENGTH).max(range.end.0));
        high - low < REACH
    }

    /// Takes room for code.
    pub fn allocate(&mut self, length: usize) -> Result<TargetAddr> {
        let length = (length as u64).next_multiple_of(ALIGNMENT);
        let start = self.free.take_shortest(length).ok_or_else(|| {
            Error::new(ErrorKind::LimitReached, "there is no room left for the code of probes")
                .why(format!("{} MiB are in use", CODE >> 20))
                .advice("remove some of the probes")
        })?;
        Ok(self.code().start + start)
    }

    /// Gives room back that nobody runs in any more.
    pub fn release(&mut self, at: TargetAddr, length: usize) {
        let start = at - self.code().start;
        self.free.give(start, (length as u64).next_multiple_of(ALIGNMENT));
    }

    /// Gives the end of some room back.
    pub fn shrink(&mut self, at: TargetAddr, length: usize, used: usize) {
        let [length, used] = [length, used].map(|n| (n as u64).next_multiple_of(ALIGNMENT));
        if used < length {
            self.release(at + used, (length - used) as usize);
        }
    }

    /// Writes code, which no thread of the target may be running.
    pub fn write(&mut self, at: TargetAddr, bytes: &[u8]) {
        let offset = (HEAD + (at - self.code().start)) as usize;
        self.memory[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Code that was written.
    pub fn read(&self, at: TargetAddr, length: usize) -> &[u8] {
        let offset = (HEAD + (at - self.code().start)) as usize;
        &self.memory[offset..offset + length]
    }

    /// Notes a change that is about to be made; returns its place in the list.
    pub fn note(&mut self, change: Change) -> Result<u32> {
        let index = match self.unused_changes.pop() {
            Some(index) => index,
            None if (self.changes_end as usize) < CHANGE_COUNT => {
                self.changes_end += 1;
                self.head().changes_end.store(self.changes_end.into(), Release);
                self.changes_end - 1
            }
            None => {
                return Err(Error::new(ErrorKind::LimitReached, "too many places are changed")
                    .advice("remove some of the probes"));
            }
        };
        self.put_change(index, change);
        Ok(index)
    }

    /// Strikes a change out that is undone.
    pub fn strike(&mut self, index: u32) {
        self.put_change(index, Change::default());
        self.unused_changes.push(index);
    }

    fn put_change(&mut self, index: u32, change: Change) {
        let offset = CHANGES_OFFSET + index as usize * size_of::<Change>();
        // SAFETY: the list lies within the memory, and a `Change` is plain bytes. Other wefts read it only
        // in their turn, or when this one is dead.
        unsafe {
            self.memory.as_mut_ptr().add(offset).cast::<Change>().write_unaligned(change);
        }
    }
}

fn creating(base: TargetAddr) -> Sharing {
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let call = |number: i64, args: &[u64]| {
        Step::Call(number, args.iter().copied().map(Value::Const).collect())
    };
    let shared = base + PAGE;
    let steps = vec![
        call(libc::SYS_mmap, &[base.0, PAGE, writable, private, u64::MAX, 0]),
        call(libc::SYS_madvise, &[base.0, PAGE, libc::MADV_WIPEONFORK as u64]),
        map_shared(shared, HEAD, libc::PROT_READ, 0),
        map_shared(shared + HEAD, CODE, libc::PROT_READ | libc::PROT_EXEC, HEAD),
    ];
    Sharing::new(PROBES_NAME, HEAD + CODE, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena {
            base: TargetAddr(0x7000_0000),
            memory: MmapMut::map_anon((HEAD + CODE) as usize).unwrap(),
            free: Extents::new(0..CODE),
            unused_changes: Vec::new(),
            changes_end: 0,
            file: FileId::default(),
            since: 0,
        }
    }

    #[test]
    fn room_comes_back_whole() {
        let mut arena = arena();
        let pieces: Vec<_> = (1..100).map(|n| (arena.allocate(n).unwrap(), n)).collect();
        assert!(pieces.windows(2).all(|w| w[0].0 + w[0].1 as u64 <= w[1].0));
        for &(at, length) in pieces.iter().step_by(2).chain(pieces.iter().skip(1).step_by(2)) {
            arena.release(at, length);
        }
        assert_eq!(arena.free, Extents::new(0..CODE));
        assert!(arena.allocate(CODE as usize + 1).is_err());
    }

    #[test]
    fn changes_are_where_another_weft_looks_for_them() {
        let mut arena = arena();
        let change = |at| Change::new(at, &[1, 2], &[3, 4]).unwrap();
        assert_eq!([1, 2, 3].map(|at| arena.note(change(at)).unwrap()), [0, 1, 2]);
        arena.strike(1);
        assert_eq!(arena.note(change(9)).unwrap(), 1);
        let at = CHANGES_OFFSET + size_of::<Change>();
        assert_eq!(arena.memory[at..at + 8], 9u64.to_le_bytes());
        assert!(Change::new(0, &[0; 16], &[0; 16]).is_none());
    }
}
