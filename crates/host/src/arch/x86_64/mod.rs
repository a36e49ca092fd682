//! x86-64.

mod calls;
pub(crate) mod cpu;
pub(crate) mod instructions;
pub(crate) mod program;
mod registers;
pub(crate) mod signal_frame;
mod trip;
mod vector;

pub use calls::{Disturbance, SleepingCall, copies_memory, disturbance, syscall_name};
pub use registers::{GENERAL, Registers};
pub use trip::{Step, Trip, Value, assemble_trip};
pub use vector::VectorState;
