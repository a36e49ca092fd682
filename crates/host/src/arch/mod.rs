//! Everything that depends on the processor. A second one is a second folder.

mod x86_64;

pub(crate) use x86_64::{AUDIT_ARCH, cpu, program};
pub use x86_64::{
    Disturbance, Registers, Step, Trip, Value, VectorState, assemble_trip, copies_memory,
    disturbance, syscall_name,
};
