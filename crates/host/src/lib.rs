//! weft's side of the process boundary. Knows nothing of Python.

mod addr;
mod agent;
mod agent_image;
mod arch;
pub mod checks;
pub mod clone;
mod error;
mod journey;
mod launch;
mod leftovers;
mod maker;
pub mod memory;
pub mod modules;
mod others;
mod place;
pub mod proc;
pub mod ptrace;
mod room;
mod stopped;
mod target;
mod turn;
pub mod weave;
mod worker;

pub use addr::TargetAddr;
pub use agent::{CpuFacts, Pong};
pub use arch::{Registers, VectorState};
pub use error::{Error, ErrorKind, Result};
pub use launch::{Launch, ended};
pub use maker::Maker;
pub use stopped::{Pause, Stopped};
pub use target::{Target, exit_code};
