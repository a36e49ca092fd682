//! The program's view of the kernel: system calls, processes, signals, what maps look like, debuggers.

pub mod call_points;
pub mod calls;
pub mod debugger;
pub mod filters;
pub mod limits;
pub mod memory;
pub mod memory_files;
pub mod pass;
pub mod processes;
pub mod sequences;
pub mod signals;
pub mod vsyscall;
