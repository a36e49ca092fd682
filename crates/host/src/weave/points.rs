//! The places of a function where probes can be.

use super::functions::Known;
use super::text::ModuleText;
use super::window::Spot;
use crate::arch::instructions::SYSTEM_CALL;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use weft_code::{
    Access, Direction, EdgeKind, Exit, ExitKind, Graph, MemoryUse, Program, Why, is_system_call,
};
use weft_snippet::PointKind;

/// Which points of a function: all of a kind, or some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// All of a kind.
    All(PointKind),
    /// Instructions that read memory.
    Loads,
    /// Instructions that write memory.
    Stores,
    /// Instructions that call the kernel.
    SystemCalls,
    /// Blocks that loops begin with.
    Loops,
    /// Ways from one block to another that jumps take.
    Taken,
    /// Ways out of the function that lead to its caller.
    Returns,
}

impl Selection {
    const SOME: [(&'static str, Self); 6] = [
        ("loads", Self::Loads),
        ("stores", Self::Stores),
        ("syscalls", Self::SystemCalls),
        ("loops", Self::Loops),
        ("taken", Self::Taken),
        ("returns", Self::Returns),
    ];

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        let kind = PointKind::ALL.into_iter().find(|kind| kind.name() == name).map(Self::All);
        kind.or_else(|| Self::SOME.into_iter().find(|some| some.0 == name).map(|some| some.1))
    }

    /// All names that there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PointKind::ALL.into_iter().map(PointKind::name).chain(Self::SOME.map(|some| some.0))
    }

    /// The kind of the points.
    pub fn kind(self) -> PointKind {
        match self {
            Self::All(kind) => kind,
            Self::Loads | Self::Stores | Self::SystemCalls => PointKind::Insn,
            Self::Loops => PointKind::Block,
            Self::Taken => PointKind::Edge,
            Self::Returns => PointKind::Exit,
        }
    }
}

/// A place in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// What kind of place.
    pub kind: PointKind,
    /// The instruction.
    pub address: u64,
    /// Where an edge leads; which of the instruction's loads or stores it is, counted from 0; and 0 for
    /// everything else.
    pub target: u64,
}

impl Point {
    fn new(kind: PointKind, address: u64) -> Self {
        Self { kind, address, target: 0 }
    }

    /// What is read or written there, if it is a point of that kind and that is known.
    pub fn access(&self, text: &ModuleText) -> Option<Access> {
        let direction = direction(self.kind)?;
        let instruction = text.decode(self.address)?;
        let all = Access::all(&instruction, direction, &mut InstructionInfoFactory::new());
        all.into_iter().nth(self.target as usize).flatten()
    }

    /// Where code has to be inserted for it.
    pub fn spot(&self, text: &ModuleText) -> Result<Spot, &'static str> {
        let instruction =
            text.decode(self.address).ok_or("there is no instruction at this address")?;
        let flow = instruction.flow_control();
        Ok(match self.kind {
            PointKind::Entry => Spot::Entry(self.address),
            PointKind::CallAfter => Spot::Returned(self.address),
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
            PointKind::Load | PointKind::Store if self.access(text).is_none() => {
                return Err("the instruction has no such access, or one with several addresses");
            }
            _ => Spot::Before(self.address),
        })
    }
}

/// Points of a function, and where there may be more that are not known.
pub fn points(text: &ModuleText, known: &Known, selection: Selection) -> (Vec<Point>, Vec<u64>) {
    let kind = selection.kind();
    if kind == PointKind::Entry {
        return (vec![Point::new(kind, known.start)], Vec::new());
    }
    let graph = text.graph(&text.whole(known));
    // A jump out of the function is an exit, whatever it leads to; and a table that may be longer is one
    // for which every entry that was found has been followed.
    let hides = |why| kind != PointKind::Exit || !matches!(why, Why::StrayJump | Why::GuessedTable);
    let hidden = graph.unknown.iter().filter(|unknown| hides(unknown.why));
    let mut unknown: Vec<u64> = hidden.map(|unknown| unknown.address).collect();
    if kind == PointKind::Exit {
        unknown.extend(runs_on(&graph));
    }
    let mut factory = InstructionInfoFactory::new();
    let points = match selection {
        Selection::All(kind) => of_kind(&graph, kind),
        Selection::Loads => instructions(&graph, |i| MemoryUse::of(i, &mut factory).reads),
        Selection::Stores => instructions(&graph, |i| MemoryUse::of(i, &mut factory).writes),
        Selection::SystemCalls => {
            if !may_have_more_system_calls(text, &graph) {
                unknown.clear();
            }
            instructions(&graph, is_system_call)
        }
        Selection::Loops => {
            if graph.irreducible {
                // Cycles that are entered in several places have no block that each turn passes.
                unknown.push(known.start);
            }
            let heads = graph.loops.iter().map(|each| graph.blocks[each.header].start);
            heads.map(|at| Point::new(kind, at)).collect()
        }
        Selection::Taken => {
            edges(&graph, |kind| matches!(kind, EdgeKind::Jump | EdgeKind::Taken | EdgeKind::Table))
        }
        Selection::Returns => exits(&graph, |kind| kind == ExitKind::Return),
    };
    (points, unknown)
}

