//! From what an engine has told and counted to how often every block was executed, and every way between two
//! of them taken.
//!
//! A block is executed as often as it is come to: by branches, by going on from the block before, or from
//! anywhere. Of the two ways out of a branch one is counted, the other is what is left; a jump is taken as often as
//! its block is executed. Ways that are not counted lead forward, so that one pass in the order of addresses
//! finds everything.

use super::log::{FlowModule, Log, Mapped, Process, Run, What};
use super::losses::Losses;
use super::options::Records;
use super::recording::Recording;
use iced_x86::{Decoder, DecoderOptions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use weft_abi::recording::{ending, entry};

/// How many entries of logs are looked at for all processes of a program: each looks at those of the one that has
/// forked it, too.
const MOST_WORK: usize = 1 << 30;

/// How control goes from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// Past a branch, or simply to what follows.
    Fall,
    /// By a branch that may be taken or not.
    Taken,
    /// By a jump.
    Jump,
    /// By a call.
    Call,
}

/// Instructions that are executed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBlock {
    /// Its module.
    pub module: u32,
    /// Its address, as the file states it.
    pub offset: u64,
    /// Its bytes.
    pub size: u32,
    /// Its instructions.
    pub instructions: u32,
    /// How often it was executed.
    pub count: u64,
}

/// A way that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeCount {
    /// The module and the instruction that it leaves.
    pub source: Located,
    /// Those that it leads to.
    pub target: Located,
    /// How control goes.
    pub kind: EdgeKind,
    /// How often.
    pub count: u64,
}

/// What was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Where the code is from.
    pub modules: Vec<FlowModule>,
    /// In the order of modules and addresses.
    pub blocks: Vec<FlowBlock>,
    /// In the order of what they leave.
    pub edges: Vec<EdgeCount>,
    /// How many counters were executed.
    pub counted: u64,
    /// What is missing.
    pub losses: Losses,
}

/// How often a run was executed, and left by its branch and to what follows.
#[derive(Clone, Copy, Debug, Default)]
struct RunCount {
    count: i64,
    taken: i64,
    fall: i64,
}

/// What no counter comes to, so that sums of some do not overflow.
const HIGHEST: u64 = 1 << 62;

/// What is known of an exit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// There is none.
    Closed,
    Counted(i64),
    /// What is left when the others are known.
    Rest,
}

/// What the log says to a process, with what that has counted.
struct Solver<'a> {
    log: &'a Log,
    counts: &'a [u64],
    /// The runs that begin at each address, by their places in the log.
    runs: BTreeMap<u64, Vec<usize>>,
    /// How often each address was come to, as far as that is known.
    arrivals: HashMap<u64, i64>,
    /// Where runs were left that were not left by their ways.
    cuts: HashMap<usize, Vec<u64>>,
    /// Of branches with one counter: whether the way to what follows is the one that is not counted.
    sides: HashMap<u32, bool>,
}

impl<'a> Solver<'a> {
    fn new(log: &'a Log, process: &Process, places: &[usize], counts: &'a [u64]) -> Self {
        let mut solver = Self {
            log,
            counts,
            runs: BTreeMap::new(),
            arrivals: HashMap::new(),
            cuts: HashMap::new(),
            sides: HashMap::new(),
        };
        let mut by_code: HashMap<u64, Vec<usize>> = HashMap::new();
        for &place in places {
            match log.entries[place].what {
                What::Run(ref run) => {
                    solver.runs.entry(run.start).or_default().push(place);
                    by_code.entry(run.code).or_default().push(place);
                }
                What::Entered { address, counter } => solver.arrive(address, solver.value(counter)),
                What::Side { counter, is_fall } => drop(solver.sides.insert(counter, is_fall)),
                // Of others it is no cut.
                What::Cut { pc, code } if process.entries.binary_search(&place).is_ok() => {
                    let is_it = |run: &Run| match code & entry::AT_END {
                        0 => (run.start..run.end()).contains(&pc),
                        _ => run.end() == pc,
                    };
                    let is_it = |&&place: &&usize| log.run(place).is_some_and(is_it);
                    let known = by_code.get(&(code & !entry::AT_END));
                    match known.and_then(|all| all.iter().rev().find(is_it)) {
                        Some(&run) => solver.cuts.entry(run).or_default().push(pc),
                        None => solver.arrive(pc, -1),
                    }
                }
                _ => {}
            }
        }
        solver
    }

    fn value(&self, counter: u32) -> i64 {
        self.counts.get(counter as usize).map_or(0, |&count| count.min(HIGHEST) as i64)
    }

