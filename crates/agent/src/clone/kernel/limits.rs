//! Limits of memory that the program is about to set for itself. What weft has mapped counts against them, and the
//! program knows nothing of that: it would fail where natively it has room.

use crate::clone::base::fail::fail;
use crate::clone::base::{program, system};
use crate::clone::thread::record::Thread;

const RLIMIT_DATA: u64 = 2;
const RLIMIT_AS: u64 = 9;
/// What the program must still be able to map. How much of a limit a program needs is not known; with
/// that much beside what weft has, few come near it.
const ROOM: u64 = 1 << 30;
/// Of private memory that can be written, weft has a few MiB, and more as there is more clone.
const ROOM_FOR_DATA: u64 = 64 << 20;

const IS_LIMITED: &str =
    "the program is about to limit its memory (setrlimit) to less than it and the clone may need";

/// Takes the program out of its clone if the limit that it is about to set leaves too little room; `limits` is the
/// address of its `struct rlimit`.
pub fn before_limit(thread: &Thread, resource: u64, limits: u64) {
    // One that has borrowed its parent's memory cannot leave; it will soon be another program.
    if limits == 0 || thread.is_vforked.get() != 0 {
        return;
    }
    let Some(soft) = program::read::<u64>(limits) else { return };
    let in_use = || usage().unwrap_or([ROOM, ROOM_FOR_DATA]);
    let is_short = match resource {
        RLIMIT_AS => soft < in_use()[0].saturating_add(ROOM),
        RLIMIT_DATA => soft < in_use()[1].saturating_add(ROOM_FOR_DATA),
        _ => false,
    };
    if is_short {
        fail(IS_LIMITED);
    }
}

/// The process's address space and its data, in bytes; `None` if there is no `/proc`, or no descriptor left to read
/// it by.
fn usage() -> Option<[u64; 2]> {
    let mut text = [0u8; 256];
    // SAFETY: the path is a text that ends with a zero; the buffer outlives the call.
    let got = unsafe {
        let path = c"/proc/self/statm".as_ptr() as usize;
        let file = usize::try_from(system::call3(system::OPEN, path, 0x8_0000, 0)).ok()?;
        let got = system::call3(system::READ, file, text.as_mut_ptr() as usize, text.len());
        system::call3(system::CLOSE, file, 0, 0);
        usize::try_from(got).ok()?
    };
    let mut numbers = core::str::from_utf8(text.get(..got)?).ok()?.split_ascii_whitespace();
    let size: u64 = numbers.next()?.parse().ok()?;
    let data: u64 = numbers.nth(4)?.parse().ok()?;
    Some([size.checked_mul(system::PAGE)?, data.checked_mul(system::PAGE)?])
}
