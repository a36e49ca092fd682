//! Where in a program's address space weft's large memory goes.
//!
//! Before the first instruction of a program nothing tells what its runtime will reserve, at addresses that
//! it has no choice of; and a runtime that finds something there gives up, or maps over it. So weft's memory
//! goes where none of those that are known ever reserves anything: [`RESERVED`].

/// Addresses that a runtime takes for itself.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// The runtime, and where that is written.
    pub by: &'static str,
    /// The first of them, and the first one behind.
    pub range: (u64, u64),
}

const fn reserved(by: &'static str, start: u64, end: u64) -> Reserved {
    Reserved { by, range: (start, end) }
}

/// What runtimes reserve at fixed addresses. Where a runtime also protects the gaps between its ranges, the
/// gaps are part of them.
pub const RESERVED: [Reserved; 17] = [
    // compiler-rt/lib/asan/asan_mapping.h: x86_64 Linux, from the low shadow to the end of the high shadow.
    reserved("AddressSanitizer's shadow", 0x7fff_8000, 0x1000_7fff_8000),
    // compiler-rt/lib/asan/asan_allocator.h: kAllocatorSpace, now and before LLVM 17.
    reserved("AddressSanitizer's heap", 0x5000_0000_0000, 0x5400_0000_0000),
    reserved("AddressSanitizer's heap, before", 0x6000_0000_0000, 0x6400_0000_0000),
    // compiler-rt/lib/tsan/rtl/tsan_platform.h: Mapping48AddressSpace; all that is not application memory
    // (kLoApp, kMidApp, kHiApp) in any of the releases since GCC 9 and LLVM 9.
    reserved("ThreadSanitizer, below the program", 0x80_0000_0000, 0x5500_0000_0000),
    reserved("ThreadSanitizer, above the program", 0x5680_0000_0000, 0x7e80_0000_0000),
    // compiler-rt/lib/msan/msan.h: kMemoryLayout for x86_64 Linux, what is not "app".
    reserved("MemorySanitizer's shadow-2", 0x100_0000_0000, 0x1000_0000_0000),
    reserved("MemorySanitizer's origin-2", 0x1000_0000_0000, 0x2000_0000_0000),
    reserved("MemorySanitizer's shadow-3", 0x2000_0000_0000, 0x3000_0000_0000),
    reserved("MemorySanitizer's origin-3", 0x3000_0000_0000, 0x5000_0000_0000),
    reserved("MemorySanitizer's shadow-1", 0x5000_0000_0000, 0x5100_0000_0000),
    reserved("MemorySanitizer's origin-1", 0x6000_0000_0000, 0x7000_0000_0000),
    reserved("MemorySanitizer's heap", 0x7000_0000_0000, 0x7400_0000_0000),
    // runtime/malloc.go, mallocinit: arena hints are tried in this order, in steps of 1 << 40; the first ones.
    reserved("Go's heap", 0xc0_0000_0000, 0x100_0000_0000),
    reserved("Go's heap, next", 0x1c0_0000_0000, 0x200_0000_0000),
    // hotspot/cpu/x86/gc/z/zGlobals_x86.cpp: the views of the heap, up to 16 TB each.
    reserved("ZGC's views", 0x400_0000_0000, 0x2400_0000_0000),
    // hotspot/share/memory/virtualspace.cpp: heaps with compressed references, and their classes, go low.
    reserved("the JVM's compressed heap", 0x8000_0000, 0x10_0000_0000),
    // The kernel, fs/binfmt_elf.c: ELF_ET_DYN_BASE and what mmap_rnd_bits adds; programs and their heaps.
    reserved("programs", 0x5555_5555_4000, 0x5680_0000_0000),
];

/// Where what is recorded goes, if that is free: [`crate::recording::RECORDING_SIZE`] bytes.
pub const RECORDING: u64 = 0x5500_0000_0000;

/// Where the clone engine's own memory goes, as far as that is free.
pub const ENGINE: (u64, u64) = (0x5510_0000_0000, 0x5550_0000_0000);

// V8 and Chromium (PartitionAlloc, the sandbox) reserve up to a terabyte, but wherever it is free: they draw
// addresses by lot, and try again.

const _: () = {
    let mut index = 0;
    while index < RESERVED.len() {
        let (start, end) = RESERVED[index].range;
        assert!(start < end);
        assert!(RECORDING + crate::recording::RECORDING_SIZE <= start || end <= RECORDING);
        assert!(ENGINE.1 <= start || end <= ENGINE.0);
        index += 1;
    }
    assert!(RECORDING + crate::recording::RECORDING_SIZE <= ENGINE.0);
};