    fn arrive(&mut self, address: u64, count: i64) {
        let sum = self.arrivals.entry(address).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The ways out of a run: by its branch, and to what follows.
    fn ways(&self, run: &Run) -> (Way, Way) {
        use Way::{Closed, Counted, Rest};
        let counted = |counter: u32| match (counter, self.log.records) {
            (0, Records::Counts) => Rest,
            (0, _) => Closed,
            _ => Counted(self.value(counter)),
        };
        match run.ending {
            ending::FALL => (Closed, counted(run.fall)),
            ending::BRANCH if run.fall == entry::CHOSEN => match self.sides.get(&run.taken) {
                Some(true) => (counted(run.taken), Rest),
                Some(false) => (Rest, counted(run.taken)),
                None => (Closed, Closed),
            },
            ending::BRANCH => (counted(run.taken), counted(run.fall)),
            ending::JUMP | ending::CALL => (counted(run.taken), Closed),
            _ => (Closed, Closed),
        }
    }

    /// How often each run was executed, by its place in the log, and where it was left otherwise.
    fn solve(mut self) -> (HashMap<usize, RunCount>, HashMap<usize, Vec<u64>>) {
        let log = self.log;
        let runs = std::mem::take(&mut self.runs);
        // What is counted is known before anything else.
        for run in runs.values().flatten().filter_map(|&place| log.run(place)) {
            let (taken, fall) = self.ways(run);
            for (way, to) in [(taken, run.target), (fall, run.end())] {
                if let Way::Counted(count) = way {
                    self.arrive(to, count);
                }
            }
        }
        let mut solved = HashMap::new();
        for (start, places) in runs {
            let instances: Vec<(usize, &Run)> =
                places.iter().filter_map(|&place| Some((place, log.run(place)?))).collect();
            let own = instances.iter().map(|(_, run)| self.value(run.own));
            let own = own.fold(0, i64::saturating_add);
            let arrived = self.arrivals.get(&start).copied().unwrap_or(0);
            let mut rest = arrived.saturating_sub(own).max(0);
            for (place, run) in instances {
                let count = match run.own {
                    0 => std::mem::take(&mut rest),
                    own => self.value(own),
                };
                let cut = self.cuts.get(&place).map_or(0, |cuts| cuts.len() as i64);
                solved.insert(place, self.leave(run, count, cut));
            }
        }
        (solved, self.cuts)
    }

    /// Divides the executions of a run among its exits, but for those that were cut.
    fn leave(&mut self, run: &Run, count: i64, cut: i64) -> RunCount {
        let (taken, fall) = self.ways(run);
        let counted = |way: Way| if let Way::Counted(count) = way { count } else { 0 };
        let left = cut.saturating_add(counted(taken)).saturating_add(counted(fall));
        let rest = count.saturating_sub(left).max(0);
        let mut through = |way: Way, to: u64| match way {
            Way::Closed => 0,
            Way::Counted(count) => count,
            Way::Rest => {
                self.arrive(to, rest);
                rest
            }
        };
        RunCount { count, taken: through(taken, run.target), fall: through(fall, run.end()) }
    }
}

/// A module, and an address as its file states it.
pub type Located = (u32, u64);

/// Puts together what several programs have told.
#[derive(Clone, Debug)]
pub struct Sum {
    modules: Vec<FlowModule>,
    by_path: HashMap<(String, Option<Vec<u8>>), u32>,
    blocks: BTreeMap<(u32, u64, u32), (u32, u64)>,
    edges: BTreeMap<(Located, Located, EdgeKind), u64>,
    counted: u64,
    garbled: u64,
    is_hits: bool,
}

/// Where files were mapped, at some time.
#[derive(Clone, Default)]
struct Space(BTreeMap<u64, (u64, u32, u64)>);

impl Space {
    fn insert(&mut self, mapped: &Mapped, module: u32, bias: u64) {
        let gone: Vec<u64> = self
            .0
            .range(..mapped.end)
            .rev()
            .take_while(|(_, piece)| piece.0 > mapped.start)
            .map(|(&start, _)| start)
            .collect();
        for start in gone {
            let Some((end, other, offset)) = self.0.remove(&start) else { continue };
            if start < mapped.start {
                self.0.insert(start, (mapped.start, other, offset));
            }
            if end > mapped.end {
                self.0.insert(mapped.end, (end, other, offset));
            }
        }
        self.0.insert(mapped.start, (mapped.end, module, bias));
    }

    /// The module at an address, and the address in its file.
    fn locate(&self, address: u64) -> Located {
        match self.0.range(..=address).next_back() {
            Some((_, &(end, module, bias))) if address < end => {
                (module, address.wrapping_sub(bias))
            }
            _ => (0, address),
        }
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            // What no file has comes first.
            modules: vec![FlowModule::default()],
            by_path: HashMap::new(),
            blocks: BTreeMap::new(),
            edges: BTreeMap::new(),
            counted: 0,
            garbled: 0,
            is_hits: false,
        }
    }
}

