//! What runs inside the target. Read this crate's README first: it has the rules for code in here.
//!
//! The host sends a thread here with its own stack ([`weft_abi::Slot::stack`]), all signals blocked
//! and nowhere to return to but the code that called: that code (`host/src/arch/x86_64/trip.rs`) restores the
//! thread, whether weft is still alive or not.
#![cfg_attr(not(test), no_std)]

#[cfg(feature = "clone")]
extern crate alloc;

#[cfg(feature = "clone")]
mod clone;
#[cfg(feature = "clone")]
pub use clone::{entry, storing};
mod cpu;
#[cfg(any(feature = "clone", weft_freestanding))]
mod entry_stub;
#[cfg(weft_freestanding)]
mod freestanding;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::{ControlBlock, MAGIC, SLOT_SIZE, Slot, VERSION, answer_to, request, state};

/// Does what the slot requests. Unknown requests do nothing: the host sees that no answer came.
pub fn serve(control: &ControlBlock, slot: &Slot) {
    match slot.request.load(Acquire) {
        request::INIT => initialise(control),
        request::PING => ping(control, slot),
        _ => {}
    }
}

fn initialise(control: &ControlBlock) {
    control.agent_version.store(VERSION, Relaxed);
    let known = control.magic.load(Relaxed) == MAGIC
        && control.version.load(Relaxed) == VERSION
        && control.size.load(Relaxed) as usize == size_of::<ControlBlock>()
        && control.slot_size.load(Relaxed) as usize == SLOT_SIZE;
    if !known {
        control.state.store(state::REFUSED, Release);
        return;
    }
    cpu::report(&control.cpu);
    control.state.store(state::READY, Release);
}

fn ping(control: &ControlBlock, slot: &Slot) {
    let may_read = control.may_read_fs_base.load(Relaxed) != 0;
    slot.fs_base.store(if may_read { cpu::fs_base() } else { 0 }, Relaxed);
    slot.answer.store(answer_to(slot.question.load(Relaxed)), Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> ControlBlock {
        let control = ControlBlock::default();
        control.magic.store(MAGIC, Relaxed);
        control.version.store(VERSION, Relaxed);
        control.size.store(size_of::<ControlBlock>() as u32, Relaxed);
        control.slot_size.store(SLOT_SIZE as u32, Relaxed);
        control
    }

    #[test]
    fn initialise_reports_the_processor() {
        let control = control();
        initialise(&control);
        assert_eq!(control.state.load(Relaxed), state::READY);
        // Every 64-bit x86 processor has SSE2, and its state takes at least the legacy area.
        assert_ne!(control.cpu.leaf1_edx.load(Relaxed) & (1 << 26), 0);
        assert!(control.cpu.vector_state_size.load(Relaxed) >= 512);
    }

    #[test]
    fn a_layout_of_another_version_is_refused() {
        for change in [
            |c: &ControlBlock| c.magic.store(1, Relaxed),
            |c: &ControlBlock| c.version.store(VERSION + 1, Relaxed),
            |c: &ControlBlock| c.size.store(8, Relaxed),
            |c: &ControlBlock| c.slot_size.store(8, Relaxed),
        ] {
            let control = control();
            change(&control);
            initialise(&control);
            assert_eq!(control.state.load(Relaxed), state::REFUSED);
            assert_eq!(control.agent_version.load(Relaxed), VERSION);
        }
    }
}
