//! What is captured of a run that is traced.

use alloc::vec::Vec;
use iced_x86::Instruction;
use weft_code::accesses::{Captured, Plan};

pub const WORD: i32 = 8;

/// What is traced of the run that is being translated.
#[derive(Debug)]
pub struct Traced {
    pub plan: Plan,
    /// Where the run ends.
    pub end: u64,
    /// How many of its instructions are translated, and the last one of them if it is to be known.
    pub done: u16,
    pub last: Instruction,
}

/// Where in a record something goes, and what.
pub type Kept = (i32, Captured);

impl Traced {
    /// How many bytes a record of it has.
    pub fn size(&self) -> i32 {
        WORD * (1 + self.plan.captures.len() as i32)
    }

    /// What is captured before an instruction.
    pub fn captures(&self, before: u16) -> Vec<Kept> {
        let captures = (1..).zip(&self.plan.captures);
        let here = captures.filter(|(_, capture)| capture.before == before);
        here.map(|(place, capture)| (WORD * place, capture.place)).collect()
    }
}
