//! The debug engine: a program that runs from a clone, as a debugger is to see it.
//!
//! The kernel stops threads, and the engine in the program makes of every stop one at an instruction of the program's
//! own (`crates/agent/src/clone/kernel/debugger.rs`). What is left to do here is to know where each thread stands, to ask for
//! stops, and to decide whether program or debugger gets a signal first.

mod context;
mod debuggee;
mod events;
mod forks;
mod held;
mod in_call;
mod kernel;
mod points;
mod resume;
mod signal;
mod state;
mod thread;

pub use state::Session;
