//! Reading many values again and again, with one look at each thread's.

use super::clock::clock;
use super::values::Whose;
use super::weaver::Weaver;
use super::woven::ProbeId;
use crate::Result;
use std::collections::{BTreeMap, BTreeSet};
use weft_snippet::layout::Place;
use weft_snippet::read::{Slab, histogram_count, map_total, ring_written, sum_timer};
use weft_snippet::{DatumKind, TimerClock};

/// What is read, prepared once.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    probes: BTreeSet<ProbeId>,
    /// By the values that they are in.
    wanted: BTreeMap<usize, Vec<Wanted>>,
    length: usize,
}

/// One datum at one place; that of a counter of each point is several.
#[derive(Clone, Debug)]
struct Wanted {
    kind: DatumKind,
    place: Place,
    /// Where in the result it goes.
    at: usize,
}

impl Weaver {
    /// Prepares to read data of probes, over all threads of all processes. Each gives a number if it is
    /// a counter (over all points); else two: nanoseconds and count of a timer, count and sum of a
    /// histogram, sum of all values and losses of a map, number of records and losses of a ring.
    pub fn sampler(&self, data: &[(ProbeId, String)]) -> Result<Sampler> {
        let mut sampler = Sampler::default();
        for (id, name) in data {
            let (probe, _, index) = self.find(*id, name)?;
            let kind = &probe.data()[index].kind;
            let places = if probe.data()[index].is_per_point() { probe.points().len() } else { 1 };
            sampler.probes.insert(*id);
            let wanted = sampler.wanted.entry(probe.values).or_default();
            for point in 0..places {
                let place = probe.place(index, point);
                wanted.push(Wanted { kind: kind.clone(), place, at: sampler.length });
            }
            sampler.length += match kind {
                DatumKind::Counter(_) => 1,
                DatumKind::Local | DatumKind::Mark | DatumKind::Texts | DatumKind::Stacks => {
                    return Err(super::read::wrong_kind(name, "value that can be read"));
                }
                _ => 2,
            };
        }
        Ok(sampler)
    }

    /// Reads all of it.
    pub fn sample(&self, sampler: &Sampler) -> Result<Vec<i64>> {
        sampler.probes.iter().try_for_each(|&id| self.probe(id).map(drop))?;
        let mut result = vec![0; sampler.length];
        // SAFETY: the instruction only reads the counter, and every x86-64 processor has it.
        let now = unsafe { core::arch::x86_64::_rdtsc() };
        for (&values, wanted) in &sampler.wanted {
            let Some(values) = self.values.get(values) else { continue };
            // Thread by thread, because what one thread has is close together.
            for slab in values.slabs(Whose::All, self.own_pid) {
                wanted.iter().for_each(|wanted| wanted.add(slab, now, &mut result));
            }
        }
        let all = sampler.wanted.values().flatten();
        for wanted in all.filter(|w| matches!(w.kind, DatumKind::Timer(TimerClock::Wall))) {
            result[wanted.at] = clock().nanoseconds(result[wanted.at] as u64) as i64;
        }
        Ok(result)
    }
}

impl Wanted {
    fn add(&self, slab: Slab<'_>, now: u64, result: &mut [i64]) {
        let Self { kind, place, at } = self;
        let mut add = |at: usize, value: i64| result[at] = result[at].wrapping_add(value);
        let (first, second) = match kind {
            DatumKind::Counter(_) => return add(*at, slab.word(place.sums) as i64),
            DatumKind::Timer(clock) => {
                let sum = sum_timer([slab].into_iter(), *place, *clock, now);
                ((sum.total + sum.so_far) as i64, sum.count as i64)
            }
            DatumKind::Histogram(buckets) => histogram_count(slab, *place, *buckets),
            DatumKind::Map { keys, capacity, .. } => map_total(slab, *place, *keys, *capacity),
            DatumKind::Ring { .. } => ring_written(slab, *place),
            DatumKind::Local | DatumKind::Mark | DatumKind::Texts | DatumKind::Stacks => (0, 0),
        };
        add(*at, first);
        add(at + 1, second);
    }
}
