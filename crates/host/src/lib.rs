//! weft's side of the process boundary. Knows nothing of Python.

mod addr;
mod agent;
mod agent_image;
mod arch;
mod error;
mod journey;
mod place;
pub mod memory;
pub mod proc;
mod ptrace;
mod room;
mod target;
mod stopped;
mod worker;

pub use addr::TargetAddr;
pub use error::{Error, ErrorKind, Result};
pub use agent::{CpuFacts, Pong};
pub use stopped::Pause;
pub use target::Target;
