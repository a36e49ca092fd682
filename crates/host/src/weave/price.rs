//! What a probe costs each time that it is hit, as predicted.

use super::calibrate::prices;
use super::site::site;
use super::terrain::FunctionTerrain;
use super::weaver::Weaver;
use super::window::Spot;
use super::woven::ProbeId;
use crate::Result;
use weft_code::{Convention, FlagSet, Register, RegisterSet};
use weft_snippet::{PointKind, Site, Weave, cost, permit};

impl Weaver {
    /// The nanoseconds that one hit of a probe takes, the mean over the points where it is; 0 where it
    /// is nowhere.
    pub fn cost(&self, id: ProbeId) -> Result<f64> {
        let probe = self.probe(id)?;
        let prices = prices(self.thread_pointer);
        let (mut sum, mut count) = (0.0, 0_usize);
        for woven in self.woven.values() {
            let strands: Vec<_> = woven
                .strands
                .iter()
                .flat_map(|(&spot, all)| all.iter().map(move |strand| (spot, strand)))
                .filter(|(_, strand)| strand.probe == id)
                .collect();
            if strands.is_empty() {
                continue;
            }
            let text = &self.texts[woven.text];
            let whole = text.whole(&woven.known);
            let is_entry = |(spot, _): &(Spot, _)| matches!(spot, Spot::Entry(_));
            let graph = (!strands.iter().all(is_entry)).then(|| text.graph(&whole));
            let graph = graph.as_ref();
            let liveness = graph.map(|graph| text.liveness(graph));
            let terrain = FunctionTerrain { text, whole, graph };
            for (spot, strand) in strands {
                let point = probe.points[strand.point];
                let site = site(point, spot, &terrain, liveness.as_ref());
                let body = probe.weave.body(point.kind).unwrap_or_default();
                let snippet = cost(&probe.weave.data, body, &site, &prices.operations);
                sum += snippet + prices.there_and_back;
                count += 1;
            }
        }
        Ok(if count == 0 { 0.0 } else { sum / count as f64 })
    }
}

/// The nanoseconds that one hit of a snippet will take at a usual point of each kind that it can be at.
pub fn usual_costs(weave: &Weave) -> Vec<(PointKind, f64)> {
    let prices = prices(true);
    let can_be_at = |&kind: &PointKind| {
        let body = weave.body(kind)?;
        let site = usual_site(kind);
        permit(&weave.data, body, Some((kind, site.convention))).ok()?;
        let snippet = cost(&weave.data, body, &site, &prices.operations);
        Some((kind, snippet + prices.there_and_back))
    };
    // What is done at system calls is not compiled, and nothing beside what they take.
    PointKind::ALL.iter().filter(|kind| !kind.is_of_kernel()).filter_map(can_be_at).collect()
}

/// What snippets mostly find: much is free where functions are entered and left and around calls, and
/// little elsewhere.
fn usual_site(kind: PointKind) -> Site {
    let is_between_functions = !matches!(
        kind,
        PointKind::Block | PointKind::Edge | PointKind::Insn | PointKind::Load | PointKind::Store
    );
    let free = [Register::RAX, Register::R10, Register::R11];
    let (dead, live_flags) =
        if is_between_functions { (&free[..], FlagSet::NONE) } else { (&free[..1], FlagSet::ALL) };
    Site {
        kind,
        convention: Convention::SystemV,
        dead: RegisterSet::of(dead),
        live_flags,
        red_zone: !is_between_functions,
        address: 0,
        stack_shift: 0,
        access: None,
    }
}
