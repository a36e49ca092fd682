//! Probes of a program that runs from a clone. Nothing of its code is changed: the engine is told what
//! belongs where, and writes it when it translates the code there.

use super::batch::{Batch, Missing};
use super::clock::clock;
use super::terrain::FunctionTerrain;
use super::values::Values;
use super::weaver::Weaver;
use super::window::Spot;
use super::woven::{Leaving, Probe, ProbeId};
use crate::process::proc::Mapping;
use crate::trip::sharing::Sharing;
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use weft_abi::weaving;
use weft_code::Convention;
use weft_snippet::{PointKind, Weave};

impl Weaver {
    /// Brings in memory to measure into, makes the batch probes, and gives what the engine is to be told.
    pub fn weave_in_clone(
        &mut self,
        batch: Batch,
        missing: &Missing,
        share: &mut dyn FnMut(&Sharing) -> Result<MmapMut>,
    ) -> Result<Vec<u64>> {
        let (ids, known) = (batch.ids(), self.values.len());
        self.add_values(missing, share)?;
        let mut message = Vec::new();
        if let Some(base) = self.stack_tables.base().filter(|_| missing.stack_tables) {
            message.extend([weaving::RULES, base.0]);
        }
        for values in &self.values[known..] {
            self.put_memory(values, &mut message);
        }
        for function in self.enlist(batch)? {
            self.refuse_mixed(function);
        }
        for id in ids {
            self.put_probe(id, &mut message)?;
        }
        Ok(message)
    }

    /// Refuses points behind calls of a function where something else comes to that looks like a return.
    fn refuse_mixed(&mut self, function: u64) {
        let Some(woven) = self.woven.get(&function) else { return };
        let text = &self.texts[woven.text];
        let spots: Vec<Spot> = woven.strands.keys().copied().collect();
        if !spots.iter().any(|spot| matches!(spot, Spot::Returned(_))) {
            return;
        }
        let whole = text.whole(&woven.known);
        let graph = text.graph(&whole);
        let refused = FunctionTerrain { text, whole, graph: Some(&graph) }.mixed(&spots);
        self.refuse(function, refused);
    }

    fn put_memory(&self, values: &Values, message: &mut Vec<u64>) {
        let (region, clock) = (values.region, clock());
        let shape = [region.count_log2, region.stride_log2, region.key_shift, 0];
        let shape = u32::from_le_bytes(shape);
        message.extend([
            weaving::MEMORY,
            values.base.0,
            u64::from(shape) | u64::from(region.state_end) << 32,
            clock.multiplier,
            clock.shift.into(),
            clock.offset,
            self.bmi2.into(),
        ]);
    }

