//! What programs have executed, row by row: blocks of code with the functions and the lines that they are in, and the
//! ways between them; and what is summed up of all rows. A large program has some hundred thousand of them.

use crate::hex::hex;
use crate::listing;
use crate::written::Line;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A module, and an address as its file states it.
pub type Located = (u32, u64);
/// A source file, by its place, and a line, where they are known.
pub type Written = Option<(u32, u32)>;

/// A way from one block to another that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The last instruction of the block that it leaves.
    pub source: Located,
    /// The first instruction of the block that it leads to.
    pub target: Located,
    /// How control goes: `fall`, `taken`, `jump` or `call`.
    pub kind: &'static str,
    /// How often.
    pub count: u64,
}

impl Edge {
    fn is_call(&self) -> bool {
        self.kind == "call"
    }
}

/// Instructions that are executed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of its function.
    pub function: u32,
    /// Where it is.
    pub at: Located,
    /// Its bytes.
    pub size: u64,
    /// Its instructions.
    pub instructions: u64,
    /// How often it was executed.
    pub count: u64,
    /// What it is as bytes; none where they could not be read.
    pub code: Vec<u8>,
    /// Where it is written: the places of files among those of the profile.
    pub lines: Vec<Line>,
}

impl Block {
    /// The instructions that were executed here.
    pub fn cost(&self) -> u128 {
        u128::from(self.instructions) * u128::from(self.count)
    }

    /// The lines of its instructions, and how many are of each; those first that come first.
    fn instructions_by_line(&self) -> Vec<(Written, u64)> {
        if self.lines.is_empty() {
            return vec![(None, self.instructions)];
        }
        let mut found: Vec<(Written, u64)> = Vec::new();
        for at in listing::starts(&self.code, self.at.1) {
            let after = self.lines.partition_point(|&(offset, _)| offset <= at);
            let line = after.checked_sub(1).and_then(|place| self.lines[place].1);
            match found.iter_mut().find(|(known, _)| *known == line) {
                Some((_, count)) => *count += 1,
                None => found.push((line, 1)),
            }
        }
        found
    }
}

/// All ways of one kind between two functions, put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The function that they leave.
    pub source: u32,
    /// The one that they lead to.
    pub target: u32,
    /// Whether that is its first instruction.
    pub is_entry: bool,
    /// Whether they are calls.
    pub is_call: bool,
    /// How often they were taken.
    pub count: u128,
}

/// A profile's blocks and edges.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In any order.
    pub blocks: Vec<Block>,
    /// The ways between them, in any order.
    pub edges: Arc<Vec<Edge>>,
    /// The source files that lines are in.
    pub files: Vec<String>,
    /// The places of the blocks, in the order of modules and addresses.
    order: Vec<usize>,
    /// What [`Profile::ends`] returns, once somebody has asked for it.
    ends: OnceLock<Vec<Ends>>,
}

/// The places of the blocks that an edge leaves and leads to, as far as they are.
pub type Ends = (Option<usize>, Option<usize>);

