//! The blocks of a trace: their bytes, and what follows from those.

use weft_code::accesses::{Plan, REGISTERS, plan};
use weft_code::iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::predict::Model;

/// A block of instructions.
#[derive(Debug)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its instructions.
    pub bytes: Box<[u8]>,
    /// What they touch.
    pub plan: Plan,
    /// The address of each of them, and the one behind the last.
    pub instructions: Box<[u64]>,
    /// How it ends.
    pub flow: FlowControl,
    pub(crate) model: Model,
}

/// All blocks of a trace, by their numbers.
#[derive(Debug, Default)]
pub struct Blocks {
    all: Vec<Option<Box<Block>>>,
    /// How many captures all blocks have.
    pub(crate) slots: u32,
}

/// The most blocks that a trace can have: numbers beyond are not believed.
const MOST: u32 = 1 << 28;

impl Blocks {
    /// Adds a block; says whether that was possible: a number is given once.
    pub fn add(&mut self, number: u32, address: u64, bytes: &[u8]) -> bool {
        if number >= MOST {
            return false;
        }
        let index = number as usize;
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        if self.all[index].is_some() {
            return false;
        }
        let plan = plan(bytes, address);
        let model = Model::new(&plan, self.slots);
        self.slots += plan.captures.len() as u32;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(plan.instructions as usize + 1);
        let mut instruction = Instruction::default();
        for _ in 0..plan.instructions {
            instructions.push(decoder.ip());
            decoder.decode_out(&mut instruction);
        }
        instructions.push(decoder.ip());
        let flow = instruction.flow_control();
        let instructions = instructions.into();
        let bytes = bytes.into();
        self.all[index] = Some(Box::new(Block { address, bytes, plan, instructions, flow, model }));
        true
    }

    /// The block of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Block> {
        self.all.get(number as usize)?.as_deref()
    }

    /// How many captures a block has.
    #[inline]
    pub fn captures(&self, number: u32) -> Option<usize> {
        self.get(number).map(|block| block.plan.captures.len())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        (0..).zip(&self.all).filter_map(|(number, block)| Some((number, block.as_deref()?)))
    }

    /// How many numbers there are, with those that no block has.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

impl Block {
    /// The last instruction's address.
    pub fn last(&self) -> u64 {
        self.instructions.len().checked_sub(2).map_or(self.address, |last| self.instructions[last])
    }

    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.instructions.last().copied().unwrap_or(self.address)
    }

    /// What forms speak of: the captures behind the registers, which no address depends on.
    pub fn sources(&self, captures: &[u64], sources: &mut Vec<u64>) {
        sources.clear();
        sources.resize(REGISTERS, 0);
        sources.extend(captures);
    }
}
