//! The one call upwards from the lower layers: the engine cannot go on.

use crate::clone::base::system;
use core::fmt;
use core::mem::transmute;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

type Hook = fn(fmt::Arguments<'_>) -> !;

/// What ends the engine, once it is there; 0 before.
static HOOK: AtomicUsize = AtomicUsize::new(0);

/// Sets what is called from now on when the engine cannot go on.
pub fn set_hook(hook: Hook) {
    HOOK.store(hook as usize, Relaxed);
}

/// Reports why the engine cannot go on; the program continues natively, or ends.
pub fn fail(why: &str) -> ! {
    fail_with(format_args!("{why}"))
}

/// The same with a text that is put together.
#[cold]
pub fn fail_with(why: fmt::Arguments<'_>) -> ! {
    let hook = HOOK.load(Relaxed);
    if hook != 0 {
        // SAFETY: only `set_hook` writes there.
        unsafe { transmute::<usize, Hook>(hook)(why) }
    }
    system::write_error(b"weft: the clone engine failed before it was there\n");
    system::abort()
}
