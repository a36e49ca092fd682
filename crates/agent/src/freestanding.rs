//! What a Rust program without a libc has to bring itself: the way in, the memory functions that the
//! compiler calls, and what happens on a panic.

use core::arch::{asm, naked_asm};
use weft_abi::{ControlBlock, Slot};

/// The way in, called by the host's code with the control block in `rdi`, the slot in `rsi` and the
/// slot's stack.
///
/// The general registers are the caller's business (it takes them all home). The vector registers are
/// ours: the crate is compiled for baseline SSE2, whose instructions touch xmm0-15 and leave the
/// wider parts of ymm and zmm alone, so saving those sixteen is enough.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn weft_agent_enter(control: &ControlBlock, slot: &Slot) {
    naked_asm!(
        "sub rsp, 264", // 16 registers, and the stack aligned for the call
        "movups [rsp + 0x00], xmm0",
        "movups [rsp + 0x10], xmm1",
        "movups [rsp + 0x20], xmm2",
        "movups [rsp + 0x30], xmm3",
        "movups [rsp + 0x40], xmm4",
        "movups [rsp + 0x50], xmm5",
        "movups [rsp + 0x60], xmm6",
        "movups [rsp + 0x70], xmm7",
        "movups [rsp + 0x80], xmm8",
        "movups [rsp + 0x90], xmm9",
        "movups [rsp + 0xa0], xmm10",
        "movups [rsp + 0xb0], xmm11",
        "movups [rsp + 0xc0], xmm12",
        "movups [rsp + 0xd0], xmm13",
        "movups [rsp + 0xe0], xmm14",
        "movups [rsp + 0xf0], xmm15",
        "cld", // the thread may have been taken from the middle of a backward copy
        "call {serve}",
        "movups xmm0, [rsp + 0x00]",
        "movups xmm1, [rsp + 0x10]",
        "movups xmm2, [rsp + 0x20]",
        "movups xmm3, [rsp + 0x30]",
        "movups xmm4, [rsp + 0x40]",
        "movups xmm5, [rsp + 0x50]",
        "movups xmm6, [rsp + 0x60]",
        "movups xmm7, [rsp + 0x70]",
        "movups xmm8, [rsp + 0x80]",
        "movups xmm9, [rsp + 0x90]",
        "movups xmm10, [rsp + 0xa0]",
        "movups xmm11, [rsp + 0xb0]",
        "movups xmm12, [rsp + 0xc0]",
        "movups xmm13, [rsp + 0xd0]",
        "movups xmm14, [rsp + 0xe0]",
        "movups xmm15, [rsp + 0xf0]",
        "add rsp, 264",
        "ret",
        serve = sym serve,
    )
}

extern "C" fn serve(control: &ControlBlock, slot: &Slot) {
    crate::serve(control, slot);
}

#[cfg(not(feature = "clone"))]
unsafe extern "C" {
    /// Defined nowhere: an agent in which a panic can be reached does not link.
    fn weft_agent_has_a_panicking_path() -> !;
}

/// The engine decodes whatever a program brings, with a library that may panic: it says so, and where.
#[cfg(feature = "clone")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::clone::fail_with(format_args!("{info}"))
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
        crate::clone::fail("something tried to unwind")
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
