//! weft's side of the process boundary. Knows nothing of Python.
//!
//! Each folder is a layer, and imports from itself and from those before it: `base`, `arch`, `process`, `stacks`,
//! `trip`, `visited`, `checks`, `weave`, `store`, `clone`,
//! `target`.

mod arch;
mod base;
pub mod checks;
pub mod clone;
mod process;
pub mod stacks;
pub mod store;
mod target;
mod trip;
mod visited;
pub mod weave;

pub use arch::{GENERAL, Registers, VectorState};
pub use base::addr::TargetAddr;
pub use base::error::{Error, ErrorKind, Result};
pub use base::maker::Maker;
pub use process::entered::Entered;
pub use process::launch::{Launch, ended};
pub use process::stopped::{Pause, Stopped};
pub use process::{memory, modules, proc, ptrace, sockets};
pub use target::{Target, exit_code};
pub use visited::agent::{CpuFacts, Pong};
