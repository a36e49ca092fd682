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

unsafe extern "C" {
    /// Defined nowhere: an agent in which a panic can be reached does not link.
    fn weft_agent_has_a_panicking_path() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached, as the comment above says.
    unsafe { weft_agent_has_a_panicking_path() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the contract of memcpy.
    unsafe {
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
