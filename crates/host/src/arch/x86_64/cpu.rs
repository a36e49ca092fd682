//! What the processor can do and what the kernel lets programs use of it.

use std::arch::x86_64::__cpuid_count;

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
/// `rdfsbase` and its kin.
pub(crate) fn enables_fsgsbase(hwcap2: u64) -> bool {
    hwcap2 & 1 << 1 != 0
}

impl Features {
    pub fn read() -> Self {
        /// The processor's report on extended state.
        const XSAVE_LEAF: u32 = 0xd;
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
