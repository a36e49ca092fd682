//! Puts a graph together.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use iced_x86::{Decoder, DecoderOptions};

use super::explore::{Explorer, Flow, is_filling};
use super::tables::{Resolution, resolve};
use super::{Block, Call, Edge, EdgeKind, Exit, ExitKind, Gap, Graph, Unknown, Why};
use crate::{Callee, Function, Program};

/// How often tables may lead to code that has more tables.
const MOST_ROUNDS: usize = 24;

/// Follows the control flow of a function. Of its ranges counts only what is there.
pub fn graph(program: &dyn Program, function: &Function) -> Graph {
    let function = &clipped(program, function);
    if function.ranges.is_empty() {
        return Graph::empty(function);
    }
    let mut explorer = Explorer::new(program, function);
    let pads: Vec<u64> =
        program.landing_pads(function).into_iter().filter(|&pad| function.contains(pad)).collect();
    let roots = || {
        let more = function.extra_entries.iter().copied().filter(|&entry| function.contains(entry));
        [function.entry()].into_iter().chain(more).chain(pads.iter().copied())
    };
    explorer.follow(roots());
    let mut resolutions = BTreeMap::new();
    for round in 0.. {
        let mut graph =
            Assembly { explorer: &explorer, resolutions: &resolutions, pads: &pads }.assemble();
        let jumps = explorer.steps.iter().any(|step| step.flow == Flow::IndirectJump);
        let again =
            if jumps && round < MOST_ROUNDS { resolve(&explorer, &graph) } else { BTreeMap::new() };
        if !jumps || again == resolutions {
            graph.find_loops();
            return graph;
        }
        if round == MOST_ROUNDS {
            // It does not settle: what the last round thought is not certain.
            for resolution in resolutions.values() {
                if let Resolution::Table(table) = resolution {
                    graph.unknown.push(Unknown { address: table.jump, why: Why::GuessedTable });
                }
            }
            graph.unknown.sort_by_key(|unknown| unknown.address);
            graph.find_loops();
            return graph;
        }
        resolutions = again;
        for resolution in resolutions.values() {
            match resolution {
                Resolution::Table(table) => explorer.follow(table.targets.iter().copied()),
                Resolution::LazyStub(lazy) => explorer.follow([*lazy]),
                Resolution::TailJump | Resolution::Unknown => {}
            }
        }
    }
    Graph::empty(function)
}

/// The function with what of its ranges is mapped. Without its entry there is nothing to follow.
fn clipped(program: &dyn Program, function: &Function) -> Function {
    let mut clipped = function.clone();
    for range in &mut clipped.ranges {
        let size =
            range.end.saturating_sub(range.start).min(program.bytes(range.start).len() as u64);
        range.end = range.start + size;
    }
    if clipped.ranges.first().is_some_and(|range| range.is_empty()) {
        clipped.ranges.clear();
    }
    clipped.ranges.retain(|range| !range.is_empty());
    clipped
}

struct Assembly<'a> {
    explorer: &'a Explorer<'a>,
    resolutions: &'a BTreeMap<u64, Resolution>,
    pads: &'a [u64],
}

/// What has been found out about a byte's place in the flow.
#[derive(Clone, Copy, Default)]
struct Place {
    reached: bool,
    leads: bool,
    fallen_into: bool,
}

