//! The program's view of the kernel and of the processor.

pub mod call_points;
pub mod calls;
pub mod coprocessor;
pub mod filters;
pub mod limits;
pub mod memory_files;
pub mod processes;
pub mod sequences;
pub mod signals;
pub mod vsyscall;
