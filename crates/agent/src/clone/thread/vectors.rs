//! Vector registers in memory, as the kernel lays them out behind a signal's frame.

use crate::clone::base::fail::fail;
use crate::cpu;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// What `fxsave` writes; the head of what `xsave` writes beyond it follows.
const LEGACY: usize = 512;
const HEAD: usize = 64;
/// Where xmm0 is in it.
const XMM: u64 = 160;
/// The first part of a vector state that is behind its head.
const FIRST_BEYOND: u32 = 2;
/// What the kernel has room for only once a thread has used it; it takes no larger state before.
const TILES: u64 = 1 << 18;
/// Which protection keys may be used; and what the kernel lets programs and handlers begin with: only the first.
const KEYS: u64 = 1 << 9;
const KEYS_AT_FIRST: u32 = 0x5555_5554;
/// Where, in what the processor leaves free, the kernel describes a saved state, and how that begins.
const DESCRIBED: u64 = 464;
const MAGIC: u32 = 0x4650_5853;
/// What it writes behind the end of a state that is complete.
const END_MAGIC: u32 = 0x4650_5845;

/// How large a saved vector state is, by its own description.
pub fn vector_size(vectors: u64) -> usize {
    if vectors == 0 {
        return 0;
    }
    // SAFETY: the kernel, or we, have written the state there, with its size in what the processor leaves
    // free.
    unsafe {
        let software = (vectors + DESCRIBED) as *const u32;
        if *software == MAGIC { *software.add(1) as usize } else { LEGACY }
    }
}

/// xmm0 to xmm15 of a saved state.
///
/// # Safety
/// A saved state must be there.
pub unsafe fn xmm(vectors: u64) -> [u128; 16] {
    // SAFETY: the caller vouches for it.
    unsafe { *((vectors + XMM) as *const [u128; 16]) }
}

/// Where protection keys are in a saved state.
fn keys_offset() -> u64 {
    static OFFSET: AtomicU32 = AtomicU32::new(0);
    let mut offset = OFFSET.load(Relaxed);
    if offset == 0 {
        offset = core::arch::x86_64::__cpuid_count(0xd, KEYS.ilog2()).ebx;
        OFFSET.store(offset, Relaxed);
    }
    offset.into()
}

/// A handler begins with vector registers as a program does.
///
/// # Safety
/// A saved state must be there.
pub unsafe fn start_afresh(vectors: u64) {
    if vectors == 0 {
        return;
    }
    // SAFETY: the caller vouches for it. Control words and the head with the components in use.
    unsafe {
        *(vectors as *mut u16) = 0x37f;
        *((vectors + 24) as *mut u32) = 0x1f80;
        if vector_size(vectors) > LEGACY {
            let features = *((vectors + DESCRIBED + 8) as *const u64);
            let kept = features & KEYS;
            *((vectors + LEGACY as u64) as *mut u64) = kept;
            if kept != 0 {
                *((vectors + keys_offset()) as *mut u32) = KEYS_AT_FIRST;
            }
        }
    }
}

/// Room for all vector registers.
#[repr(align(64))]
pub struct VectorState([u8; 16 << 10]);

impl VectorState {
    /// Saves what the program has, as the kernel would: the agent has changed xmm0-15 only, and keeps
    /// theirs.
    pub fn save(kept: &[u128; 16]) -> Self {
        let mut state = Self([0; 16 << 10]);
        let mut features = cpu::xgetbv();
        if features & TILES != 0 {
            features &= cpu::in_use() | !TILES;
        }
        let last = features.ilog2();
        let size = if last >= FIRST_BEYOND {
            let part = core::arch::x86_64::__cpuid_count(0xd, last);
            (part.ebx + part.eax) as usize
        } else {
            LEGACY + HEAD
        };
        if size + 4 > state.0.len() {
            fail("the vector state is too large");
        }
        let at = state.at();
        // SAFETY: there is room for it, aligned; the head is zero.
        unsafe {
            let (low, high) = (features as u32, (features >> 32) as u32);
            core::arch::asm!("xsave64 [{}]", in(reg) at, in("eax") low, in("edx") high);
            *((at + LEGACY as u64) as *mut u64) |= 2;
            *((at + XMM) as *mut [u128; 16]) = *kept;
            let software = (at + DESCRIBED) as *mut u32;
            *software = MAGIC;
            *software.add(1) = size as u32 + 4;
            *(software.add(2) as *mut u64) = features;
            *software.add(4) = size as u32;
            *((at + size as u64) as *mut u32) = END_MAGIC;
        }
        state
    }

    pub fn at(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }

    /// xmm0 to xmm15.
    pub fn xmm(&mut self) -> [u128; 16] {
        // SAFETY: the state is here.
        unsafe { xmm(self.at()) }
    }

    /// Gives the thread these registers.
    pub fn load(&mut self) {
        let at = self.at();
        // SAFETY: the state was saved here.
        unsafe {
            core::arch::asm!("xrstor64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX);
        }
    }
}