    fn put_probe(&self, id: ProbeId, message: &mut Vec<u64>) -> Result<()> {
        let probe = self.probe(id)?;
        let text = probe.weave.to_string();
        let mut strands = Vec::new();
        for woven in self.woven.values() {
            let whole = self.texts[woven.text].whole(&woven.known);
            let starts = whole.ranges.iter().map(|range| range.start);
            let ends = whole.ranges.iter().map(|range| range.end);
            // All code that may jump to where a call returns to.
            let hull = starts.min().unwrap_or_default()..ends.max().unwrap_or_default();
            let convention = match whole.convention {
                Convention::SystemV => weaving::SYSTEM_V,
                Convention::Go => weaving::GO,
                Convention::Unknown => 0,
            };
            for (spot, all) in &woven.strands {
                let first = all.iter().position(|strand| strand.probe == id);
                for strand in all.iter().filter(|strand| strand.probe == id) {
                    let range = match spot {
                        Spot::Returned(_) => hull.clone(),
                        _ => woven.known.start..woven.known.end,
                    };
                    strands.push((*spot, first == Some(0), convention, range, strand.point));
                }
            }
        }
        for (index, point) in probe.points.iter().enumerate() {
            if point.kind.is_of_kernel() {
                strands.push((Spot::Before(point.address), false, 0, 0..0, index));
            }
        }
        message.extend([weaving::INSERT, id, probe.values as u64]);
        message.extend([text.len() as u64, strands.len() as u64]);
        for bytes in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            message.push(u64::from_le_bytes(word));
        }
        for (spot, is_first, convention, range, index) in strands {
            let point = probe.points[index];
            let kind = PointKind::ALL.iter().position(|&kind| kind == point.kind).unwrap_or(0);
            let way = match spot {
                Spot::Entry(_) | Spot::Before(_) | Spot::Returned(_) => weaving::BEFORE,
                Spot::After(_) => weaving::AFTER,
                Spot::Taken(_) => weaving::TAKEN,
            };
            let access = if point.kind == PointKind::Edge { 0 } else { point.target as u8 };
            let first = u8::from(is_first);
            let how = u64::from_le_bytes([kind as u8, convention, way, access, first, 0, 0, 0]);
            message.extend([spot.instruction(), point.address, how, range.start, range.end]);
            let places = probe.places_of(index);
            message.extend(places.iter().map(|p| u64::from(p.state) | u64::from(p.sums) << 32));
        }
        Ok(())
    }

    /// Whether a probe calls functions of the program, which none can in a clone.
    pub fn calls_program(&self, id: ProbeId) -> Result<bool> {
        Ok(self.probe(id)?.weave.calls_program())
    }

    /// What the engine is told of a probe.
    pub fn probe_message(&self, id: ProbeId) -> Result<Vec<u64>> {
        let mut message = Vec::new();
        self.put_probe(id, &mut message)?;
        Ok(message)
    }

    /// What the engine is to be told to have a probe in its code, or not.
    pub fn switch_in_clone(&mut self, id: ProbeId, is_on: bool) -> Result<Vec<u64>> {
        let mut message = Vec::new();
        let probe = self.probes.get_mut(&id).ok_or_else(|| super::weaver::no_such_probe(id))?;
        let was_on = std::mem::replace(&mut probe.enabled, is_on);
        match (was_on, is_on) {
            (false, true) => self.put_probe(id, &mut message)?,
            (true, false) => message.extend([weaving::REMOVE, id]),
            _ => {}
        }
        Ok(message)
    }

    /// Forgets where a probe is that the engine no longer has. Its values stay.
    pub fn remove_from_clone(&mut self, id: ProbeId) {
        for woven in self.woven.values_mut() {
            woven.strands.retain(|_, strands| {
                strands.retain(|strand| strand.probe != id);
                !strands.is_empty()
            });
        }
        self.woven.retain(|_, woven| !woven.strands.is_empty());
    }

    /// Forgets a probe that was removed. Its room stays its own: threads may be in code that measures there.
    pub fn discard_in_clone(&mut self, id: ProbeId) -> Result<()> {
        if self.probe(id)?.enabled {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("probe {id} is in use"))
                .why("only what was removed can be discarded")
                .advice("remove it first"));
        }
        if let Some(Probe { rooms, .. }) = self.probes.remove(&id) {
            self.leaving.push(Leaving { rooms, waits: Vec::new() });
        }
        Ok(())
    }

    /// The memory that is mapped for values, as far as a process with these mappings has it.
    pub fn values_in(&self, maps: &[Mapping]) -> Vec<(TargetAddr, u64)> {
        let tables = self.stack_tables.all().filter(|_| self.stack_tables.is_in(maps));
        let values = self.values.iter().filter(|values| values.is_in(maps)).map(Values::all);
        values.chain(tables).collect()
    }

    /// Whether a process with these mappings has all memory that there is to measure into.
    pub fn has_all_values(&self, maps: &[Mapping]) -> bool {
        self.stack_tables.is_in(maps) && self.values.iter().all(|values| values.is_in(maps))
    }
}

/// Why a snippet cannot be woven into a clone, if it cannot.
pub fn refusal(weave: &Weave) -> Option<Error> {
    weave.calls_program().then(|| {
        Error::new(ErrorKind::BadSnippet, "the snippet calls a function of the program")
            .why("in a program that runs from a clone, that is not possible yet")
            .advice("leave out the call, or leave the clone: --weaver patch")
    })
}
