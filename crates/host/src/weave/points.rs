//! The places of a function where probes can be.

use super::plan::Spot;
use super::text::{Known, ModuleText};
use iced_x86::FlowControl;
use weft_code::{EdgeKind, ExitKind};
use weft_snippet::PointKind;

/// A place in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// What kind of place.
    pub kind: PointKind,
    /// The instruction.
    pub address: u64,
    /// Where an edge leads; 0 for everything else.
    pub target: u64,
}

impl Point {
    fn new(kind: PointKind, address: u64) -> Self {
        Self { kind, address, target: 0 }
    }

    /// Where code has to be inserted for it.
    pub fn spot(&self, text: &ModuleText) -> Result<Spot, &'static str> {
        let instruction =
            text.decode(self.address).ok_or("there is no instruction at this address")?;
        let flow = instruction.flow_control();
        Ok(match self.kind {
            PointKind::Entry => Spot::Entry(self.address),
            PointKind::Exit if flow == FlowControl::ConditionalBranch => Spot::Taken(self.address),
            PointKind::Edge if self.target == instruction.next_ip() => Spot::After(self.address),
            PointKind::Edge
                if matches!(
                    flow,
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                ) && self.target == instruction.near_branch_target() =>
            {
                Spot::Taken(self.address)
            }
            PointKind::Edge => return Err("the way leads through a table"),
            _ => Spot::Before(self.address),
        })
    }
}

/// The points of one kind that a function has, and where there may be more that are not known.
pub fn points(text: &ModuleText, known: &Known, kind: PointKind) -> (Vec<Point>, Vec<u64>) {
    if kind == PointKind::Entry {
        return (vec![Point::new(kind, known.start)], Vec::new());
    }
    let graph = text.graph(&text.whole(known));
    let unknown = graph.unknown.iter().map(|unknown| unknown.address).collect();
    let points = match kind {
        PointKind::Entry => Vec::new(),
        PointKind::Exit => graph
            .exits
            .iter()
            .filter(|exit| matches!(exit.kind, ExitKind::Return | ExitKind::TailJump { .. }))
            .map(|exit| Point::new(kind, exit.address))
            .collect(),
        PointKind::CallBefore => {
            graph.calls.iter().map(|call| Point::new(kind, call.address)).collect()
        }
        PointKind::CallAfter => {
            graph.return_addresses().into_iter().map(|at| Point::new(kind, at)).collect()
        }
        PointKind::Block => graph.blocks.iter().map(|b| Point::new(kind, b.start)).collect(),
        PointKind::Edge => graph
            .edges
            .iter()
            .filter(|edge| edge.kind != EdgeKind::CallReturn)
            .map(|edge| Point {
                kind,
                address: graph.last(edge.from).ip(),
                target: graph.blocks[edge.to].start,
            })
            .collect(),
        PointKind::Insn => graph.instruction_boundaries().map(|at| Point::new(kind, at)).collect(),
    };
    (points, unknown)
}
