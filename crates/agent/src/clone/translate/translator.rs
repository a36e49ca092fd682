//! A block that is being translated: what all parts of the translator share.

use crate::clone::cache::address_map::{Map, Place};
use crate::clone::cache::arena::Arena;
use crate::clone::cache::blocks::Block;
use crate::clone::cache::branch_tables::FirstTable;
use crate::clone::cache::emit;
use crate::clone::cache::emit::Out;
use crate::clone::cache::links::Link;
use crate::clone::cache::pieces::Kind;
use crate::clone::cache::sequences::Sequences;
use crate::clone::cache::store::Store;
use crate::clone::tools::halts::Halts;
use crate::clone::tools::recorder::{Recorder, Run};
use crate::clone::tools::weaving::Weaving;
use crate::clone::translate::trace_plan::Traced;
use alloc::vec::Vec;

/// Code of the program: its address and its bytes.
pub struct Source<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
}

impl Source<'_> {
    /// The code from an address to where it can be executed, or as much as a block can need.
    pub fn at(address: u64, end: u64) -> Self {
        let length = (end - address).min(2048) as usize;
        // SAFETY: the program's own code, which is mapped and may be read.
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
        Self { address, bytes }
    }
}

/// A block that is being translated.
pub struct Translator<'a> {
    pub known: Known<'a>,
    pub number: usize,
    pub arena: &'a mut Arena,
    pub weaving: &'a mut Weaving,
    pub recorder: Option<&'a mut Recorder>,
    pub halts: &'a Halts,
    /// The run of instructions that is being translated, if that is recorded.
    pub run: Option<Run>,
    /// What is traced of it, if it is.
    pub traced: Option<Traced>,
    /// What the stub of the next branch is marked with.
    pub mark: u64,
    pub out: Out,
    pub block: Block,
    /// The address of each instruction so far, and where its code is.
    pub places: Vec<(u64, u64)>,
    pub extent: Extent,
    /// Whether branches are linked to blocks.
    pub is_linking: bool,
    /// Whether this is the jump at a block's end.
    pub is_at_end: bool,
    /// Whether the instruction before may have set the trap flag. What follows must not be in another block: the first trap
    /// would come behind the jump to that, with nothing of the program's executed.
    pub may_trap_next: bool,
    /// The instruction that is being translated.
    pub address: u64,
    /// Branches to what comes later in the same sequences.
    pub forward: Vec<Link>,
    /// Descriptors that have no length yet, and where their sequences end.
    pub armed: Vec<(u64, u64)>,
    /// Where the copy of the last instruction ends.
    pub end: u64,
}

/// How much to translate at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A whole block.
    Block,
    /// One instruction, which nothing is linked to and nothing is inserted at.
    Single,
    /// One instruction, with what is woven at it and recorded of it.
    Step,
    /// Up to a branch, or to something that may change what follows; the block checks each time whether its
    /// original is what it was.
    Checked,
    /// Restartable sequences that overlap, all of them up to where they end.
    Sequences { end: u64, is_checked: bool },
}

impl Extent {
    /// Whether it is one instruction, by itself.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Single | Self::Step)
    }

    pub fn is_checked(self) -> bool {
        matches!(self, Self::Checked | Self::Sequences { is_checked: true, .. })
    }
}

/// Whether what is translated is recorded, and stops for a debugger: not what is not kept, and not restartable
/// sequences, which the kernel may abort in the middle of anything that is inserted.
pub fn is_recorded(extent: Extent) -> bool {
    matches!(extent, Extent::Block | Extent::Checked)
}

/// What the clone has that the program does not.
pub struct Inserts<'a> {
    pub weaving: &'a mut Weaving,
    pub recorder: Option<&'a mut Recorder>,
    pub halts: &'a Halts,
}

/// What is known of the program, and the table in which its indirect branches look.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub map: &'a Map,
    /// Clones from files; `None` where one is being made that is to be kept in a file.
    pub store: Option<&'a Store>,
    pub sequences: &'a Sequences,
    pub table: FirstTable,
    /// Whether the code that is translated stays as it is.
    pub is_fixed: bool,
}

impl Known<'_> {
    /// Where the code of an address is, if it has any.
    pub fn find(&self, address: u64) -> Option<Place> {
        let stored = || self.store.and_then(|store| store.find(address));
        self.map.get(address).copied().or_else(stored)
    }

    /// Whether what is made is to be kept in a file.
    pub fn is_for_file(&self) -> bool {
        self.store.is_none()
    }
}

impl Translator<'_> {
    /// Leaves the clone with the address of the instruction that is being translated.
    pub fn leave_for(&mut self, gate: u64) {
        let before = self.out.here();
        emit::leave_with(&mut self.out, gate, self.address);
        // For finding the program's state it is a system call that was not made yet: the same registers are in use.
        self.record(Kind::SystemCall, 0, before);
    }

    /// Whether something is woven at the instruction that is being translated. Not in restartable sequences:
    /// the kernel may send the thread away in the middle of a snippet.
    pub fn is_woven(&self, way: u8) -> bool {
        self.extent != Extent::Single
            && !self.is_in_sequences(self.address)
            && self.weaving.is_at(self.address, way)
    }

    /// Records all that was written since then as not the program's, however long it is.
    pub fn record_snippet(&mut self, mut before: u64) {
        while before < self.out.here() {
            let length = (self.out.here() - before).min(u8::MAX.into());
            self.block.records.extend_from_slice(&[Kind::Snippet as u8, length as u8]);
            before += length;
        }
    }

    /// Whether the next byte is the beginning of code for an address.
    pub fn is_start(&self) -> bool {
        self.block.starts.iter().any(|start| start.body == self.out.here())
    }

    /// Notes what was written since then, for an instruction of some length.
    pub fn record(&mut self, kind: Kind, length: usize, before: u64) {
        let copied = (self.out.here() - before) as u8;
        self.block.records.extend_from_slice(&[kind as u8 | length as u8, copied]);
    }

    /// Whether an address is in the sequences that are being translated.
    pub fn is_in_sequences(&self, address: u64) -> bool {
        matches!(self.extent, Extent::Sequences { end, .. } if (self.block.start..end).contains(&address))
    }

    /// Whether the block ends before an address, because sequences end or begin there.
    pub fn is_beyond(&self, address: u64, instructions: usize) -> bool {
        match self.extent {
            Extent::Sequences { end, .. } => address >= end,
            _ => instructions > 0 && self.known.sequences.holds(address),
        }
    }

    /// Whether exits are counted each time that they are taken.
    pub fn is_counting(&self) -> bool {
        self.has_ways() && self.recorder.as_ref().is_some_and(|recorder| recorder.is_for_counts())
    }

    /// Whether exits are of interest: a single step enters and leaves by the agent.
    pub fn has_ways(&self) -> bool {
        self.extent != Extent::Step
    }

    /// Whether only the first time that an exit is taken is recorded.
    pub fn is_marking(&self) -> bool {
        self.has_ways() && self.recorder.as_ref().is_some_and(|recorder| recorder.is_for_hits())
    }

    /// Whether code can be entered at an instruction: at the front of a run, if runs are recorded.
    pub fn is_entered_at(&self, address: u64) -> bool {
        self.run.is_none_or(|run| run.start == address)
    }
}
