//! Everything that depends on the processor. A second one is a second folder.

mod x86_64;

pub use x86_64::{
    Disturbance, Registers, Step, Trip, Value, VectorState, assemble_trip, disturbance,
    syscall_name,
};
