//! Where the engine itself is in memory.

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

static IMAGE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Where the engine's own code and data are.
pub fn image() -> Range<u64> {
    IMAGE[0].load(Relaxed)..IMAGE[1].load(Relaxed)
}

/// Sets where that is.
pub fn set_image(ends: [u64; 2]) {
    for (kept, end) in IMAGE.iter().zip(ends) {
        kept.store(end, Relaxed);
    }
}
