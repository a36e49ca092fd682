//! The control flow of one function.
//!
//! What is here is so: an edge that is not certain is left out and `unknown` says where. Bytes that nothing leads to are
//! gaps, never blocks.

mod build;
mod explore;
mod loops;
mod stack;
mod symbolic;
mod tables;

use alloc::vec::Vec;
use core::ops::Range;

use iced_x86::Instruction;

pub use build::graph;

use crate::{Callee, Function};

/// Instructions that run one after the other, entered only at the first and left only after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    instructions: Range<u32>,
}

/// How control gets from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// To the next instruction, also when a conditional branch is not taken.
    FallThrough,
    /// A direct jump.
    Jump,
    /// A conditional branch that is taken, or a transaction that fails.
    Taken,
    /// A jump through a table.
    Table,
    /// Back from a call.
    CallReturn,
}

/// A way from one block to another, by their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The block that is left.
    pub from: usize,
    /// The block that is entered.
    pub to: usize,
    /// How.
    pub kind: EdgeKind,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The instruction.
    pub address: u64,
    /// The block that it ends.
    pub block: usize,
    /// Where it goes, if that is written in it.
    pub target: Option<u64>,
    /// What is known of the callee.
    pub callee: Option<Callee>,
    /// Whether it can come back.
    pub returns: bool,
}

/// A way out of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The instruction that leaves.
    pub address: u64,
    /// The block that it ends.
    pub block: usize,
    /// How it leaves.
    pub kind: ExitKind,
    /// What is known of the function that it leaves to.
    pub callee: Option<Callee>,
}

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// To the caller.
    Return,
    /// By a jump to other code, which returns in this function's stead.
    TailJump {
        /// Where to, if that is known.
        target: Option<u64>,
        /// Whether it may also stay.
        conditional: bool,
    },
    /// By a call that does not come back.
    NoReturnCall,
    /// By a trap.
    Halt,
    /// By running on behind its last byte, into whatever is there.
    FallsOff {
        /// What is there.
        target: u64,
    },
}

/// A loop with one header, through which it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block that every turn passes.
    pub header: usize,
    /// The blocks that lead back to it.
    pub back: Vec<usize>,
    /// All blocks of it, sorted.
    pub blocks: Vec<usize>,
    /// How many loops it is in, itself included.
    pub depth: usize,
}

/// How the entries of a table lead to code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableForm {
    /// Signed 32-bit distances from an address, most often the table's own.
    Relative(u64),
    /// 32-bit addresses.
    Absolute32,
    /// 64-bit addresses.
    Absolute64,
}

/// A table that an indirect jump goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTable {
    /// The jump.
    pub jump: u64,
    /// The first entry that can be used.
    pub address: u64,
    /// What its entries are.
    pub form: TableForm,
    /// Where each entry leads.
    pub targets: Vec<u64>,
    /// Whether its size was guessed from its contents, because nothing in the code limits it. A guess goes on for as
    /// long as entries make sense: it may be too long, but hardly too short.
    pub guessed: bool,
}

/// Bytes in the function's ranges that nothing is known to lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The bytes.
    pub range: Range<u64>,
    /// Whether they are only filling: no-ops, traps or zeros.
    pub padding: bool,
}

/// Something that could not be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The instruction.
    pub address: u64,
    /// What about it.
    pub why: Why,
}

/// What could not be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Where an indirect jump goes.
    IndirectJump,
    /// How long the table is that a jump goes through.
    GuessedTable,
    /// What a jump out of the function leads to: no function is known to start there.
    StrayJump,
    /// What the bytes are: no instruction.
    Undecodable,
}

/// The control flow of a function.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// What it is the graph of.
    pub function: Function,
    /// The blocks, by address.
    pub blocks: Vec<Block>,
    /// The edges, by the block that they leave.
    pub edges: Vec<Edge>,
    /// The blocks that are entered from outside: the entry first, then further entries.
    pub entries: Vec<usize>,
    /// The blocks that the unwinder enters.
    pub landing_pads: Vec<usize>,
    /// The calls, by address.
    pub calls: Vec<Call>,
    /// The ways out, by address.
    pub exits: Vec<Exit>,
    /// The loops, by header.
    pub loops: Vec<Loop>,
    /// Whether there are cycles that no loop describes, because they have more than one entry.
    pub irreducible: bool,
    /// The jump tables, by jump.
    pub tables: Vec<JumpTable>,
    /// Bytes that are in no block, by address.
    pub gaps: Vec<Gap>,
    /// What could not be found out, by address.
    pub unknown: Vec<Unknown>,
    /// Whether it calls places in its own middle, which then are among its entries.
    pub calls_itself_inside: bool,
    instructions: Vec<Instruction>,
    /// Addresses of instructions with their place in `instructions`, by address.
    boundaries: Vec<(u64, u32)>,
    /// Where each block's edges begin in `edges`; one more at the end.
    leaving: Vec<u32>,
    /// Edges by the block that they enter, and where each block's begin.
    by_target: Vec<u32>,
    entering: Vec<u32>,
    /// Blocks from which control may go where no edge says, sorted.
    lost: Vec<usize>,
}

