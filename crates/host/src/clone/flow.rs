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
use std::collections::{BTreeMap, HashMap};
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

/// A run that was executed.
struct Executed<'a> {
    /// Its place in the log.
    place: usize,
    run: &'a Run,
    count: RunCount,
    /// Where it was left otherwise than by its ways.
    cuts: Vec<u64>,
}

/// What the log says to a process, with what that has counted.
struct Solver<'a> {
    log: &'a Log,
    counts: &'a [u64],
    /// The runs with their places, in the order of the log.
    runs: Vec<(usize, &'a Run)>,
    /// Where they begin: each address once.
    starts: Vec<u64>,
    /// How often each of these was come to, as far as that is known.
    arrivals: Vec<i64>,
    /// Where runs were left that were not left by their ways.
    cuts: HashMap<usize, Vec<u64>>,
    /// Of branches with one counter: whether the way to what follows is the one that is not counted.
    sides: HashMap<u32, bool>,
}

impl<'a> Solver<'a> {
    fn new(log: &'a Log, process: &Process, places: &[usize], counts: &'a [u64]) -> Self {
        let runs: Vec<(usize, &Run)> =
            places.iter().filter_map(|&place| Some((place, log.run(place)?))).collect();
        let mut starts: Vec<u64> = runs.iter().map(|(_, run)| run.start).collect();
        starts.sort_unstable();
        starts.dedup();
        let arrivals = vec![0; starts.len()];
        let (cuts, sides) = (HashMap::new(), HashMap::new());
        let mut solver = Self { log, counts, runs, starts, arrivals, cuts, sides };
        // Most programs have no cut at all.
        let mut by_code = None;
        for &place in places {
            match log.entries[place].what {
                What::Entered { address, counter } => solver.arrive(address, solver.value(counter)),
                What::Side { counter, is_fall } => drop(solver.sides.insert(counter, is_fall)),
                // Of others it is no cut.
                What::Cut { pc, code } if process.entries.binary_search(&place).is_ok() => {
                    let by_code = by_code.get_or_insert_with(|| solver.by_code());
                    match solver.left_at(by_code, place, pc, code) {
                        Some(index) => solver.cuts.entry(index).or_default().push(pc),
                        None => solver.arrive(pc, -1),
                    }
                }
                _ => {}
            }
        }
        solver
    }

    /// The runs by where their clones are.
    fn by_code(&self) -> Vec<(u64, usize)> {
        let mut found: Vec<(u64, usize)> =
            self.runs.iter().enumerate().map(|(index, (_, run))| (run.code, index)).collect();
        found.sort_unstable();
        found
    }

    /// The run that a cut was in: the last one that the log had until then.
    fn left_at(&self, by_code: &[(u64, usize)], cut: usize, pc: u64, code: u64) -> Option<usize> {
        let is_it = |run: &Run| match code & entry::AT_END {
            0 => (run.start..run.end()).contains(&pc),
            _ => run.end() == pc,
        };
        let wanted = code & !entry::AT_END;
        let known = &by_code[by_code.partition_point(|&(code, _)| code < wanted)..];
        known
            .iter()
            .take_while(|&&(code, index)| code == wanted && self.runs[index].0 < cut)
            .map(|&(_, index)| index)
            .filter(|&index| is_it(self.runs[index].1))
            .last()
    }

    fn value(&self, counter: u32) -> i64 {
        self.counts.get(counter as usize).map_or(0, |&count| count.min(HIGHEST) as i64)
    }

