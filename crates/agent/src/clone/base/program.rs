//! Memory that the program points to, which may not be there.

use crate::clone::switch;

/// Reads what the program points to; nothing if it points nowhere.
pub fn read<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: a value of this function's, and the program's memory where it has any.
    unsafe { switch::copy(&raw mut value as u64, address, size_of::<T>()) }.then_some(value)
}

/// Writes what the program expects; says whether it could.
pub fn write<T: Copy>(address: u64, value: T) -> bool {
    // SAFETY: the same.
    unsafe { switch::copy(address, &raw const value as u64, size_of::<T>()) }
}
