//! Memory in the target that probes measure into, and that weft reads while they do.

use super::extents::Extents;
use crate::process::proc::{self, FileId, Mapping, Tid};
use crate::trip::place;
use crate::trip::sharing::{Sharing, map_shared};
use crate::{Result, TargetAddr};
use memmap2::MmapMut;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use weft_abi::VALUES_NAME;
use weft_snippet::layout::{ALIGNMENT, Place, Region, header};
use weft_snippet::read::{self, Slab};
use weft_snippet::{Datum, renew};

/// How many threads have values of their own: a power of two. Where each has much, fewer.
const SLABS_LOG2: u8 = 10;
/// How long all slabs may be together.
const LENGTH_LOG2: u8 = 30;
/// How much each of them has, at least and at most: powers of two. It takes real memory only where it
/// is written to.
const STRIDE_LOG2: std::ops::RangeInclusive<u8> = 17..=24;
/// How much of that is for the state of threads, at least.
const STATE: u64 = 16 << 10;
/// What aligning data may cost in all.
const SLACK: u64 = 128;
/// The lowest bits of a thread's `fs` base that tell threads apart: those of a page, and Go's, whose
/// thread structures are about two kilobytes apart.
const KEY_SHIFT: u8 = 12;
const GO_KEY_SHIFT: u8 = 11;

/// One piece of such memory.
#[derive(Debug)]
pub struct Values {
    /// Where slab 0 is.
    pub base: TargetAddr,
    /// Its shape.
    pub region: Region,
    memory: MmapMut,
    file: FileId,
    /// A slab of weft's own, with what processes have measured that have ended and whose slabs others
    /// have; empty while there are none.
    departed: Vec<AtomicU64>,
    /// How often slabs had been claimed when it was last seen to how many are free.
    claims: u64,
    /// What is free of each slab.
    state: Extents,
    sums: Extents,
}

/// What a probe has taken of some values.
#[derive(Debug)]
pub struct Room {
    /// Which of the weaver's values.
    pub values: usize,
    taken: Vec<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    place: Place,
    state: u32,
    sums: u32,
}

impl Room {
    /// Nothing yet.
    pub fn new(values: usize) -> Self {
        Self { values, taken: Vec::new() }
    }
}

impl Values {
    /// Brings one into a process that has room for these data; `is_go` says that it is a Go program.
    pub fn create(
        pid: Tid,
        share: &mut dyn FnMut(&Sharing) -> Result<MmapMut>,
        needs: Needs,
        is_go: bool,
    ) -> Result<Self> {
        let region = needs.region(is_go);
        let length = region.size() as u64;
        let base = place::find(pid, &proc::maps(pid)?, length)?;
        let map = map_shared(base, length, libc::PROT_READ | libc::PROT_WRITE, 0);
        let mut memory = share(&Sharing::new(VALUES_NAME, length, vec![map]))?;
        region.initialise(&mut memory);
        let maps = proc::maps(pid)?;
        let file = maps.iter().find(|m| m.start == base).map(Mapping::file).unwrap_or_default();
        let state_end = u64::from(region.state_end);
        Ok(Self {
            base,
            region,
            memory,
            file,
            departed: Vec::new(),
            claims: 0,
            state: Extents::new(header::SIZE.into()..state_end),
            sums: Extents::new(state_end.next_multiple_of(64)..region.stride() as u64),
        })
    }

    /// Whether a process with these mappings has it.
    pub fn is_in(&self, maps: &[Mapping]) -> bool {
        maps.iter().any(|m| m.shared && m.start == self.base && m.file() == self.file)
    }

    /// A place for a datum, if there is room.
    pub fn place(&mut self, datum: &Datum, room: &mut Room) -> Option<Place> {
        let (state, sums) = (datum.state_size(), datum.size());
        let take = |free: &mut Extents, size: u32, alignment: u32| match size {
            0 => Some(0),
            _ => free.take_lowest(size.into(), alignment.into()),
        };
        let state_at = take(&mut self.state, state, ALIGNMENT)?;
        let Some(sums_at) = take(&mut self.sums, sums, datum.alignment()) else {
            self.state.give(state_at, state.into());
            return None;
        };
        let place = Place { state: state_at as u32, sums: sums_at as u32 };
        room.taken.push(Taken { place, state, sums });
        Some(place)
    }

    /// Gives room back that nothing was measured into.
    pub fn give_back(&mut self, room: Room) {
        for Taken { place, state, sums } in room.taken {
            self.state.give(place.state.into(), state.into());
            self.sums.give(place.sums.into(), sums.into());
        }
    }

    /// Gives room back that no code measures into any more: it is zero for the next probe.
    pub fn recycle(&mut self, room: Room) {
        for slab in self.all_slabs().filter(Slab::was_used).chain(self.departed()) {
            for &Taken { place, state, sums } in &room.taken {
                slab.clear(place.state, state);
                slab.clear(place.sums, sums);
            }
        }
        self.give_back(room);
    }

