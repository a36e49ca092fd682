//! What the program reads of its own memory in `/proc`: with the protections that it has requested.
//!
//! While the kernel writes it, no page is guarded. So the program reads the kernel's own file, and there
//! is nothing to be found that is not as it would be.

use crate::clone::base::files::{Text, name_of};
use crate::clone::base::registers::RDI;
use crate::clone::base::system::PAGE;
use crate::clone::base::{program, system};
use crate::clone::engine::lock::engine;
use crate::clone::kernel::pass::{make, pass};
use crate::clone::thread::record::Thread;
use core::fmt::Write;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// How the names of these files end: `maps`, `smaps`, `numa_maps`, `smaps_rollup`.
const ENDS: [&[u8]; 2] = [b"maps", b"smaps_rollup"];
/// The most bytes of a name that is looked at.
const LONGEST: usize = 64;

/// The descriptors of such files, of this process, a bit each. One too many costs time only.
static DESCRIPTORS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn bit_of(descriptor: u64) -> Option<(&'static AtomicU64, u64)> {
    let word = DESCRIPTORS.get(usize::try_from(descriptor / 64).ok()?)?;
    Some((word, 1 << (descriptor % 64)))
}

/// `open`, `openat`, `openat2`: the path is where it is.
pub fn open(thread: &Thread, path: u64) -> Option<isize> {
    let result = pass(thread)?;
    if let Ok(descriptor) = u64::try_from(result)
        && names_memory(path)
        && is_own(descriptor)
        && let Some((word, bit)) = bit_of(descriptor)
    {
        word.fetch_or(bit, Relaxed);
    }
    Some(result)
}

/// `close` of such a file.
pub fn close(thread: &Thread) -> Option<isize> {
    if let Some((word, bit)) = bit_of(thread.general[RDI].get()) {
        word.fetch_and(!bit, Relaxed);
    }
    pass(thread)
}

/// Whether a descriptor is that of such a file.
pub fn is_memory(descriptor: u64) -> bool {
    bit_of(descriptor).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Reads from such a file.
pub fn read(thread: &Thread) -> Option<isize> {
    // Under the lock: no other thread guards a page meanwhile.
    let mut engine = engine();
    engine.cache.release_all();
    make(thread)
}

/// Whether a path, which the kernel has just read, ends as those of such files.
fn names_memory(path: u64) -> bool {
    let mut name = [0u8; LONGEST];
    let at = &raw mut name as u64;
    // Not further than its end, behind which there may be nothing.
    let first = (PAGE - path % PAGE).min(LONGEST as u64);
    // SAFETY: a buffer that is large enough; the program's side may be gone by now.
    let is_read = unsafe {
        program::copy(at, path, first as usize)
            && (name[..first as usize].contains(&0)
                || program::copy(at + first, path + first, LONGEST - first as usize))
    };
    let end = name.iter().position(|&byte| byte == 0);
    is_read && end.is_some_and(|end| ENDS.iter().any(|last| name[..end].ends_with(last)))
}

/// Whether a descriptor's file is one that the kernel keeps of this process.
fn is_own(descriptor: u64) -> bool {
    let mut own = Text::default();
    let _ = write!(own, "/proc/{}/", system::pid());
    let mut name = [0u8; LONGEST];
    name_of(descriptor, &mut name).is_some_and(|name| name.starts_with(own.bytes()))
}
