//! Where the host sends threads: to build the engine, to join it, to have something woven, to leave it.

pub mod in_calls;
pub mod leave;
mod outlining;
pub mod start;
pub mod weave;

use crate::clone::kernel::processes::join;
use crate::clone::switch::resume;
use crate::clone::thread::record::at;
use crate::entry_stub::entry_stub;
use core::arch::naked_asm;

/// Where the host sends a thread that is taken over: with the address of its record in `rdi`, and all signals
/// blocked.
#[unsafe(naked)]
#[cfg_attr(weft_freestanding, unsafe(no_mangle))]
pub extern "C" fn weft_clone_join() {
    naked_asm!(
        "mov rsp, [rdi + {stack}]",
        "push 2",
        "popfq",
        "call {join}",
        "jmp {resume}",
        stack = const at!(stack),
        join = sym join,
        resume = sym resume,
    )
}

// What the host sends a stopped thread to, with a [`weft_abi::CloneVisit`].
entry_stub!(
    /// To build the engine.
    weft_clone_start,
    start::start
);
entry_stub!(
    /// To find out where threads are in the program.
    weft_clone_leave,
    leave::leave
);
entry_stub!(
    /// To give everything back.
    weft_clone_forget,
    leave::forget
);
entry_stub!(
    /// To have something woven.
    weft_clone_weave,
    weave::weave
);
