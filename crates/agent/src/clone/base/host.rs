//! The memory that the engine shares with the host, and what it requests of the host by it.

use crate::clone::base::{clock, system};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use weft_abi::{CloneControl, exec};

/// How long a host may take to answer before it is taken for gone.
const PATIENCE: u64 = 5000;
/// How long to wait before looking again for a request that is free.
const SHORT: u64 = 10;

/// Where the [`CloneControl`] is, once there is one.
static CONTROL: AtomicU64 = AtomicU64::new(0);

/// Sets where that is.
pub fn set_control(control: &CloneControl) {
    CONTROL.store(core::ptr::from_ref(control) as u64, Relaxed);
}

/// What the engine shares with the host, once there is that.
pub fn control() -> Option<&'static CloneControl> {
    // SAFETY: the host has mapped it, and leaves it there.
    unsafe { (CONTROL.load(Relaxed) as *const CloneControl).as_ref() }
}

/// Whether the host is gone, so that nothing that is reported reaches the user.
pub fn is_host_gone() -> bool {
    control().is_none_or(|control| control.is_host_gone.load(Relaxed) != 0)
}

/// Posts a request to the host and waits until the host has taken it up. Returns the state of the request, one of
/// [`exec`]; `None` if the host does not react.
pub fn post(control: &'static CloneControl, what: u32) -> Option<&'static AtomicU32> {
    let request = claim(control)?;
    request.store(what, Release);
    ring(control);
    wait_while(request, what);
    if request.compare_exchange(what, exec::FREE, AcqRel, Acquire).is_ok() {
        // Other threads need not wait as long. A host that was only slow clears this when it looks at the requests.
        control.is_host_gone.store(1, Relaxed);
        return None;
    }
    Some(request)
}

/// Requests that the host look up the name of a file that was just mapped. Returns whether it has.
pub fn request_name() -> bool {
    let Some(control) = control() else { return false };
    let Some(request) = post(control, exec::NAMING) else { return false };
    wait_while(request, exec::HELD);
    request.store(exec::FREE, Release);
    true
}

/// Claims a free request for this thread; waits for one as long as for the host.
fn claim(control: &'static CloneControl) -> Option<&'static AtomicU32> {
    let free = |request: &&weft_abi::ExecRequest| {
        request.state.compare_exchange(exec::FREE, exec::CLAIMED, AcqRel, Relaxed).is_ok()
    };
    let mut left = PATIENCE;
    let request = loop {
        if left == 0 || control.is_host_gone.load(Relaxed) != 0 {
            return None;
        }
        if let Some(request) = control.requests.iter().find(free) {
            break request;
        }
        // Whichever becomes free first: the wait is short, and all are looked at again.
        let first = &control.requests[0].state;
        system::futex_wait_for(first, first.load(Relaxed), SHORT);
        left = left.saturating_sub(SHORT);
    };
    request.pid.store(system::pid() as u32, Relaxed);
    request.tid.store(system::tid() as u32, Relaxed);
    Some(&request.state)
}

/// Lets the host have the engine first, if it waits for that. The calling thread must hold nothing.
pub fn give_way() {
    let Some(control) = control() else { return };
    for _ in 0..PATIENCE / SHORT {
        if control.is_wanted.load(Relaxed) == 0 {
            return;
        }
        clock::wait_for(&control.is_wanted, 1, SHORT);
    }
    // The host was killed meanwhile.
    control.is_wanted.store(0, Relaxed);
}

/// Wakes the host, which then looks at the requests.
pub fn ring(control: &CloneControl) {
    control.doorbell.fetch_add(1, Release);
    system::futex_wake(&control.doorbell);
}

/// Waits while a word has a value, as long as a host may take.
pub fn wait_while(word: &AtomicU32, value: u32) {
    let mut left = PATIENCE;
    while left > 0 && word.load(Acquire) == value {
        system::futex_wait_for(word, value, 100);
        left -= 100;
    }
}
