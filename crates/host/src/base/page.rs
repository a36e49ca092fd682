//! The kernel's pages.

/// How many bytes a page has.
pub const PAGE: u64 = 4096;
