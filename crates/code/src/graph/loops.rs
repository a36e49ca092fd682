//! Dominators, and the natural loops that they make visible.

use alloc::vec;
use alloc::vec::Vec;

use super::{Graph, Loop};

const NONE: usize = usize::MAX;

impl Graph {
    /// Finds loops. The blocks and edges are final.
    pub(super) fn find_loops(&mut self) {
        let order = self.reverse_postorder();
        let mut position = vec![NONE; self.blocks.len()];
        for (index, &block) in order.iter().enumerate() {
            position[block] = index;
        }
        let dominators = self.dominators(&order, &position);
        let dominates = |above: usize, mut below: usize| {
            // Positions fall on the way up, so the walk ends at the latest where `above` would be.
            let above = position[above];
            below = position[below];
            while below != NONE && below > above {
                below = dominators[below];
            }
            below == above
        };
        let mut loops: Vec<Loop> = Vec::new();
        for edge in &self.edges {
            if position[edge.from] == NONE || position[edge.to] > position[edge.from] {
                continue;
            }
            if !dominates(edge.to, edge.from) {
                self.irreducible = true;
                continue;
            }
            match loops.iter_mut().find(|each| each.header == edge.to) {
                Some(found) if found.back.contains(&edge.from) => {}
                Some(found) => found.back.push(edge.from),
                None => loops.push(Loop {
                    header: edge.to,
                    back: vec![edge.from],
                    blocks: Vec::new(),
                    depth: 0,
                }),
            }
        }
        for each in &mut loops {
            each.blocks = self.body(each.header, &each.back);
        }
        loops.sort_by_key(|each| each.header);
        for index in 0..loops.len() {
            let header = loops[index].header;
            loops[index].depth =
                loops.iter().filter(|other| other.blocks.binary_search(&header).is_ok()).count();
        }
        self.loops = loops;
    }

    /// The blocks that reach the end of a loop without passing its header.
    fn body(&self, header: usize, back: &[usize]) -> Vec<usize> {
        let mut inside = vec![false; self.blocks.len()];
        inside[header] = true;
        let mut pending: Vec<usize> = back.to_vec();
        while let Some(block) = pending.pop() {
            if !core::mem::replace(&mut inside[block], true) {
                pending.extend(self.predecessors(block).map(|edge| edge.from));
            }
        }
        (0..inside.len()).filter(|&block| inside[block]).collect()
    }

    /// Blocks in an order in which each comes before those that it leads to, but for loops.
    fn reverse_postorder(&self) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::with_capacity(self.blocks.len());
        for &root in self.entries.iter().chain(&self.landing_pads) {
            if core::mem::replace(&mut seen[root], true) {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((block, next)) = path.last_mut() {
                let (block, index) = (*block, *next);
                *next += 1;
                match self.successors(block).get(index) {
                    Some(edge) if !core::mem::replace(&mut seen[edge.to], true) => {
                        path.push((edge.to, 0));
                    }
                    Some(_) => {}
                    None => {
                        order.push(block);
                        path.pop();
                    }
                }
            }
        }
        order.reverse();
        order
    }

    /// For each position in the order that of its closest dominator; `NONE` above what is entered from outside.
    fn dominators(&self, order: &[usize], position: &[usize]) -> Vec<usize> {
        const UNSET: usize = usize::MAX - 1;
        let mut above = vec![UNSET; order.len()];
        let mut rooted = vec![false; order.len()];
        for &root in self.entries.iter().chain(&self.landing_pads) {
            above[position[root]] = NONE;
            rooted[position[root]] = true;
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (index, &block) in order.iter().enumerate() {
                if rooted[index] {
                    continue;
                }
                let mut best = UNSET;
                for edge in self.predecessors(block) {
                    let other = position[edge.from];
                    if other == NONE || above[other] == UNSET {
                        continue;
                    }
                    best = if best == UNSET { other } else { meet(&above, best, other) };
                }
                if best != above[index] {
                    above[index] = best;
                    changed = true;
                }
            }
        }
        above
    }
}

/// The closest position that dominates both.
fn meet(above: &[usize], mut one: usize, mut other: usize) -> usize {
    while one != other {
        if one == NONE || other == NONE {
            return NONE;
        }
        if one > other {
            one = above[one];
        } else {
            other = above[other];
        }
    }
    one
}
