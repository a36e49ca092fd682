//! Processes as the kernel shows them: `/proc`, ptrace, memory, and threads that are stopped.
//!
//! `proc` and `status` read files, `memory` and `ptrace` wrap system calls, `modules` finds what is mapped,
//! `limits`, `cgroup` and `seccomp` are what the kernel forbids the process, `sockets` how long its calls wait, `noticed` which
//! of them must not be stopped. `stopped` holds threads, `turn` keeps other wefts away meanwhile, `edit` changes code, `stacks` looks for return addresses, `launch` starts programs, `entered`
//! holds them where they begin.

pub(crate) mod capability;
pub(crate) mod cgroup;
pub(crate) mod edit;
pub(crate) mod entered;
#[cfg(test)]
mod execve_tests;
pub(crate) mod launch;
pub mod limits;
pub mod memory;
pub mod modules;
pub(crate) mod noticed;
pub mod proc;
pub mod ptrace;
pub mod seccomp;
pub mod sockets;
pub(crate) mod stacks;
pub(crate) mod status;
pub(crate) mod stopped;
pub(crate) mod turn;
