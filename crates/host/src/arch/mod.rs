//! Everything that depends on the processor. A second one is a second folder.

mod x86_64;

pub use x86_64::{
    Disturbance, GENERAL, Registers, SleepingCall, Step, Trip, Value, VectorState, assemble_trip,
    copies_memory, disturbance, syscall_name,
};
pub(crate) use x86_64::{cpu, instructions, program, signal_frame};
