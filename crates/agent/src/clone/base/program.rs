//! Memory that the program points to, which may not be there.

use core::arch::naked_asm;

unsafe extern "C" {
    /// The one instruction of [`copy`] that may fault.
    static weft_copy_instruction: u8;
    static weft_copy_failed: u8;
}

/// Where a thread goes on whose fault was at `pc`, if that was in [`copy`].
pub fn after_fault(pc: u64) -> Option<u64> {
    let at = |label: &u8| core::ptr::from_ref(label) as u64;
    // SAFETY: labels, whose addresses alone count.
    let (instruction, failed) = unsafe { (at(&weft_copy_instruction), at(&weft_copy_failed)) };
    (pc == instruction).then_some(failed)
}

/// Reads what the program points to; `None` if nothing is there.
pub fn read<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: a value of this function's, and the program's memory where it has any.
    unsafe { copy(&raw mut value as u64, address, size_of::<T>()) }.then_some(value)
}

/// Writes what the program expects. Returns whether it could.
pub fn write<T: Copy>(address: u64, value: T) -> bool {
    // SAFETY: the same.
    unsafe { copy(address, &raw const value as u64, size_of::<T>()) }
}

/// Copies to or from the program's memory. Returns whether all of that is there.
///
/// Unlike a transfer by the kernel, this makes stacks grow.
///
/// # Safety
/// The agent's side must be there, and the program's must be the program's.
#[unsafe(naked)]
pub unsafe extern "C" fn copy(to: u64, from: u64, length: usize) -> bool {
    naked_asm!(
        "mov rcx, rdx",
        ".globl weft_copy_instruction",
        ".hidden weft_copy_instruction",
        "weft_copy_instruction:",
        "rep movsb",
        "mov eax, 1",
        "ret",
        ".globl weft_copy_failed",
        ".hidden weft_copy_failed",
        "weft_copy_failed:",
        "xor eax, eax",
        "ret",
    )
}
