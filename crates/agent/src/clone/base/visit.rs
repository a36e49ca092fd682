//! What the host hands to a thread that it sends here.

use weft_abi::{CloneThread, CloneVisit};

/// The threads that the host describes in a visit.
pub fn visitors(visit: &mut CloneVisit) -> &mut [CloneThread] {
    let count = visit.threads as usize;
    // SAFETY: the host has put them right behind it.
    unsafe {
        let first = core::ptr::from_mut(visit).add(1).cast();
        core::slice::from_raw_parts_mut(first, count)
    }
}

/// The message behind the threads in a visit. It lives as long as the visit, which no other thread sees.
pub fn message<'a>(visit: &CloneVisit) -> &'a [u64] {
    // SAFETY: the host has put both there, one behind the other.
    unsafe {
        let first = core::ptr::from_ref(visit).add(1).cast::<CloneThread>();
        let end = first.add(visit.threads as usize).cast::<u64>();
        core::slice::from_raw_parts(end, visit.message as usize)
    }
}
