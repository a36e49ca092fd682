//! Everything that depends on the processor. A second one is a second folder.

mod x86_64;

pub use x86_64::{
    Disturbance, GENERAL, Registers, SAMPLED_ABI, SAMPLED_COUNT, SAMPLED_REGISTERS, Sampled,
    SleepingCall, Step, Trip, Value, VectorState, assemble_trip, copies_memory, disturbance,
    is_counted, may_be_cut_short, may_end_short, may_have_socket_timeout, syscall_name,
    waits_for_child,
};
pub(crate) use x86_64::{cpu, instructions, program, signal_frame};
