//! Snippets at system calls.
//!
//! They are interpreted, not compiled: a call takes far longer than that, the program's registers are in memory
//! already, and a signal in the middle of it finds the thread in the agent, as always.
//!
//! A call that a signal has come before, or that the kernel wants to be made again, is the same call: what was done
//! before it is not done again.

use crate::clone::base::registers::RAX;
use crate::clone::engine::lock::engine;
use crate::clone::thread::record::{Announced, Thread};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use weft_snippet::PointKind;

static ARE_THERE: AtomicU32 = AtomicU32::new(0);

/// Whether anything is done at system calls.
pub fn are_any() -> bool {
    ARE_THERE.load(Relaxed) != 0
}

/// Sets whether anything is done at system calls.
pub fn are_there(any: bool) {
    ARE_THERE.store(any.into(), Relaxed);
}

/// Makes a system call, with what is done before and after it; `None` if a signal came first.
pub fn around(thread: &Thread, perform: fn(&Thread) -> Option<isize>) -> Option<isize> {
    let requested = thread.general();
    let number = requested[RAX];
    let announced = thread.announced.get();
    let mut answer = None;
    if announced.pc == thread.pc.get() && announced.requested == requested {
        thread.announced.set(Announced::default());
        thread.set_general(&announced.changed);
    } else {
        answer = engine().weaving.at_call(thread, number, PointKind::SystemCall);
        if answer.is_some() {
            thread.general[RAX].set(number);
        }
    }
    let changed = thread.general();
    let result = match answer {
        Some(answer) => Some(answer as isize),
        None => perform(thread),
    };
    // Whatever the kernel was given, the program has its own arguments.
    thread.set_general(&requested);
    let Some(result) = result else {
        thread.announced.set(Announced { pc: thread.pc.get(), requested, changed });
        return None;
    };
    thread.general[RAX].set(result as u64);
    engine().weaving.at_call(thread, number, PointKind::SystemReturn);
    Some(thread.general[RAX].get() as isize)
}
