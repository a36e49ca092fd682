//! What the processor can do and what the kernel lets programs use of it.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// The features that weft cares about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub avx2: bool,
    pub avx512: bool,
    /// Programs may read and write the FS and GS bases themselves.
    pub fsgsbase: bool,
    /// How many bytes all enabled vector state takes.
    pub xsave_size: u32,
}

/// Whether the kernel promises, in the `AT_HWCAP2` that it gives to programs, that they may use
/// `rdfsbase` and the other three instructions of that extension.
pub(crate) fn enables_fsgsbase(hwcap2: u64) -> bool {
    hwcap2 & 1 << 1 != 0
}

/// Whether the processor picks bits of a register (`pext`) in a cycle or two. AMD's took tens of them before their
/// third Zen, family 0x19.
pub fn picks_bits() -> bool {
    let (maker, about) = (__cpuid(0), __cpuid(1).eax);
    let family = (about >> 8 & 0xf) + (about >> 20 & 0xff);
    // The first four letters of "AuthenticAMD" and "HygonGenuine".
    let is_slow = [*b"Auth", *b"Hygo"].contains(&maker.ebx.to_le_bytes()) && family < 0x19;
    std::is_x86_feature_detected!("bmi2") && !is_slow
}

/// The processor's report on extended state.
const XSAVE_LEAF: u32 = 0xd;

impl Features {
    pub fn read() -> Self {
        // SAFETY: reads a number that the kernel gave this process at its start.
        let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        // A kernel that does not use XSAVE leaves the answer of the leaf without meaning.
        let xsave_size = if std::is_x86_feature_detected!("xsave") {
            __cpuid_count(XSAVE_LEAF, 0).ebx
        } else {
            0
        };
        Self {
            avx2: std::is_x86_feature_detected!("avx2"),
            avx512: std::is_x86_feature_detected!("avx512f"),
            fsgsbase: enables_fsgsbase(hwcap2),
            xsave_size,
        }
    }
}

/// What has to be kept of the vector registers around a call, as `xsavec` takes it, and how many bytes it
/// writes for that. Nothing where there is no such instruction: then there is nothing beyond SSE either.
pub(crate) fn kept_around_calls() -> (u64, u32) {
    /// The legacy part and the head, which are always there.
    const LEGACY: u32 = 576;
    /// x87, SSE, AVX, AVX-512 and APX: what functions may have values in.
    const VALUES: u64 = 0xe7 | 1 << 19;
    if !std::is_x86_feature_detected!("xsavec") {
        return (0, 0);
    }
    // SAFETY: a processor with `xsavec` has `xgetbv`.
    let mask = unsafe { enabled() } & VALUES;
    let beyond = (2..63).filter(|part| mask & 1 << part != 0);
    let size = beyond.fold(LEGACY, |size, part| {
        let about = __cpuid_count(XSAVE_LEAF, part);
        let is_aligned = about.ecx & 2 != 0;
        about.eax + if is_aligned { size.next_multiple_of(64) } else { size }
    });
    (mask, size)
}

#[target_feature(enable = "xsave")]
fn enabled() -> u64 {
    // SAFETY: reads which states the kernel lets programs use.
    unsafe { _xgetbv(0) }
}

/// The processor's counter of cycles.
pub fn cycles() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}
