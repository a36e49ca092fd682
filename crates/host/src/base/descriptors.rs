//! How many files weft may still open.

use std::fs;
use std::mem::zeroed;

/// What is left to all that opens files for a moment, in weft and in whoever uses it.
const RESERVE: usize = 64;

/// How many may be kept open for long. Nobody's limit is raised: programs that weft starts would inherit that.
pub fn spare() -> usize {
    // SAFETY: two plain numbers, which the kernel fills in.
    let mut limit: libc::rlimit = unsafe { zeroed() };
    // SAFETY: the same.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let open = fs::read_dir("/proc/self/fd").map_or(usize::MAX, Iterator::count);
    let limit = if result == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 0 };
    limit.saturating_sub(open).saturating_sub(RESERVE)
}
