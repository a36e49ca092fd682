//! What the engine keeps of a thread, and what a thread does that needs no clone: its registers, its signals, its
//! way back to the program's own code.

pub mod actions;
pub mod alternate_stack;
pub mod assembly;
pub mod halt_requests;
pub mod kept_signals;
pub mod landmarks;
pub mod native;
pub mod pending;
pub mod record;
pub mod repeated;
pub mod vectors;
