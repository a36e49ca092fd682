//! Instructions that weft writes into code, or looks for in it.

/// A breakpoint, `int3`.
pub const BREAKPOINT: u8 = 0xcc;
/// `syscall`.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `cpuid`.
pub const CPUID: [u8; 2] = [0x0f, 0xa2];
/// A jump to itself.
pub const JUMP_TO_ITSELF: [u8; 2] = [0xeb, 0xfe];
/// The length of a jump that reaches two gigabytes.
pub const JUMP: u64 = 5;
/// The length of a jump that reaches 128 bytes.
pub const HOP: u64 = 2;

/// The bytes of a jump from an address, of [`JUMP`] bytes.
pub fn jump(from: u64, to: u64) -> Vec<u8> {
    let distance = to.wrapping_sub(from + JUMP) as u32;
    [&[0xe9][..], &distance.to_le_bytes()].concat()
}

/// The bytes of a jump from an address to one nearby, of [`HOP`] bytes.
pub fn hop(from: u64, to: u64) -> Vec<u8> {
    vec![0xeb, to.wrapping_sub(from + HOP) as u8]
}

/// Whether code ends the handling of a signal: it calls `rt_sigreturn`, whose number is 15.
pub fn is_signal_return(code: &[u8]) -> bool {
    // `mov $15, %rax` and `mov $15, %eax`.
    const NUMBERS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0xb8, 15, 0, 0, 0]];
    NUMBERS
        .iter()
        .any(|number| code.strip_prefix(*number).is_some_and(|rest| rest.starts_with(&SYSTEM_CALL)))
}
