//! x86-64.

mod calls;
mod registers;
mod trip;
mod vector;

pub use calls::{Disturbance, disturbance, syscall_name};
pub use registers::Registers;
pub use trip::{Step, Trip, Value, assemble_trip};
pub use vector::VectorState;