    /// What is mapped for it.
    pub fn all(&self) -> (TargetAddr, u64) {
        (self.base, self.region.size() as u64)
    }

    /// The slabs that threads of a process have or had, or one of them, or all. They write to them while
    /// they are read. What found no slab is taken for the target's, which is `own`.
    pub fn slabs(&self, whose: Whose, own: u32) -> impl Iterator<Item = Slab<'_>> {
        let departed = self.departed().filter(move |_| whose == Whose::All);
        let is_wanted = move |slab: &Slab<'_>| {
            let (tid, pid) = slab.thread();
            let is_of = |process| pid == process || process == own && slab.overflowed();
            match whose {
                Whose::Target => is_of(own),
                Whose::Process(process) => is_of(process),
                Whose::Thread { process, thread } => (tid, pid) == (thread, process.unwrap_or(own)),
                Whose::All => slab.is_used(),
            }
        };
        self.all_slabs().filter(is_wanted).chain(departed)
    }

    /// The slabs that are in the target.
    pub fn all_slabs(&self) -> impl DoubleEndedIterator<Item = Slab<'_>> {
        read::slabs(self.words(), &self.region)
    }

    fn departed(&self) -> impl Iterator<Item = Slab<'_>> {
        (!self.departed.is_empty()).then(|| Slab::new(&self.departed)).into_iter()
    }

    /// The processes that have slabs.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.all_slabs().map(|slab| slab.thread().1).filter(|&pid| pid != 0).collect()
    }

    /// Whether threads found no slab for themselves.
    pub fn are_exhausted(&self) -> bool {
        self.all_slabs().next_back().is_some_and(|last| last.overflowed())
    }

    /// Whether few slabs are free, and many were claimed since this was last asked.
    pub fn are_scarce(&mut self) -> bool {
        let (claims, count) = (read::claims(self.words()), self.region.count());
        if claims.wrapping_sub(self.claims) < count as u64 / 16 {
            return false;
        }
        self.claims = claims;
        self.all_slabs().filter(Slab::is_used).count() > count / 2
    }

    /// Gives the slabs of these processes, which have ended, to others. What these data are there, is kept.
    pub fn retire(&mut self, ended: &BTreeSet<u32>, data: &[(&Datum, Place)]) {
        renew(self.all_slabs());
        if self.departed.is_empty() {
            self.departed.resize_with(self.region.stride() / 8, AtomicU64::default);
        }
        let departed = Slab::new(&self.departed);
        for slab in self.all_slabs().filter(|slab| ended.contains(&slab.thread().1)) {
            data.iter().for_each(|(datum, place)| slab.fold(departed, datum, *place));
            slab.retire(&self.region);
        }
    }

    fn words(&self) -> &[AtomicU64] {
        let (start, bytes) = (self.memory.as_ptr(), self.memory.len());
        // SAFETY: a mapping is page-aligned and lives as long as `self`; the target writes to it at any
        // time, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) }
    }
}

/// How much room data need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    state: u64,
    sums: u64,
}

impl Needs {
    /// Adds one datum.
    pub fn add(&mut self, datum: &Datum) {
        self.state += u64::from(datum.state_size());
        self.sums = self.sums.next_multiple_of(u64::from(datum.alignment().max(1)));
        self.sums += u64::from(datum.size());
    }

    /// These and others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        // However the others are aligned, they begin at a cache line here.
        Self { state: self.state + other.state, sums: self.sums.next_multiple_of(64) + other.sums }
    }

    /// Whether any memory can hold them.
    pub fn fit(&self) -> bool {
        self.total() <= 1 << STRIDE_LOG2.end()
    }

    fn total(&self) -> u64 {
        u64::from(header::SIZE) + self.state.max(STATE) + self.sums + 2 * SLACK
    }

    /// The shape of memory that holds them, with room to spare.
    fn region(&self, is_go: bool) -> Region {
        let stride_log2 = (self.total().next_power_of_two().trailing_zeros() as u8)
            .clamp(*STRIDE_LOG2.start(), *STRIDE_LOG2.end());
        let state_end = u64::from(header::SIZE) + self.state.max(STATE).next_multiple_of(64);
        Region {
            count_log2: SLABS_LOG2.min(LENGTH_LOG2 - stride_log2),
            stride_log2,
            state_end: state_end as u32,
            key_shift: if is_go { GO_KEY_SHIFT } else { KEY_SHIFT },
        }
    }
}

/// Whose values are asked for. Processes and threads are named by the ids that they have for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// The target's.
    #[default]
    Target,
    /// One process's: the target's, or that of a child that it has forked.
    Process(u32),
    /// One thread's, of the target if no process is named. A thread that is gone and one that came after
    /// it at the same place count as one, by the id of the first.
    Thread {
        /// Its process.
        process: Option<u32>,
        /// Itself.
        thread: u32,
    },
    /// The target's and all its children's, also of those that have ended.
    All,
}
