//! Compares what programs did with what their graphs say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use weft_code::{EdgeKind, ExitKind, Function, Graph, Sweep, Why, graph, sweep};

use crate::support::File;
use crate::tracer::{How, Trace};

/// What was seen of one module, at the addresses of its file.
#[derive(Default)]
pub struct Seen {
    inside: BTreeSet<(u64, u64, How)>,
    left: BTreeSet<(u64, How)>,
    entered: BTreeSet<(u64, How)>,
    arrivals: BTreeSet<u64>,
}

/// What came out for one module.
#[derive(Clone, Default)]
pub struct Result {
    pub functions: usize,
    pub complete: usize,
    pub jumps: usize,
    pub resolved: usize,
    pub instructions: usize,
    pub transfers: usize,
    /// What a graph that claims to be complete does not have.
    pub outside: Vec<String>,
    /// What a graph does not have that says itself that something is missing.
    pub unknown: usize,
    /// Instructions that are in no function that anything names.
    pub nameless: usize,
}

impl Result {
    pub fn add(&mut self, other: &Self) {
        self.functions += other.functions;
        self.complete += other.complete;
        self.jumps += other.jumps;
        self.resolved += other.resolved;
        self.instructions += other.instructions;
        self.transfers += other.transfers;
        self.outside.extend(other.outside.iter().cloned());
        self.unknown += other.unknown;
        self.nameless += other.nameless;
    }
}