impl Graph {
    /// Of a function that is not there.
    fn empty(function: &Function) -> Self {
        let nothing = Unknown { address: function.entry(), why: Why::Undecodable };
        Self {
            function: function.clone(),
            unknown: alloc::vec![nothing],
            leaving: alloc::vec![0],
            entering: alloc::vec![0],
            ..Self::default()
        }
    }

    /// Whether nothing remained unknown.
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }

    /// The instructions of a block.
    pub fn instructions(&self, block: usize) -> &[Instruction] {
        let range = &self.blocks[block].instructions;
        &self.instructions[range.start as usize..range.end as usize]
    }

    /// The last instruction of a block.
    pub fn last(&self, block: usize) -> &Instruction {
        // No block is empty.
        &self.instructions[self.blocks[block].instructions.end as usize - 1]
    }

    /// The addresses of all instructions, sorted.
    pub fn instruction_boundaries(&self) -> impl Iterator<Item = u64> {
        self.boundaries.iter().map(|&(address, _)| address)
    }

    /// Whether an instruction starts at an address.
    pub fn is_boundary(&self, address: u64) -> bool {
        self.instruction_at(address).is_some()
    }

    /// The instruction that starts at an address.
    pub fn instruction_at(&self, address: u64) -> Option<&Instruction> {
        self.place_of(address).map(|place| &self.instructions[place])
    }

    /// The block that an address is in. Where code overlaps, the one that has an instruction starting there.
    pub fn block_of(&self, address: u64) -> Option<usize> {
        if let Some(place) = self.place_of(address) {
            return self.block_of_place(place);
        }
        let after = self.boundaries.partition_point(|&(start, _)| start <= address);
        let place = self.boundaries.get(after.checked_sub(1)?)?.1 as usize;
        (address < self.instructions[place].next_ip()).then(|| self.block_of_place(place)).flatten()
    }

    fn place_of(&self, address: u64) -> Option<usize> {
        let index = self.boundaries.binary_search_by_key(&address, |&(start, _)| start).ok()?;
        Some(self.boundaries[index].1 as usize)
    }

    fn block_of_place(&self, place: usize) -> Option<usize> {
        self.blocks
            .partition_point(|block| block.instructions.start as usize <= place)
            .checked_sub(1)
    }

    /// Edges that leave a block.
    pub fn successors(&self, block: usize) -> &[Edge] {
        &self.edges[self.leaving[block] as usize..self.leaving[block + 1] as usize]
    }

    /// Edges that enter a block.
    pub fn predecessors(&self, block: usize) -> impl Iterator<Item = &Edge> {
        let range = self.entering[block] as usize..self.entering[block + 1] as usize;
        self.by_target[range].iter().map(|&edge| &self.edges[edge as usize])
    }

    /// Every address in the function that something may jump to, sorted: targets of branches and tables, entries and
    /// landing pads. Addresses that calls return to are not among them.
    pub fn targets(&self) -> Vec<u64> {
        let jumped = self
            .edges
            .iter()
            .filter(|edge| matches!(edge.kind, EdgeKind::Jump | EdgeKind::Taken | EdgeKind::Table))
            .map(|edge| edge.to);
        let mut targets: Vec<u64> = jumped
            .chain(self.entries.iter().copied())
            .chain(self.landing_pads.iter().copied())
            .map(|block| self.blocks[block].start)
            .collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The addresses that calls return to, sorted.
    pub fn return_addresses(&self) -> Vec<u64> {
        let mut addresses: Vec<u64> = self
            .calls
            .iter()
            .filter(|call| call.returns)
            .map(|call| self.last(call.block).next_ip())
            .collect();
        addresses.sort_unstable();
        addresses
    }

    /// Whether control may leave a block in ways that are not known.
    pub(crate) fn is_lost(&self, block: usize) -> bool {
        self.lost.binary_search(&block).is_ok()
    }

    /// How many loops a block is in.
    pub fn loop_depth(&self, block: usize) -> usize {
        self.loops.iter().filter(|each| each.blocks.binary_search(&block).is_ok()).count()
    }
}

#[cfg(test)]
mod tests;
