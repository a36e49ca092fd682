//! Observers of what the program itself does not look at: a debugger, or a trace with values. For them code is
//! translated differently.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Whether this process is debugged.
static IS_DEBUGGED: AtomicU32 = AtomicU32::new(0);

/// Whether this process is debugged.
pub fn is_debugged() -> bool {
    IS_DEBUGGED.load(Relaxed) != 0
}

/// Whether what is read and written is recorded.
static ARE_VALUES_TRACED: AtomicU32 = AtomicU32::new(0);

/// Whether what is read and written is recorded.
pub fn are_values_traced() -> bool {
    ARE_VALUES_TRACED.load(Relaxed) != 0
}

/// Whether something observes stack memory that the program has not written: a debugger, or a trace of what is
/// read.
pub fn is_stack_seen() -> bool {
    is_debugged() || are_values_traced()
}

/// Sets whether this process is debugged. Returns whether it was.
pub fn set_debugged(is_debugged: bool) -> bool {
    IS_DEBUGGED.swap(is_debugged.into(), Relaxed) != 0
}

/// Sets whether what is read and written is recorded.
pub fn set_values_traced(are_traced: bool) {
    ARE_VALUES_TRACED.store(are_traced.into(), Relaxed);
}