impl Assembly<'_> {
    fn assemble(&self) -> Graph {
        let mut graph = Graph { function: self.explorer.function.clone(), ..Graph::default() };
        let (places, inner_calls) = self.reach();
        self.blocks(&mut graph, &places);
        self.edges(&mut graph);
        let block_at =
            |address: u64| graph.blocks.binary_search_by_key(&address, |block| block.start).ok();
        let function = self.explorer.function;
        let calls_itself_inside = !inner_calls.is_empty();
        let mut entries = Vec::new();
        let extra = function.extra_entries.iter().copied().chain(inner_calls);
        for entry in [function.entry()].into_iter().chain(extra).filter_map(block_at) {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        let mut pads: Vec<usize> = self.pads.iter().copied().filter_map(block_at).collect();
        pads.sort_unstable();
        pads.dedup();
        graph.entries = entries;
        graph.calls_itself_inside = calls_itself_inside;
        graph.landing_pads = pads;
        self.gaps(&mut graph, &places);
        graph.exits.sort_by_key(|exit| exit.address);
        graph.calls.sort_by_key(|call| call.address);
        graph.unknown.sort_by_key(|unknown| unknown.address);
        graph
    }

    /// Where control may go from an instruction inside the function, and how. The last says whether it goes on.
    fn successors(&self, step: usize) -> (Vec<(u64, EdgeKind)>, bool) {
        let step = &self.explorer.steps[step];
        match step.flow {
            Flow::Next => (Vec::new(), true),
            Flow::Jump(target) => (vec![(target, EdgeKind::Jump)], false),
            Flow::Branch(target) => (vec![(target, EdgeKind::Taken)], true),
            Flow::Call { returns, .. } => (Vec::new(), returns),
            Flow::Return | Flow::Halt => (Vec::new(), false),
            Flow::IndirectJump => match self.resolutions.get(&step.instruction.ip()) {
                Some(Resolution::Table(table)) => {
                    let mut targets = table.targets.clone();
                    targets.sort_unstable();
                    targets.dedup();
                    let edges = targets.into_iter().map(|target| (target, EdgeKind::Table));
                    (edges.collect(), false)
                }
                Some(&Resolution::LazyStub(lazy)) => (vec![(lazy, EdgeKind::Jump)], false),
                _ => (Vec::new(), false),
            },
        }
    }

    /// Marks what the entries lead to. Also returns where calls enter the function's own middle.
    fn reach(&self) -> (Vec<Place>, Vec<u64>) {
        let explorer = self.explorer;
        let mut places = vec![Place::default(); explorer.size()];
        let mut inner_calls = Vec::new();
        let function = explorer.function;
        let mut pending: Vec<u64> = [function.entry()]
            .into_iter()
            .chain(function.extra_entries.iter().copied())
            .chain(self.pads.iter().copied())
            .collect();
        for &root in &pending {
            if let Some(offset) = explorer.offset(root) {
                places[offset].leads = true;
            }
        }
        while let Some(mut address) = pending.pop() {
            while let Some(step) = explorer.step_at(address) {
                let Some(offset) = explorer.offset(address) else { break };
                if core::mem::replace(&mut places[offset].reached, true) {
                    break;
                }
                let (targets, goes_on) = self.successors(step);
                for (target, _) in targets {
                    if let Some(offset) = explorer.offset(target) {
                        places[offset].leads = true;
                        pending.push(target);
                    }
                }
                let flow = explorer.steps[step].flow;
                if let Flow::Call { target: Some(target), .. } = flow
                    && target != function.entry()
                    && let Some(offset) = explorer.offset(target)
                {
                    places[offset].leads = true;
                    inner_calls.push(target);
                    pending.push(target);
                }
                if !goes_on {
                    break;
                }
                address = explorer.steps[step].instruction.next_ip();
                if let Some(offset) = explorer.offset(address) {
                    // Two instructions that end at the same place: code that overlaps.
                    let met = core::mem::replace(&mut places[offset].fallen_into, true);
                    places[offset].leads |= met || flow != Flow::Next;
                }
            }
        }
        inner_calls.sort_unstable();
        inner_calls.dedup();
        (places, inner_calls)
    }

    fn blocks(&self, graph: &mut Graph, places: &[Place]) {
        let explorer = self.explorer;
        let mut leaders: Vec<u64> = Vec::new();
        let mut base = 0;
        for range in &explorer.function.ranges {
            let size = (range.end - range.start) as usize;
            let here = &places[base..base + size];
            leaders.extend(
                (0..size)
                    .filter(|&offset| here[offset].leads && here[offset].reached)
                    .map(|offset| range.start + offset as u64),
            );
            base += size;
        }
        leaders.sort_unstable();
        for leader in leaders {
            let first = graph.instructions.len() as u32;
            let mut address = leader;
            while let Some(step) = explorer.step_at(address) {
                let step = &explorer.steps[step];
                graph.boundaries.push((address, graph.instructions.len() as u32));
                graph.instructions.push(step.instruction);
                address = step.instruction.next_ip();
                let leads = explorer.offset(address).is_none_or(|offset| places[offset].leads);
                if step.flow != Flow::Next || leads {
                    break;
                }
            }
            graph.blocks.push(Block {
                start: leader,
                end: address,
                instructions: first..graph.instructions.len() as u32,
            });
        }
        graph.boundaries.sort_unstable();
    }

    fn edges(&self, graph: &mut Graph) {
        let explorer = self.explorer;
        let mut edges = Vec::new();
        graph.leaving.push(0);
        for index in 0..graph.blocks.len() {
            let (address, end) = (graph.last(index).ip(), graph.blocks[index].end);
            let Some(step) = explorer.step_at(address) else { continue };
            let flow = explorer.steps[step].flow;
            let (targets, goes_on) = self.successors(step);
            for (target, kind) in targets {
                self.edge(graph, &mut edges, index, target, kind, flow);
            }
            if goes_on {
                let kind = match flow {
                    Flow::Call { .. } => EdgeKind::CallReturn,
                    _ => EdgeKind::FallThrough,
                };
                self.edge(graph, &mut edges, index, end, kind, flow);
            }
            let exit = |kind, callee| Exit { address, block: index, kind, callee };
            match flow {
                Flow::Call { target, callee, returns } => {
                    graph.calls.push(Call { address, block: index, target, callee, returns });
                    if !returns {
                        graph.exits.push(exit(ExitKind::NoReturnCall, callee));
                    }
                }
                Flow::Return => graph.exits.push(exit(ExitKind::Return, None)),
                Flow::Halt => graph.exits.push(exit(ExitKind::Halt, None)),
                Flow::IndirectJump => match self.resolutions.get(&address) {
                    Some(Resolution::Table(table)) => {
                        if table.guessed {
                            graph.unknown.push(Unknown { address, why: Why::GuessedTable });
                            graph.lost.push(index);
                        }
                        graph.tables.push(table.clone());
                    }
                    Some(Resolution::TailJump | Resolution::LazyStub(_)) => {
                        let jump = ExitKind::TailJump { target: None, conditional: false };
                        graph.exits.push(exit(jump, self.callee_through(index, graph)));
                    }
                    _ => {
                        graph.unknown.push(Unknown { address, why: Why::IndirectJump });
                        graph.lost.push(index);
                    }
                },
                _ => {}
            }
            graph.leaving.push(edges.len() as u32);
        }
        let mut by_target: Vec<u32> = (0..edges.len() as u32).collect();
        by_target.sort_by_key(|&edge| edges[edge as usize].to);
        let starts = |block: usize| {
            by_target.partition_point(|&edge| edges[edge as usize].to < block) as u32
        };
        graph.entering = (0..=graph.blocks.len()).map(starts).collect();
        graph.by_target = by_target;
        graph.edges = edges;
        graph.lost.dedup();
        graph.tables.sort_by_key(|table| table.jump);
    }

    /// What is known of the function that a block ends by jumping to through a constant pointer.
    fn callee_through(&self, block: usize, graph: &Graph) -> Option<Callee> {
        let jump = graph.last(block);
        jump.is_ip_rel_memory_operand()
            .then(|| self.explorer.program.callee_through(jump.ip_rel_memory_address()))
            .flatten()
    }

    /// Adds an edge, or an exit if the target is no block.
    fn edge(
        &self,
        graph: &mut Graph,
        edges: &mut Vec<Edge>,
        from: usize,
        target: u64,
        kind: EdgeKind,
        flow: Flow,
    ) {
        if let Ok(to) = graph.blocks.binary_search_by_key(&target, |block| block.start) {
            edges.push(Edge { from, to, kind });
            return;
        }
        let address = graph.last(from).ip();
        if self.explorer.function.contains(target) {
            graph.unknown.push(Unknown { address: target, why: Why::Undecodable });
            graph.lost.push(from);
            return;
        }
        let exit = match kind {
            EdgeKind::FallThrough | EdgeKind::CallReturn => ExitKind::FallsOff { target },
            EdgeKind::Jump | EdgeKind::Taken | EdgeKind::Table => ExitKind::TailJump {
                target: Some(target),
                conditional: matches!(flow, Flow::Branch(_)),
            },
        };
        let callee = self.explorer.program.callee(target);
        graph.exits.push(Exit { address, block: from, kind: exit, callee });
        if callee.is_none() {
            graph.unknown.push(Unknown { address, why: Why::StrayJump });
            graph.lost.push(from);
        }
    }

    fn gaps(&self, graph: &mut Graph, places: &[Place]) {
        let explorer = self.explorer;
        let mut base = 0;
        for range in &explorer.function.ranges {
            let mut address = range.start;
            while address < range.end {
                let offset = base + (address - range.start) as usize;
                if places[offset].reached
                    && let Some(step) = explorer.step_at(address)
                {
                    // Code that overlaps is passed over byte by byte only where nothing else is.
                    address = explorer.steps[step].instruction.next_ip();
                    continue;
                }
                let start = address;
                while address < range.end
                    && !places[base + (address - range.start) as usize].reached
                {
                    address += 1;
                }
                let padding = self.is_padding(start, address);
                graph.gaps.push(Gap { range: start..address, padding });
            }
            base += (range.end - range.start) as usize;
        }
        graph.gaps.sort_by_key(|gap| gap.range.start);
    }

    fn is_padding(&self, start: u64, end: u64) -> bool {
        let bytes = self.explorer.program.bytes(start);
        let bytes = &bytes[..bytes.len().min((end - start) as usize)];
        if bytes.iter().all(|&byte| byte == 0) {
            return true;
        }
        Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
            .iter()
            .all(|instruction| !instruction.is_invalid() && is_filling(&instruction))
    }
}