fn instructions(graph: &Graph, mut is_wanted: impl FnMut(&Instruction) -> bool) -> Vec<Point> {
    let all = graph.instruction_boundaries().filter_map(|at| graph.instruction_at(at));
    let wanted = all.filter(|instruction| is_wanted(instruction));
    wanted.map(|instruction| Point::new(PointKind::Insn, instruction.ip())).collect()
}

/// Where a function is left by running into the next one: there is no point for that. What stands behind
/// a call is not run to if the call does not come back, which is why there is nothing else.
fn runs_on(graph: &Graph) -> impl Iterator<Item = u64> {
    let runs_on = |exit: &&Exit| {
        matches!(exit.kind, ExitKind::FallsOff { .. })
            && !matches!(
                graph.last(exit.block).flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
    };
    graph.exits.iter().filter(runs_on).map(|exit| exit.address)
}

/// Whether bytes that the control flow of a function does not lead to look like a system call.
fn may_have_more_system_calls(text: &ModuleText, graph: &Graph) -> bool {
    let is_known =
        |at: u64| graph.blocks.iter().any(|block| (block.start..block.end).contains(&at));
    graph.function.ranges.iter().any(|range| {
        let bytes = text.bytes(range.start);
        let bytes = &bytes[..bytes.len().min((range.end - range.start) as usize)];
        let mut places = (range.start..).zip(bytes.windows(SYSTEM_CALL.len()));
        places.any(|(at, bytes)| bytes == SYSTEM_CALL && !is_known(at))
    })
}

fn edges(graph: &Graph, is_wanted: impl Fn(EdgeKind) -> bool) -> Vec<Point> {
    let wanted = graph.edges.iter().filter(|edge| is_wanted(edge.kind));
    wanted
        .map(|edge| Point {
            kind: PointKind::Edge,
            address: graph.last(edge.from).ip(),
            target: graph.blocks[edge.to].start,
        })
        .collect()
}

fn exits(graph: &Graph, is_wanted: impl Fn(ExitKind) -> bool) -> Vec<Point> {
    let wanted = graph.exits.iter().filter(|exit| is_wanted(exit.kind));
    wanted.map(|exit| Point::new(PointKind::Exit, exit.address)).collect()
}

fn of_kind(graph: &Graph, kind: PointKind) -> Vec<Point> {
    match kind {
        PointKind::Entry | PointKind::SystemCall | PointKind::SystemReturn => Vec::new(),
        PointKind::Exit => {
            exits(graph, |kind| matches!(kind, ExitKind::Return | ExitKind::TailJump { .. }))
        }
        PointKind::CallBefore => {
            graph.calls.iter().map(|call| Point::new(kind, call.address)).collect()
        }
        PointKind::CallAfter => {
            graph.return_addresses().into_iter().map(|at| Point::new(kind, at)).collect()
        }
        PointKind::Block => graph.blocks.iter().map(|b| Point::new(kind, b.start)).collect(),
        PointKind::Edge => edges(graph, |kind| kind != EdgeKind::CallReturn),
        PointKind::Insn => graph.instruction_boundaries().map(|at| Point::new(kind, at)).collect(),
        PointKind::Load => accesses(graph, kind, Direction::Load),
        PointKind::Store => accesses(graph, kind, Direction::Store),
    }
}

/// Which way data go at points of a kind.
fn direction(kind: PointKind) -> Option<Direction> {
    match kind {
        PointKind::Load => Some(Direction::Load),
        PointKind::Store => Some(Direction::Store),
        _ => None,
    }
}

/// A point for each access of each instruction.
fn accesses(graph: &Graph, kind: PointKind, direction: Direction) -> Vec<Point> {
    let mut factory = InstructionInfoFactory::new();
    let all = graph.instruction_boundaries().filter_map(|at| graph.instruction_at(at));
    all.flat_map(|instruction| {
        let count = Access::all(instruction, direction, &mut factory).len() as u64;
        let address = instruction.ip();
        (0..count).map(move |target| Point { kind, address, target })
    })
    .collect()
}
