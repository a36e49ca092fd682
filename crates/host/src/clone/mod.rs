//! Programs that run from a clone of their code: the engine (`crates/agent`) is brought in before their
//! first instruction or while they run, and again whenever they become another program.
//!
//! Nothing holds the program while it runs. A thread that is about to call `execve` asks, through memory
//! that it shares with weft, to be held for the moment: see `attend`.

mod approach;
mod attend;
mod cloned;
mod debug_hold;
mod delivery;
mod family;
mod flow;
mod futex;
mod inject;
mod keeping;
mod log;
mod losses;
mod members;
mod options;
mod presence;
mod reclaim;
mod recording;
mod release;
mod tables;
mod trace;
mod visit;

pub use crate::arch::cpu::cycles;
pub use cloned::Cloned;
pub use debug_hold::DebugHold;
pub use delivery::while_held;
pub(crate) use family::Family;
pub use flow::{EdgeCount, EdgeKind, Flow, FlowBlock, Located};
pub use log::FlowModule;
pub use losses::Losses;
pub use options::{Arrival, CloneOptions, Records};
pub(crate) use reclaim::reclaim;
pub use tables::USUAL as USUAL_TABLES;
pub use trace::Tracer;
