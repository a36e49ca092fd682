//! Reading what probes have measured. Nothing is stopped for it.

use super::clock::clock;
use super::stack_tables::SeenCode;
use super::values::{Values, Whose};
use super::weaver::Weaver;
use super::woven::{Probe, ProbeId};
use crate::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use weft_snippet::layout::Place;
use weft_snippet::read::{
    HistogramSum, MapSum, Ring, Slab, Stack, stacks, sum_counter, sum_histogram, sum_map, sum_mark,
    sum_timer, texts,
};
use weft_snippet::{Datum, DatumKind, Scope, TimerClock};

/// What a timer has measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerValue {
    /// Nanoseconds, those of timers that run right now included.
    pub nanoseconds: u64,
    /// How often it was stopped.
    pub count: u64,
}

impl Weaver {
    /// The processes that have measured something and are told apart: the target, and children that it
    /// has forked. Each by the id that it has for itself.
    pub fn processes(&self) -> Vec<u32> {
        let pids: BTreeSet<u32> = self.values.iter().flat_map(|v| v.processes()).collect();
        pids.into_iter().collect()
    }

    /// The threads that have measured something: of each its process, and its own id.
    pub fn threads(&self) -> Vec<(u32, u32)> {
        let slabs = self.values.iter().flat_map(Values::all_slabs);
        let threads = slabs.map(|slab| slab.thread()).filter(|&(_, pid)| pid != 0);
        let threads: BTreeSet<(u32, u32)> = threads.map(|(tid, pid)| (pid, tid)).collect();
        threads.into_iter().collect()
    }

    /// A counter of each of a probe's points; one value when they share it. Like all values, that of the
    /// target, or of a child that it has forked.
    pub fn counters(&self, id: ProbeId, name: &str, whose: Whose) -> Result<Vec<i64>> {
        let (probe, values, index) = self.find(id, name)?;
        let DatumKind::Counter(scope) = probe.data()[index].kind else {
            return Err(wrong_kind(name, "counter"));
        };
        let slabs: Vec<Slab<'_>> = self.slabs(values, whose).collect();
        let sum = |place: Place| sum_counter(slabs.iter().copied(), place);
        if scope == Scope::Shared {
            return Ok(vec![sum(probe.place(index, 0))]);
        }
        Ok((0..probe.points().len()).map(|point| sum(probe.place(index, point))).collect())
    }

    /// A timer.
    pub fn timer(&self, id: ProbeId, name: &str, whose: Whose) -> Result<TimerValue> {
        let (probe, values, index) = self.find(id, name)?;
        let DatumKind::Timer(kind) = probe.data()[index].kind else {
            return Err(wrong_kind(name, "timer"));
        };
        // SAFETY: the instruction only reads the counter, and every x86-64 processor has it.
        let now = unsafe { core::arch::x86_64::_rdtsc() };
        let sum = sum_timer(self.slabs(values, whose), probe.place(index, 0), kind, now);
        let nanoseconds = match kind {
            TimerClock::Wall => clock().nanoseconds(sum.total + sum.so_far),
            TimerClock::Cpu => sum.total,
        };
        Ok(TimerValue { nanoseconds, count: sum.count })
    }

    /// A histogram.
    pub fn histogram(&self, id: ProbeId, name: &str, whose: Whose) -> Result<HistogramSum> {
        let (probe, values, index) = self.find(id, name)?;
        let DatumKind::Histogram(buckets) = probe.data()[index].kind else {
            return Err(wrong_kind(name, "histogram"));
        };
        Ok(sum_histogram(self.slabs(values, whose), probe.place(index, 0), buckets))
    }

    /// A map.
    pub fn map(&self, id: ProbeId, name: &str, whose: Whose) -> Result<(MapSum, u8)> {
        let (probe, values, index) = self.find(id, name)?;
        let DatumKind::Map { keys, capacity, .. } = probe.data()[index].kind else {
            return Err(wrong_kind(name, "map"));
        };
        Ok((sum_map(self.slabs(values, whose), probe.place(index, 0), keys, capacity), keys))
    }

    /// Which keys of a map, or fields of a ring, are texts.
    pub fn text_columns(&self, id: ProbeId, name: &str) -> Result<Vec<bool>> {
        let (probe, _, index) = self.find(id, name)?;
        let (count, texts) = match &probe.data()[index].kind {
            DatumKind::Map { keys, texts, .. } => (usize::from(*keys), u16::from(*texts)),
            DatumKind::Ring { fields, texts, .. } => (fields.len(), *texts),
            _ => (0, 0),
        };
        Ok((0..count).map(|column| texts >> column & 1 != 0).collect())
    }