    fn arrive(&mut self, address: u64, count: i64) {
        if let Ok(index) = self.starts.binary_search(&address) {
            self.arrivals[index] = self.arrivals[index].saturating_add(count);
        }
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

    /// The runs that were executed, in the order of the log.
    fn solve(mut self) -> Vec<Executed<'a>> {
        let runs = std::mem::take(&mut self.runs);
        // What is counted is known before anything else.
        for (_, run) in &runs {
            let (taken, fall) = self.ways(run);
            for (way, to) in [(taken, run.target), (fall, run.end())] {
                if let Way::Counted(count) = way {
                    self.arrive(to, count);
                }
            }
        }
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|&index| runs[index].1.start);
        let mut solved = vec![RunCount::default(); runs.len()];
        let instances = order.chunk_by(|&a, &b| runs[a].1.start == runs[b].1.start);
        for (start, instances) in instances.enumerate() {
            let own = instances.iter().map(|&index| self.value(runs[index].1.own));
            let own = own.fold(0, i64::saturating_add);
            let mut rest = self.arrivals[start].saturating_sub(own).max(0);
            for &index in instances {
                let run = runs[index].1;
                let count = match run.own {
                    // Any of them may be the one that was come to: what was left of each tells.
                    0 if self.log.records == Records::Hits => rest,
                    0 => std::mem::take(&mut rest),
                    own => self.value(own),
                };
                let cut = self.cuts.get(&index).map_or(0, |cuts| cuts.len() as i64);
                solved[index] = self.leave(run, count, cut);
            }
        }
        let all = runs.into_iter().zip(solved).enumerate();
        all.filter(|(_, (_, count))| count.count != 0)
            .map(|(index, ((place, run), count))| {
                let cuts = self.cuts.remove(&index).unwrap_or_default();
                Executed { place, run, count, cuts }
            })
            .collect()
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

/// Counts by keys, of which the first one that is added has the details.
///
/// They are appended and put together when they have become twice as many, which is faster than a tree.
#[derive(Clone, Debug)]
struct Counts<K, D> {
    rows: Vec<(K, D, u64)>,
    /// How many there were when they had been put together.
    distinct: usize,
}

impl<K, D> Default for Counts<K, D> {
    fn default() -> Self {
        Self { rows: Vec::new(), distinct: 0 }
    }
}

impl<K: Ord + Copy, D> Counts<K, D> {
    fn add(&mut self, key: K, details: D, count: u64) {
        self.rows.push((key, details, count));
        if self.rows.len() > FEW + 2 * self.distinct {
            self.put_together();
        }
    }

    fn put_together(&mut self) {
        // It keeps the order of what has the same key.
        self.rows.sort_by_key(|row| row.0);
        self.rows.dedup_by(|row, first| {
            let is_same = row.0 == first.0;
            if is_same {
                first.2 = first.2.saturating_add(row.2);
            }
            is_same
        });
        self.distinct = self.rows.len();
    }

    /// Each key once, in their order.
    fn into_rows(mut self) -> Vec<(K, D, u64)> {
        self.put_together();
        self.rows
    }
}

/// So few counts are not worth putting together.
const FEW: usize = 1 << 16;

/// Puts together what several programs have told.
#[derive(Clone, Debug)]
pub struct Sum {
    modules: Vec<FlowModule>,
    by_path: HashMap<(String, Option<Vec<u8>>), u32>,
    /// By module, address and size, with the number of their instructions.
    blocks: Counts<(u32, u64, u32), u32>,
    edges: Counts<(Located, Located, EdgeKind), ()>,
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
            blocks: Counts::default(),
            edges: Counts::default(),
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
        let blocks = self.blocks.into_rows().into_iter();
        let blocks = blocks.map(|((module, offset, size), instructions, count)| FlowBlock {
            module,
            offset,
            size,
            instructions,
            count: once(count),
        });
        let edges = self.edges.into_rows().into_iter();
        let edges = edges.map(|((source, target, kind), (), count)| EdgeCount {
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
        let executed = Solver::new(log, process, places, counts).solve();
        // Where blocks begin: all that overlap are divided there.
        let mut starts: Vec<u64> = Vec::with_capacity(executed.len());
        for Executed { run, cuts, .. } in &executed {
            starts.push(run.start);
            starts.extend(cuts.iter().filter(|&&pc| pc < run.end()));
        }
        starts.sort_unstable();
        starts.dedup();
        let mut space = Space::default();
        for mapped in &log.mapped {
            self.map(&mut space, mapped);
        }
        let mut executed = executed.iter().peekable();
        for &place in places {
            if let What::Mapped(mapped) = &log.entries[place].what {
                self.map(&mut space, mapped);
            } else if let Some(run) = executed.next_if(|run| run.place == place) {
                self.add_run(run, &starts, &space);
            }
        }
    }

    fn add_run(&mut self, executed: &Executed<'_>, starts: &[u64], space: &Space) {
        let Executed { run, count: ref solved, ref cuts, .. } = *executed;
        let after = starts.partition_point(|&start| start <= run.start);
        let mut starts = starts[after..].iter().copied().peekable();
        let mut decoder = Decoder::with_ip(64, &run.bytes, run.start, DecoderOptions::NONE);
        let mut from = run.start;
        let mut instructions = 0;
        let mut last = run.start;
        while decoder.can_decode() {
            last = decoder.ip();
            let _ = decoder.decode();
            instructions += 1;
            let next = decoder.ip();
            while starts.next_if(|&start| start < next).is_some() {}
            if next < run.end() && starts.peek() != Some(&next) {
                continue;
            }
            let missed = cuts.iter().filter(|&&pc| pc <= from).count() as i64;
            let count = solved.count.saturating_sub(missed).max(0) as u64;
            if count != 0 {
                let (module, offset) = space.locate(from);
                let key = (module, offset, (next - from) as u32);
                self.blocks.add(key, instructions, count);
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
        self.edges.add((source, target, kind), (), count);
    }
}
