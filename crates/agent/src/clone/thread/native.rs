//! How a thread goes on with the program's own code.

use crate::clone::base::context::{Context, Frame};
use crate::clone::base::signals::set_mask;
use crate::clone::base::system;
use crate::clone::thread::record::Thread;
use crate::clone::thread::vectors::VectorState;
use crate::clone::thread::{assembly, repeated};

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;

/// Goes on natively with what the thread's record has of the program.
pub fn go_natively(thread: &Thread) -> ! {
    let mut vectors = VectorState::save(&thread.vectors.get());
    repeated::rejoin_in_agent(thread, thread.pc.get());
    let mut context = native_context(thread, vectors.at());
    context.mask |= thread.hidden_mask.get();
    context.stack = thread.altstack.get();
    let frame = Frame { context, ..Frame::default() };
    // SAFETY: the program's own `gs`; the engine's is not needed any more.
    unsafe {
        system::call3(system::ARCH_PRCTL, system::ARCH_SET_GS, thread.gs_base.get() as usize, 0);
    }
    assembly::go_natively(&raw const frame as u64 + 8)
}

/// Goes on natively where a thread was that has not joined the engine. Its signals need not be blocked here: they
/// are still the program's own.
pub fn stay_native(thread: &Thread) -> ! {
    set_mask(thread.pending_mask.get() | thread.hidden_mask.get());
    assembly::stay_native(thread)
}

/// What a thread's record has of the program, as the kernel would describe it.
pub fn native_context(thread: &Thread, vectors: u64) -> Context {
    let mut context = Context {
        flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        rip: thread.pc.get(),
        rflags: thread.flags.get(),
        // What every 64-bit program has: cs 0x33, ss 0x2b.
        segments: 0x002b_0000_0000_0033,
        vectors,
        mask: thread.pending_mask.get(),
        ..Context::default()
    };
    context.set_general(&thread.general());
    context
}