impl Sum {
    /// Adds what a program has told so far.
    pub fn add(&mut self, recording: &Recording) {
        let log = recording.log();
        self.is_hits |= log.records == Records::Hits;
        let (processes, garbled) = log.processes();
        self.garbled = self.garbled.saturating_add(garbled + u64::from(!log.is_whole));
        let mut work = 0_usize;
        for (index, process) in processes.iter().enumerate().filter(|it| !it.1.stripes.is_empty()) {
            let counts = recording.counts(&process.stripes);
            let counted = counts.iter().copied().fold(0, u64::saturating_add);
            if counted == 0 {
                continue;
            }
            self.counted = self.counted.saturating_add(counted);
            let places = log.visible(&processes, index);
            work = work.saturating_add(places.len());
            if work > MOST_WORK {
                self.garbled = self.garbled.saturating_add(1);
                continue;
            }
            self.add_process(&log, process, &places, &counts);
        }
    }

    /// How often what was told made no sense.
    pub fn garbled(&self) -> u64 {
        self.garbled
    }

    /// All of it.
    pub fn flow(self, losses: Losses) -> Flow {
        let once = |count: u64| if self.is_hits { count.min(1) } else { count };
        let blocks = self.blocks.iter().map(|(&(module, offset, size), &(instructions, count))| {
            FlowBlock { module, offset, size, instructions, count: once(count) }
        });
        let edges = self.edges.iter().map(|(&(source, target, kind), &count)| EdgeCount {
            source,
            target,
            kind,
            count: once(count),
        });
        Flow {
            blocks: blocks.collect(),
            edges: edges.collect(),
            modules: self.modules,
            counted: self.counted,
            losses,
        }
    }

    fn module(&mut self, module: &FlowModule) -> u32 {
        let key = (module.path.clone(), module.build_id.clone());
        *self.by_path.entry(key).or_insert_with(|| {
            self.modules.push(module.clone());
            self.modules.len() as u32 - 1
        })
    }

    fn map(&mut self, space: &mut Space, mapped: &Mapped) {
        let module = mapped.module();
        let index = self.module(module);
        space.insert(mapped, index, module.bias);
    }

    fn add_process(&mut self, log: &Log, process: &Process, places: &[usize], counts: &[u64]) {
        let (solved, cuts) = Solver::new(log, process, places, counts).solve();
        let executed = |place: usize| {
            let count = solved.get(&place).filter(|it| it.count != 0)?;
            Some((log.run(place)?, *count, cuts.get(&place).map_or(&[][..], Vec::as_slice)))
        };
        // Where blocks begin: all that overlap are divided there.
        let mut starts: BTreeSet<u64> = BTreeSet::new();
        for (run, _, cuts) in places.iter().filter_map(|&place| executed(place)) {
            starts.insert(run.start);
            starts.extend(cuts.iter().filter(|&&pc| pc < run.end()));
        }
        let mut space = Space::default();
        for mapped in &log.mapped {
            self.map(&mut space, mapped);
        }
        for &place in places {
            if let What::Mapped(mapped) = &log.entries[place].what {
                self.map(&mut space, mapped);
            } else if let Some((run, count, cuts)) = executed(place) {
                self.add_run(run, count, &starts, cuts, &space);
            }
        }
    }

    fn add_run(
        &mut self,
        run: &Run,
        solved: RunCount,
        starts: &BTreeSet<u64>,
        cuts: &[u64],
        space: &Space,
    ) {
        let mut decoder = Decoder::with_ip(64, &run.bytes, run.start, DecoderOptions::NONE);
        let mut from = run.start;
        let mut instructions = 0;
        let mut last = run.start;
        while decoder.can_decode() {
            last = decoder.ip();
            let _ = decoder.decode();
            instructions += 1;
            let next = decoder.ip();
            if next < run.end() && !starts.contains(&next) {
                continue;
            }
            let missed = cuts.iter().filter(|&&pc| pc <= from).count() as i64;
            let count = solved.count.saturating_sub(missed).max(0) as u64;
            if count != 0 {
                let (module, offset) = space.locate(from);
                let key = (module, offset, (next - from) as u32);
                let block = self.blocks.entry(key).or_insert((instructions, 0));
                block.1 = block.1.saturating_add(count);
                if next < run.end() {
                    self.add_edge(space.locate(last), space.locate(next), EdgeKind::Fall, count);
                }
            }
            (from, instructions) = (next, 0);
        }
        let branch = match run.ending {
            ending::BRANCH => Some(EdgeKind::Taken),
            ending::JUMP => Some(EdgeKind::Jump),
            ending::CALL => Some(EdgeKind::Call),
            _ => None,
        };
        let source = space.locate(last);
        let ways =
            [(branch, run.target, solved.taken), (Some(EdgeKind::Fall), run.end(), solved.fall)];
        for (kind, target, count) in ways {
            if let Some(kind) = kind.filter(|_| count > 0) {
                self.add_edge(source, space.locate(target), kind, count as u64);
            }
        }
    }

    fn add_edge(&mut self, source: Located, target: Located, kind: EdgeKind, count: u64) {
        let sum = self.edges.entry((source, target, kind)).or_default();
        *sum = sum.saturating_add(count);
    }
}
