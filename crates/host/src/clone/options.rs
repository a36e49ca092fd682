//! What is asked of a clone, and what it answers.

use crate::store::folder::Folder;
use std::sync::Arc;
use weft_abi::CloneRegisters;
use weft_abi::recording::mode;
use weft_trace::Detail;

/// How a program is cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneOptions {
    /// How many bytes of clone a process may have.
    pub cache_size: u64,
    /// Whether changes of code are looked for; without it, programs that make code go wrong.
    pub sees_changes: bool,
    /// Whether other programs that it becomes, or starts, are cloned as well.
    pub follows: bool,
    /// Whether the program waits after each block: see [`super::Cloned::arrival`].
    pub in_step: bool,
    /// What is recorded of what it executes.
    pub records: Records,
    /// Where clones are kept for the next time; `None` if they are not.
    pub folder: Option<Arc<Folder>>,
}

/// What is recorded of what a program executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// Nothing.
    #[default]
    Nothing,
    /// Which blocks and edges are executed.
    Hits,
    /// How often: by counters from which all others follow.
    Counts,
    /// How often each block is executed, by a counter in each: to hold the others against.
    EveryBlock,
    /// All of it, in order, with what addresses depend on: see [`super::Cloned::trace_to`].
    Trace,
    /// The same, and with what is read and written.
    TraceValues,
}

/// Where a program is that waits after each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// What it has there.
    pub registers: CloneRegisters,
    /// Whether the block before was left at its end, not by a branch.
    pub is_onward: bool,
}

impl Default for CloneOptions {
    fn default() -> Self {
        Self {
            cache_size: 256 << 20,
            sees_changes: true,
            follows: true,
            in_step: false,
            records: Records::Nothing,
            folder: None,
        }
    }
}

impl Records {
    /// What the engine calls it.
    pub(super) fn mode(self) -> u64 {
        match self {
            Self::Nothing => mode::OFF,
            Self::Hits => mode::HITS,
            Self::Counts => mode::COUNTS,
            Self::EveryBlock => mode::EVERY_BLOCK,
            Self::Trace => mode::TRACE,
            Self::TraceValues => mode::TRACE_VALUES,
        }
    }

    /// How detailed the trace is that is written, if one is.
    pub(super) fn trace_detail(self) -> Option<Detail> {
        match self {
            Self::Trace => Some(Detail::Addresses),
            Self::TraceValues => Some(Detail::Values),
            _ => None,
        }
    }
}