impl Profile {
    /// A profile of these.
    pub fn new(blocks: Vec<Block>, edges: Arc<Vec<Edge>>, files: Vec<String>) -> Self {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&place| blocks[place].at);
        Self { blocks, edges, files, order, ends: OnceLock::new() }
    }

    /// The instructions that were executed in each function, of which there are so many.
    pub fn costs(&self, functions: usize) -> Vec<u128> {
        let mut costs = vec![0_u128; functions];
        for block in &self.blocks {
            if let Some(cost) = costs.get_mut(block.function as usize) {
                *cost = cost.saturating_add(block.cost());
            }
        }
        costs
    }

    /// How often the first instruction of each function was executed, given where they begin.
    pub fn entries(&self, offsets: &[u64]) -> Vec<u128> {
        let mut entries = vec![0_u128; offsets.len()];
        for block in &self.blocks {
            let function = block.function as usize;
            if offsets.get(function) == Some(&block.at.1) {
                entries[function] += u128::from(block.count);
            }
        }
        entries
    }

    /// The instructions of each function by file and line; those without a known line are of none.
    pub fn line_costs(&self) -> Vec<(u32, Written, u128)> {
        let mut sums = Sums::default();
        for block in &self.blocks {
            for (line, instructions) in block.instructions_by_line() {
                let cost = u128::from(instructions) * u128::from(block.count);
                sums.add((block.function, line), cost);
            }
        }
        sums.rows.into_iter().map(|((function, line), cost)| (function, line, cost)).collect()
    }

    /// The place of the block that has an instruction.
    pub fn block_at(&self, at: Located) -> Option<usize> {
        let after = self.order.partition_point(|&place| self.blocks[place].at <= at);
        let place = self.order[after.checked_sub(1)?];
        let block = &self.blocks[place];
        let is_inside = block.at.0 == at.0 && at.1.checked_sub(block.at.1)? < block.size;
        is_inside.then_some(place)
    }

    /// Of each edge the blocks.
    pub fn ends(&self) -> &[Ends] {
        let ends = |edge: &Edge| (self.block_at(edge.source), self.block_at(edge.target));
        self.ends.get_or_init(|| self.edges.iter().map(ends).collect())
    }

    /// The ways from each function to each, itself included, in the order in which the first edge of each comes. Given is
    /// where functions begin.
    pub fn ways(&self, offsets: &[u64]) -> Vec<Way> {
        let mut sums = Sums::default();
        for (edge, ends) in self.edges.iter().zip(self.ends()) {
            if let (Some(source), Some(target)) = *ends {
                let [source, target] =
                    [source, target].map(|place| self.blocks[place].function as usize);
                let is_entry = offsets.get(target) == Some(&edge.target.1);
                let key = (source as u32, target as u32, is_entry, edge.is_call());
                sums.add(key, edge.count.into());
            }
        }
        let way = |((source, target, is_entry, is_call), count)| Way {
            source,
            target,
            is_entry,
            is_call,
            count,
        };
        sums.rows.into_iter().map(way).collect()
    }

    /// The places of the edges that leave an instruction in a range of a module.
    pub fn leaving(&self, module: u32, range: &Range<u64>) -> Vec<usize> {
        let leaves = |edge: &Edge| edge.source.0 == module && range.contains(&edge.source.1);
        let edges = self.edges.iter().enumerate();
        edges.filter(|(_, edge)| leaves(edge)).map(|(place, _)| place).collect()
    }

    /// The places of so many blocks at most, those first that cost most; of the same cost those first that come first.
    pub fn hottest(&self, most: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.blocks.len()).collect();
        places.sort_by_cached_key(|&place| std::cmp::Reverse(self.blocks[place].cost()));
        places.truncate(most);
        places
    }

    /// All blocks as objects of JSON, with a comma between them.
    pub fn blocks_as_json(&self) -> String {
        let unknown = self.files.len();
        let mut out = String::with_capacity(self.blocks.len() * 160);
        for block in &self.blocks {
            let Block { function, at: (_, offset), size, instructions, count, code, lines } = block;
            separate(&mut out);
            // Nothing can go wrong where a string is written to.
            let _ = write!(
                out,
                r#"{{"function": {function}, "offset": {offset}, "size": {size}, "instructions": {instructions}, "count": {count}, "code": ""#
            );
            out.push_str(&hex(code));
            out.push_str(r#"", "lines": ["#);
            for (number, &(at, place)) in lines.iter().enumerate() {
                let (file, line) = place.map_or((unknown, 0), |(file, line)| (file as usize, line));
                let comma = if number > 0 { ", " } else { "" };
                let _ = write!(out, "{comma}[{at}, {file}, {line}]");
            }
            out.push_str("]}");
        }
        out
    }

    /// All edges as objects of JSON, with a comma between them.
    pub fn edges_as_json(&self) -> String {
        let mut out = String::with_capacity(self.edges.len() * 110);
        for Edge { source: (module, source), target: (to_module, target), kind, count } in
            self.edges.iter()
        {
            separate(&mut out);
            let _ = write!(
                out,
                r#"{{"module": {module}, "source": {source}, "to_module": {to_module}, "target": {target}, "kind": "{kind}", "count": {count}}}"#
            );
        }
        out
    }
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push_str(", ");
    }
}

/// Sums by keys, in the order in which these come first.
struct Sums<K> {
    rows: Vec<(K, u128)>,
    places: HashMap<K, usize>,
}

impl<K> Default for Sums<K> {
    fn default() -> Self {
        Self { rows: Vec::new(), places: HashMap::new() }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Sums<K> {
    fn add(&mut self, key: K, amount: u128) {
        match self.places.entry(key) {
            Entry::Occupied(place) => {
                let sum = &mut self.rows[*place.get()].1;
                *sum = sum.saturating_add(amount);
            }
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push((key, amount));
            }
        }
    }
}
