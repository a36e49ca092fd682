//! x86-64.

mod calls;
pub(crate) mod cpu;
pub(crate) mod instructions;
pub(crate) mod program;
mod registers;
mod sampled;
pub(crate) mod signal_frame;
mod trip;
mod vector;

pub use calls::{
    Disturbance, SleepingCall, copies_memory, disturbance, is_counted, may_be_cut_short,
    may_end_short, may_have_socket_timeout, syscall_name, waits_for_child,
};
pub use registers::{GENERAL, Registers};
pub use sampled::{SAMPLED_ABI, SAMPLED_COUNT, SAMPLED_REGISTERS, Sampled};
pub use trip::{Step, Trip, Value, assemble_trip};
pub use vector::VectorState;
