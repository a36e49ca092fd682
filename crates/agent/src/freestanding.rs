//! What a Rust program without a libc has to bring itself: the entry point, the memory functions that the
//! compiler calls, and what happens on a panic.

use crate::entry_stub::entry_stub;
use core::arch::asm;
use weft_abi::{ControlBlock, Slot};

// With the control block and the slot, whose end is the stack.
entry_stub!(weft_agent_enter, serve);

extern "C" fn serve(control: &ControlBlock, slot: &Slot) {
    crate::serve(control, slot);
}

#[cfg(not(feature = "clone"))]
unsafe extern "C" {
    /// Defined nowhere: an agent in which a panic can be reached does not link.
    fn weft_agent_has_a_panicking_path() -> !;
}

/// The engine decodes whatever a program brings, with a library that may panic: the panic is reported, and where it
/// was.
#[cfg(feature = "clone")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    match info.location() {
        Some(place) => crate::clone::fail_with(format_args!("{} ({place})", info.message())),
        None => crate::clone::fail_with(format_args!("{}", info.message())),
    }
}

#[cfg(not(feature = "clone"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached, as the comment above says.
    unsafe { weft_agent_has_a_panicking_path() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the contract of memcpy. Short copies, two pieces that overlap, without a loop that the
    // compiler would make a call to this function of.
    unsafe {
        macro_rules! two {
            ($type:ty) => {{
                let end = count - size_of::<$type>();
                let first = from.cast::<$type>().read_unaligned();
                let last = from.add(end).cast::<$type>().read_unaligned();
                to.cast::<$type>().write_unaligned(first);
                to.add(end).cast::<$type>().write_unaligned(last);
                return to;
            }};
        }
        match count {
            16..=32 => two!(u128),
            8..=15 => two!(u64),
            4..=7 => two!(u32),
            2..=3 => two!(u16),
            _ => {}
        }
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the contract of memset.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") byte as u8,
             options(nostack, preserves_flags));
    }
    to
}

#[cfg(feature = "clone")]
mod for_the_engine {
    use core::arch::asm;

    /// Named by the unwinding tables of precompiled code, and never called: a panic ends the program.
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() -> ! {
        crate::clone::fail_with(format_args!("something tried to unwind"))
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        // SAFETY: the contract of memmove: backwards where the front would be overwritten.
        unsafe {
            if (to as usize).wrapping_sub(from as usize) >= count {
                return super::memcpy(to, from, count);
            }
            asm!("std", "rep movsb", "cld", inout("rcx") count => _,
                 inout("rdi") to.add(count).wrapping_sub(1) => _,
                 inout("rsi") from.add(count).wrapping_sub(1) => _, options(nostack));
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
        for index in 0..count {
            // SAFETY: the contract of memcmp.
            let (a, b) = unsafe { (*a.add(index), *b.add(index)) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { memcmp(a, b, count) }
    }
}
