//! How addresses of the program are known to the engine: as they are, or as the start of a function that is reached
//! from within.

/// In the place of an address where a function begins: the same, but reached from within the function, so
/// that it is not entered.
const INNER: u64 = 1 << 62;

/// The start of a function as it is reached from within.
pub fn inner(start: u64) -> u64 {
    start | INNER
}

/// Whether it stands for a start that is reached from within. No program has code at such an address.
pub fn is_inner(key: u64) -> bool {
    key >> 62 == 1
}

/// The address itself, where it may be one that is reached from within.
pub fn real(key: u64) -> u64 {
    if is_inner(key) { key & !INNER } else { key }
}
