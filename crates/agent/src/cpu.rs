//! What `cpuid` and its like report of the processor.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::CpuReport;

const OSXSAVE: u32 = 1 << 27;
/// The legacy area that `fxsave` writes.
const FXSAVE_SIZE: u32 = 512;

/// Fills in the report.
pub fn report(cpu: &CpuReport) {
    let highest = __cpuid(0).eax;
    let leaf1 = __cpuid(1);
    cpu.leaf1_ecx.store(leaf1.ecx, Relaxed);
    cpu.leaf1_edx.store(leaf1.edx, Relaxed);
    if highest >= 7 {
        let leaf7 = __cpuid_count(7, 0);
        cpu.leaf7_ebx.store(leaf7.ebx, Relaxed);
        cpu.leaf7_ecx.store(leaf7.ecx, Relaxed);
        cpu.leaf7_edx.store(leaf7.edx, Relaxed);
    }
    if leaf1.ecx & OSXSAVE != 0 && highest >= 0xd {
        cpu.xcr0.store(xgetbv(), Relaxed);
        cpu.vector_state_size.store(__cpuid_count(0xd, 0).ebx, Relaxed);
    } else {
        cpu.vector_state_size.store(FXSAVE_SIZE, Relaxed);
    }
}

/// The state components that the kernel has enabled. Only where it has enabled `xsave`.
pub fn xgetbv() -> u64 {
    // SAFETY: the caller knows of OSXSAVE.
    unsafe { extended_control(0) }
}

/// Those that are not in their initial state. Only where tiles are enabled: processors that have them
/// have this, too.
#[cfg(feature = "clone")]
pub fn in_use() -> u64 {
    // SAFETY: the caller knows of tiles.
    unsafe { extended_control(1) }
}

unsafe fn extended_control(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller knows that there is such a register; the instruction writes two others.
    unsafe {
        asm!("xgetbv", in("ecx") number, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The base of the `fs` segment, which every threading library points at the thread's own data.
/// Only where the kernel has enabled the instruction.
pub fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: the host saw in the target's `AT_HWCAP2` that the instruction is enabled; it reads a
    // register and writes another.
    unsafe {
        asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags));
    }
    base
}
