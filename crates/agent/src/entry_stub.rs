//! Entry points for threads that the host sends.

/// Defines an entry point that the host's code calls with the arguments of a function, on a stack of the host's.
///
/// The general registers are the caller's business (it takes them all home), and so are the flags, which may
/// be any: the thread may have been taken from the middle of a backward copy. The vector registers are
/// ours: the crate is compiled for baseline SSE2, whose instructions touch xmm0-15 and leave the wider parts
/// of ymm and zmm alone, so saving those sixteen is enough.
macro_rules! entry_stub {
    ($(#[$text:meta])* $name:ident, $function:path) => {
        $(#[$text])*
        #[unsafe(naked)]
        #[cfg_attr(weft_freestanding, unsafe(no_mangle))]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(
                "push 2",
                "popfq",
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
                "call {function}",
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
                function = sym $function,
            )
        }
    };
}
pub(crate) use entry_stub;