    /// The texts that probes have read, by the numbers that stand for them.
    pub fn texts(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut found = BTreeMap::new();
        for probe in self.probes.values() {
            let Ok(values) = self.values_of(probe) else { continue };
            let data = probe.data().iter().enumerate();
            for (index, _) in data.filter(|(_, datum)| datum.kind == DatumKind::Texts) {
                found.append(&mut texts(self.slabs(values, Whose::All), probe.place(index, 0)));
            }
        }
        found
    }

    /// Which keys of a map, or fields of a ring, are stacks.
    pub fn stack_columns(&self, id: ProbeId, name: &str) -> Result<Vec<bool>> {
        let (probe, _, index) = self.find(id, name)?;
        let (count, stacks) = match &probe.data()[index].kind {
            DatumKind::Map { keys, stacks, .. } => (usize::from(*keys), u16::from(*stacks)),
            DatumKind::Ring { fields, stacks, .. } => (fields.len(), *stacks),
            _ => (0, 0),
        };
        Ok((0..count).map(|column| stacks >> column & 1 != 0).collect())
    }

    /// The code that was in the target since stacks are taken: what an address meant may have changed.
    pub fn stack_code(&self) -> Vec<SeenCode> {
        self.stack_tables.seen().cloned().collect()
    }

    /// The stacks that probes have taken, by the numbers that stand for them.
    pub fn stacks(&self) -> BTreeMap<u64, Stack> {
        let mut found = BTreeMap::new();
        for probe in self.probes.values() {
            let Ok(values) = self.values_of(probe) else { continue };
            let data = probe.data().iter().enumerate();
            for (index, _) in data.filter(|(_, datum)| datum.kind == DatumKind::Stacks) {
                found.append(&mut stacks(self.slabs(values, Whose::All), probe.place(index, 0)));
            }
        }
        found
    }

    /// Takes the records of a ring out that were written since the last time.
    pub fn records(&self, id: ProbeId, name: &str) -> Result<Vec<Vec<u64>>> {
        let mut records = Vec::new();
        self.each_ring(id, name, |ring| {
            ring.consume(|record| records.push(record.to_vec()));
        })?;
        Ok(records)
    }

    /// How much a ring has lost for want of room, or a map, in children as well; of a timer or a mark, how many calls
    /// did not return whose time is lost by that, those in children included.
    pub fn lost(&self, id: ProbeId, name: &str) -> Result<u64> {
        let (probe, values, index) = self.find(id, name)?;
        match probe.data()[index].kind {
            DatumKind::Timer(kind) => {
                let slabs = self.slabs(values, Whose::All);
                Ok(sum_timer(slabs, probe.place(index, 0), kind, 0).left)
            }
            DatumKind::Mark => Ok(sum_mark(self.slabs(values, Whose::All), probe.place(index, 0))),
            DatumKind::Map { .. } => Ok(self.map(id, name, Whose::All)?.0.lost),
            _ => {
                let mut lost = 0;
                self.each_ring(id, name, |ring| lost += ring.lost())?;
                Ok(lost)
            }
        }
    }

    fn each_ring(&self, id: ProbeId, name: &str, mut act: impl FnMut(Ring<'_>)) -> Result<()> {
        let (probe, values, index) = self.find(id, name)?;
        let datum: &Datum = &probe.data()[index];
        for slab in self.slabs(values, Whose::default()) {
            let ring = Ring::new(slab, probe.place(index, 0), &datum.kind);
            act(ring.ok_or_else(|| wrong_kind(name, "ring"))?);
        }
        Ok(())
    }

    fn slabs<'a>(
        &self,
        values: &'a Values,
        whose: Whose,
    ) -> impl Iterator<Item = Slab<'a>> + use<'a> {
        values.slabs(whose, self.own_pid)
    }

    /// Whether more threads measured at a time than there is room for, so that values may be inexact.
    pub fn is_crowded(&self, id: ProbeId) -> Result<bool> {
        Ok(self.values_of(self.probe(id)?)?.are_exhausted())
    }

    pub(super) fn find(&self, id: ProbeId, name: &str) -> Result<(&Probe, &Values, usize)> {
        let probe = self.probe(id)?;
        let index = probe.data().iter().position(|datum| datum.name == name);
        let index = index.ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("the probe measures no {name}"))
        })?;
        Ok((probe, self.values_of(probe)?, index))
    }
}

pub(super) fn wrong_kind(name: &str, wanted: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{name} is no {wanted}"))
}
