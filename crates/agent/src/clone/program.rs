//! Memory that the program points to, which may not be there.

use super::system;

/// What a filter answers where it lets nobody call.
const EPERM: isize = -1;

/// Reads what the program points to; nothing if it points nowhere.
pub fn read<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    let local = [&raw mut value as usize, size_of::<T>()];
    match transfer(system::PROCESS_VM_READV, local, address) {
        // SAFETY: nothing is left but to try.
        EPERM | system::ENOSYS => Some(unsafe { (address as *const T).read_unaligned() }),
        count => (count == size_of::<T>() as isize).then_some(value),
    }
}

/// Writes what the program expects; says whether it could.
pub fn write<T: Copy>(address: u64, value: T) -> bool {
    let local = [&raw const value as usize, size_of::<T>()];
    match transfer(system::PROCESS_VM_WRITEV, local, address) {
        EPERM | system::ENOSYS => {
            // SAFETY: nothing is left but to try.
            unsafe { (address as *mut T).write_unaligned(value) };
            true
        }
        count => count == size_of::<T>() as isize,
    }
}

/// Has the kernel, who checks, copy within this process.
fn transfer(call: usize, local: [usize; 2], address: u64) -> isize {
    let remote = [address as usize, local[1]];
    // By the thread: a process whose first thread has ended is nowhere to be found.
    let args = [system::tid(), local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    // SAFETY: the kernel checks both sides; the local one is a value that outlives the call.
    unsafe { system::call6(call, args) }
}