/// Sorts what a trace has seen by the files that it was seen in.
pub fn by_file(trace: &Trace, seen: &mut BTreeMap<String, Seen>) {
    let mut biases: HashMap<(&str, u64), Option<u64>> = HashMap::new();
    let mut places: Vec<(Range<u64>, u64, &str)> = Vec::new();
    for mapping in &trace.mappings {
        let bias = biases
            .entry((&mapping.path, mapping.offset))
            .or_insert_with(|| File::code_at(&mapping.path, mapping.offset))
            .map(|address| mapping.start.wrapping_sub(address));
        if let Some(bias) = bias {
            places.push((mapping.start..mapping.end, bias, &mapping.path));
        }
    }
    let place = |at: u64| {
        let found = places.iter().find(|(range, ..)| range.contains(&at));
        found.map(|&(_, bias, path)| (path, at.wrapping_sub(bias)))
    };
    for &(from, to, how) in &trace.transfers {
        match (place(from), place(to)) {
            (Some((one, from)), Some((other, to))) if one == other => {
                seen.entry(one.into()).or_default().inside.insert((from, to, how));
            }
            (one, other) => {
                if let Some((path, from)) = one {
                    seen.entry(path.into()).or_default().left.insert((from, how));
                }
                if let Some((path, to)) = other {
                    seen.entry(path.into()).or_default().entered.insert((to, how));
                }
            }
        }
    }
    for &at in &trace.arrivals {
        if let Some((path, at)) = place(at) {
            seen.entry(path.into()).or_default().arrivals.insert(at);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    Unknown,
    Outside,
}

/// A module with the graphs of its functions.
pub struct Module {
    file: File,
    /// What belongs to which function, by start; parts may be shared.
    owners: Vec<(Range<u64>, u64)>,
    /// All branches, for those from one function into the middle of another: assembly does that.
    sweeps: Vec<Sweep>,
    graphs: HashMap<u64, Graph>,
}

impl Module {
    pub fn new(file: File) -> Self {
        let mut owners: Vec<(Range<u64>, u64)> = Vec::new();
        for &address in file.functions.keys() {
            owners.extend(file.function(address).ranges.into_iter().map(|range| (range, address)));
        }
        owners.sort_unstable_by_key(|(range, owner)| (range.start, *owner));
        let starts: Vec<u64> = file.functions.keys().copied().collect();
        let sweeps = file.text().map(|(address, bytes)| sweep(bytes, address, &starts)).collect();
        Self { file, owners, sweeps, graphs: HashMap::new() }
    }

    fn owners_of(&self, at: u64) -> Vec<u64> {
        let after = self.owners.partition_point(|(range, _)| range.start <= at);
        let near = self.owners[..after].iter().rev().take(16);
        near.filter(|(range, _)| range.contains(&at)).map(|(_, owner)| *owner).collect()
    }

    /// A function as far as it can be known before it runs.
    fn function(&self, owner: u64) -> Function {
        let mut function = self.file.function(owner);
        let entries: Vec<u64> =
            self.sweeps.iter().flat_map(|sweep| sweep.entries_into(&function)).collect();
        function.extra_entries.extend(entries);
        function
    }

    fn graph(&mut self, owner: u64) -> &Graph {
        if !self.graphs.contains_key(&owner) {
            let made = graph(&self.file, &self.function(owner));
            self.graphs.insert(owner, made);
        }
        &self.graphs[&owner]
    }

    /// The best that any of some functions has to say.
    fn best(&mut self, owners: &[u64], judge: impl Fn(&Graph) -> Verdict) -> Verdict {
        owners.iter().map(|&owner| judge(self.graph(owner))).min().unwrap_or(Verdict::Fine)
    }

    pub fn check(&mut self, seen: &Seen) -> Result {
        let mut result = Result::default();
        let mut instructions: BTreeSet<u64> = seen.arrivals.iter().copied().collect();
        for &(from, to, _) in &seen.inside {
            instructions.extend([from, to]);
        }
        instructions.extend(seen.left.iter().map(|(from, _)| *from));
        instructions.extend(seen.entered.iter().map(|(to, _)| *to));
        let mut touched = BTreeSet::new();
        for &at in &instructions {
            let owners = self.owners_of(at);
            result.nameless += usize::from(owners.is_empty());
            result.instructions += usize::from(!owners.is_empty());
            let verdict = self.best(&owners, |graph| is_instruction(graph, at));
            self.note(&mut result, verdict, &owners, || format!("{at:#x} is no instruction"));
            touched.extend(owners);
        }
        for &(from, to, how) in &seen.inside {
            let (one, other) = (self.owners_of(from), self.owners_of(to));
            let both: Vec<u64> = one.iter().copied().filter(|each| other.contains(each)).collect();
            if one.is_empty() && other.is_empty() {
                continue;
            }
            result.transfers += 1;
            let text = || format!("{from:#x} to {to:#x} by {how:?}");
            if !both.is_empty() {
                let verdict = self.best(&both, |graph| moves(graph, from, to, how));
                self.note(&mut result, verdict, &both, text);
                continue;
            }
            let verdict = self.best(&one, |graph| leaves(graph, from, Some(to), how));
            self.note(&mut result, verdict, &one, || format!("{} leaves", text()));
            let verdict = self.best(&other, |graph| enters(graph, to, how));
            self.note(&mut result, verdict, &other, || format!("{} enters", text()));
        }
        for &(from, how) in &seen.left {
            let owners = self.owners_of(from);
            result.transfers += usize::from(!owners.is_empty());
            let verdict = self.best(&owners, |graph| leaves(graph, from, None, how));
            self.note(&mut result, verdict, &owners, || format!("{from:#x} leaves by {how:?}"));
        }
        for &(to, how) in &seen.entered {
            let owners = self.owners_of(to);
            result.transfers += usize::from(!owners.is_empty());
            let verdict = self.best(&owners, |graph| enters(graph, to, how));
            self.note(&mut result, verdict, &owners, || format!("{to:#x} is entered by {how:?}"));
        }
        for owner in touched {
            let graph = self.graph(owner);
            result.functions += 1;
            result.complete += usize::from(graph.is_complete());
            let guessed = graph.tables.iter().filter(|table| table.guessed).count();
            let unknown = graph.unknown.iter().filter(|each| each.why == Why::IndirectJump).count();
            let indirect = |kind| matches!(kind, ExitKind::TailJump { target: None, .. });
            let left = graph.exits.iter().filter(|exit| indirect(exit.kind)).count();
            result.jumps += graph.tables.len() + unknown + left;
            result.resolved += graph.tables.len() - guessed + left;
        }
        result
    }

    fn note(
        &self,
        result: &mut Result,
        verdict: Verdict,
        owners: &[u64],
        what: impl Fn() -> String,
    ) {
        match verdict {
            Verdict::Fine => {}
            Verdict::Unknown => {
                result.unknown += 1;
                if std::env::var_os("WEFT_SHOW_UNKNOWN").is_some() {
                    println!("  unknown {}: {}", self.file.functions[&owners[0]].0, what());
                }
            }
            Verdict::Outside => {
                let name = &self.file.functions[&owners[0]].0;
                result.outside.push(format!("{name}: {}", what()));
            }
        }
    }
}

/// What it means that a graph does not have something.
fn missing(graph: &Graph) -> Verdict {
    if graph.is_complete() { Verdict::Outside } else { Verdict::Unknown }
}

fn is_instruction(graph: &Graph, at: u64) -> Verdict {
    if graph.is_boundary(at) { Verdict::Fine } else { missing(graph) }
}

fn is_unknown(graph: &Graph, at: u64) -> bool {
    graph.unknown.iter().any(|unknown| unknown.address == at)
}

/// What it means that a graph has no such way from an instruction that it has.
fn astray(graph: &Graph, from: u64, to: Option<u64>) -> Verdict {
    let admitted = is_unknown(graph, from) || to.is_some_and(|to| is_unknown(graph, to));
    if admitted { Verdict::Unknown } else { Verdict::Outside }
}

fn begins(graph: &Graph, blocks: &[usize], at: u64) -> bool {
    blocks.iter().any(|&block| graph.blocks[block].start == at)
}

fn is_return_address(graph: &Graph, at: u64) -> bool {
    graph.return_addresses().binary_search(&at).is_ok()
}

/// From one instruction of a function to another one of it.
fn moves(graph: &Graph, from: u64, to: u64, how: How) -> Verdict {
    let (Some(instruction), Some(block)) = (graph.instruction_at(from), graph.block_of(from))
    else {
        return missing(graph);
    };
    let is_last = graph.last(block).ip() == from;
    let edge = |kinds: &[EdgeKind]| {
        graph
            .successors(block)
            .iter()
            .any(|edge| graph.blocks[edge.to].start == to && kinds.contains(&edge.kind))
    };
    let is_entry = begins(graph, &graph.entries, to);
    let fine = match how {
        How::Next | How::System if !is_last => to == instruction.next_ip(),
        How::Next | How::System => {
            to == instruction.next_ip() && edge(&[EdgeKind::FallThrough, EdgeKind::CallReturn])
        }
        How::Branch => is_last && edge(&[EdgeKind::Jump, EdgeKind::Taken, EdgeKind::FallThrough]),
        How::IndirectJump => {
            let tail = graph.exits.iter().any(|exit| {
                exit.address == from && matches!(exit.kind, ExitKind::TailJump { target: None, .. })
            });
            // Linkage stubs go on behind their jump until the dynamic linker has been asked.
            is_last && (edge(&[EdgeKind::Table, EdgeKind::Jump]) || tail && is_entry)
        }
        // Asking where one is by calling the next instruction is no call.
        How::Call => to == instruction.next_ip() || is_last && is_entry,
        How::CallReturn => is_last && edge(&[EdgeKind::CallReturn]),
        How::Return => return enters(graph, to, how),
    };
    let repeats = to == from && how == How::Next;
    if fine || repeats { Verdict::Fine } else { astray(graph, from, Some(to)) }
}

/// Out of a function.
fn leaves(graph: &Graph, from: u64, to: Option<u64>, how: How) -> Verdict {
    if !graph.is_boundary(from) {
        return missing(graph);
    }
    let exit = |wanted: &dyn Fn(ExitKind) -> bool| {
        graph.exits.iter().any(|exit| exit.address == from && wanted(exit.kind))
    };
    let fine = match how {
        How::Call => graph.calls.iter().any(|call| call.address == from),
        How::Return => exit(&|kind| kind == ExitKind::Return),
        How::Branch | How::IndirectJump => {
            let table = graph.tables.iter().find(|table| table.jump == from);
            let listed = table.is_some_and(|table| to.is_none_or(|to| table.targets.contains(&to)));
            listed
                || exit(&|kind| match kind {
                    ExitKind::TailJump { target: Some(target), .. }
                    | ExitKind::FallsOff { target } => to == Some(target),
                    ExitKind::TailJump { target: None, .. } => true,
                    _ => false,
                })
        }
        How::Next | How::CallReturn => {
            exit(&|kind| matches!(kind, ExitKind::FallsOff { target } if Some(target) == to))
        }
        // Back from a signal's handler.
        How::System => true,
    };
    if fine { Verdict::Fine } else { astray(graph, from, to) }
}

/// Into a function.
fn enters(graph: &Graph, to: u64, how: How) -> Verdict {
    if !graph.is_boundary(to) {
        return missing(graph);
    }
    let is_entry = begins(graph, &graph.entries, to);
    let fine = match how {
        How::Call | How::Branch | How::Next => is_entry,
        // Exceptions arrive at landing pads, long jumps and switches of stacks where a call would have returned.
        How::Return | How::IndirectJump => {
            is_entry || begins(graph, &graph.landing_pads, to) || is_return_address(graph, to)
        }
        How::CallReturn => is_return_address(graph, to),
        How::System => true,
    };
    if fine { Verdict::Fine } else { missing(graph) }
}
