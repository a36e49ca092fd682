//! Facts about x86-64 code: bytes in, facts out. Knows nothing of processes.
//!
//! [`sweep()`] finds every direct branch of a text section, fast. [`graph()`] follows the control flow of one function,
//! [`Liveness`] says what is free to use at each of its instructions, [`Relocator`] copies instructions elsewhere
//! without changing what they mean. [`accesses::plan`] says which memory a run of instructions touches.
#![no_std]

extern crate alloc;

pub mod accesses;
mod call_number;
mod caller;
mod effects;
mod graph;
mod liveness;
mod memory;
mod program;
mod relocate;
pub mod seccomp;
mod spin;
mod state;
mod sweep;

pub use call_number::call_number;
pub use caller::{Base, Known, LONGEST, Place, Return, ends_with_call, returns};
pub use effects::{before_faults, number};
pub use graph::{
    Block, Call, Edge, EdgeKind, Exit, ExitKind, Gap, Graph, JumpTable, Loop, TableForm, Unknown,
    Why, graph,
};
/// The decoder's own types, so that users of a graph need not name a second version of it.
pub use iced_x86;
pub use liveness::{Live, Liveness, live_at_entry};
pub use memory::{Access, Direction, MemoryUse, Segment, is_system_call};
pub use program::{Callee, Function, Program};
pub use relocate::{Aim, Immovable, Label, Moved, Reason, Relocated, Relocator, relocate};
pub use spin::spins;
pub use state::{Convention, FlagSet, Register, RegisterSet};
pub use sweep::{Branch, BranchKind, Sweep, Width, sweep};
