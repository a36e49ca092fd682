//! The blocks of a trace: their bytes, and what follows from those.

use weft_code::accesses::{Detail, Plan, REGISTERS, plan};
use weft_code::iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

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
}

/// All blocks of one program of a trace, by their numbers.
#[derive(Debug, Default)]
pub struct Blocks {
    detail: Detail,
    all: Vec<Option<Box<Block>>>,
    briefs: Vec<Brief>,
}

/// What is asked of a block whenever it comes unexpectedly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brief {
    /// How many captures it has, and one more; 0 if there is no such block.
    captures: u32,
    /// How many instructions and, in the upper half, accesses.
    pub weight: u64,
    /// Whether it sets bases of segments.
    pub has_bases: bool,
}

impl Brief {
    pub fn captures(&self) -> usize {
        self.captures as usize - 1
    }
}

/// How many bits the numbers of a program's blocks have. Above them, a number of a whole trace has the program's.
const BITS: u32 = 21;
/// The most blocks that a program can have: numbers beyond are not believed.
const MOST: u32 = 1 << BITS;
/// The most programs that a trace can have.
pub(crate) const MOST_PROGRAMS: u32 = 1 << (32 - BITS);

/// The number that a block of a program has in the whole trace.
pub fn number_in_trace(program: u32, number: u32) -> u32 {
    program << BITS | number
}

/// The program that a block of a trace is of, and its number there.
pub fn program_and_number(number: u32) -> (u32, u32) {
    (number >> BITS, number & (MOST - 1))
}

impl Blocks {
    /// None yet, of a trace that is so detailed.
    pub fn new(detail: Detail) -> Self {
        Self { detail, ..Self::default() }
    }

    /// How detailed their trace is.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// Adds a block; says whether that was possible: a number is given once.
    pub fn add(&mut self, number: u32, address: u64, bytes: &[u8]) -> bool {
        if number >= MOST {
            return false;
        }
        let index = number as usize;
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
            self.briefs.resize(index + 1, Brief::default());
        }
        if self.all[index].is_some() {
            return false;
        }
        let plan = plan(bytes, address, self.detail);
        self.briefs[index] = Brief {
            captures: plan.captures.len() as u32 + 1,
            weight: u64::from(plan.instructions) | (plan.accesses.len() as u64) << 32,
            has_bases: !plan.bases.is_empty(),
        };
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
        self.all[index] = Some(Box::new(Block { address, bytes, plan, instructions, flow }));
        true
    }

    /// The block of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Block> {
        self.all.get(number as usize)?.as_deref()
    }

    /// The most important things of the block of a number.
    #[inline]
    pub(crate) fn brief(&self, number: u32) -> Option<&Brief> {
        self.briefs.get(number as usize).filter(|brief| brief.captures != 0)
    }

    /// How many captures a block has.
    #[inline]
    pub fn captures(&self, number: u32) -> Option<usize> {
        self.brief(number).map(Brief::captures)
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
