//! The kernel, without a libc.

use core::arch::asm;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::addresses;

pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const OPEN: usize = 2;
pub const CLOSE: usize = 3;
pub const FSTAT: usize = 5;
pub const LSTAT: usize = 6;
pub const MMAP: usize = 9;
pub const BRK: usize = 12;
pub const MPROTECT: usize = 10;
pub const MUNMAP: usize = 11;
pub const RT_SIGACTION: usize = 13;
pub const RT_SIGPROCMASK: usize = 14;
pub const RT_SIGRETURN: usize = 15;
pub const IOCTL: usize = 16;
pub const SCHED_YIELD: usize = 24;
pub const MREMAP: usize = 25;
pub const MADVISE: usize = 28;
pub const PREAD: usize = 17;
pub const READV: usize = 19;
pub const SHMAT: usize = 30;
pub const SHMCTL: usize = 31;
pub const SHMDT: usize = 67;
pub const GETPID: usize = 39;
pub const CLONE: usize = 56;
pub const FORK: usize = 57;
pub const VFORK: usize = 58;
pub const EXECVE: usize = 59;
pub const EXIT: usize = 60;
pub const READLINK: usize = 89;
pub const GETTIMEOFDAY: usize = 96;
pub const SIGALTSTACK: usize = 131;
pub const MLOCKALL: usize = 151;
pub const PRCTL: usize = 157;
pub const GETEUID: usize = 107;
pub const ARCH_PRCTL: usize = 158;
pub const SETRLIMIT: usize = 160;
pub const GETTID: usize = 186;
pub const TIME: usize = 201;
pub const FUTEX: usize = 202;
pub const CLOCK_GETTIME: usize = 228;
pub const EXIT_GROUP: usize = 231;
pub const TGKILL: usize = 234;
pub const OPENAT: usize = 257;
pub const PREADV: usize = 295;
pub const RT_TGSIGQUEUEINFO: usize = 297;
pub const PRLIMIT: usize = 302;
pub const GETCPU: usize = 309;
pub const PROCESS_VM_READV: usize = 310;
pub const SECCOMP: usize = 317;
pub const EXECVEAT: usize = 322;
pub const USERFAULTFD: usize = 323;
pub const PKEY_MPROTECT: usize = 329;
pub const RSEQ: usize = 334;
pub const OPENAT2: usize = 437;
pub const CLONE3: usize = 435;

pub const PROT_NONE: usize = 0;
pub const PROT_READ: usize = 1;
pub const PROT_WRITE: usize = 2;
pub const PROT_EXEC: usize = 4;

pub const MAP_SHARED: usize = 1;
pub const MAP_PRIVATE: usize = 2;
pub const MAP_FIXED: usize = 0x10;
pub const MAP_ANONYMOUS: usize = 0x20;
pub const MAP_NORESERVE: usize = 0x4000;
pub const MAP_FIXED_NOREPLACE: usize = 0x10_0000;

pub const MREMAP_MAYMOVE: usize = 1;
pub const MREMAP_FIXED: usize = 2;

pub const ARCH_SET_GS: usize = 0x1001;
pub const ARCH_GET_FS: usize = 0x1003;
pub const ARCH_GET_GS: usize = 0x1004;

pub const EFAULT: isize = -14;
pub const EEXIST: isize = -17;
pub const EINVAL: isize = -22;
pub const ENOSYS: isize = -38;

pub const PAGE: u64 = 4096;

/// Makes a system call.
///
/// # Safety
/// As the call asks.
pub unsafe fn call6(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller's business.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
             in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
             in("r10") args[3], in("r8") args[4], in("r9") args[5],
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Makes a system call with at most three arguments.
///
/// # Safety
/// As the call asks.
pub unsafe fn call3(number: usize, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: the caller's business.
    unsafe { call6(number, [a, b, c, 0, 0, 0]) }
}

/// The time, in nanoseconds since the machine has started.
pub fn now() -> u64 {
    const MONOTONIC: usize = 1;
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { call3(CLOCK_GETTIME, MONOTONIC, time.as_mut_ptr() as usize, 0) };
    time[0] * 1_000_000_000 + time[1]
}

/// Maps private memory, readable and writable; `None` if there is none.
pub fn map_private(length: usize) -> Option<usize> {
    map(length, MAP_PRIVATE)
}

/// Maps memory that can be mapped a second time and that children share; `None` if there is none.
pub fn map_shared(length: usize) -> Option<usize> {
    map(length, MAP_SHARED)
}

/// How much memory the engine has mapped so far. Its own goes where that is free, in the range of
/// [`addresses::ENGINE`]: away from where the kernel puts what the program maps, which then is where it would be
/// natively; and from what runtimes reserve.
static ASIDE: AtomicUsize = AtomicUsize::new(0);

fn map(length: usize, sharing: usize) -> Option<usize> {
    let flags = sharing | MAP_ANONYMOUS | MAP_NORESERVE;
    let (start, end) = addresses::ENGINE;
    // Programs that fork have come round after a while: what was taken for each child is free again.
    let offset = ASIDE.fetch_add(length.next_multiple_of(PAGE as usize), Relaxed);
    let hint = start as usize + offset % ((end - start) as usize - length);
    // SAFETY: new memory, wherever the kernel has room.
    let at = unsafe { call6(MMAP, [hint, length, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]) };
    usize::try_from(at).ok()
}

/// Keeps addresses, if nothing is there yet. Returns the first of them, or an error.
pub fn reserve(at: usize, length: usize) -> isize {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: new memory, where there is nothing.
    unsafe { call6(MMAP, [at, length, PROT_NONE, flags, usize::MAX, 0]) }
}

/// Maps shared memory a second time, at an address. Returns whether it could.
///
/// # Safety
/// Whatever is at the address is replaced.
pub unsafe fn map_again(from: usize, length: usize, to: usize) -> bool {
    // SAFETY: no old length means that the old mapping stays; the caller vouches for the place.
    unsafe { call6(MREMAP, [from, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0]) >= 0 }
}

/// Puts fresh private memory at an address. Returns whether it could.
///
/// # Safety
/// Whatever is at the address is replaced.
pub unsafe fn map_over(at: usize, length: usize) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the caller vouches for the place.
    unsafe { call6(MMAP, [at, length, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]) >= 0 }
}

/// Where `fs` begins in this thread.
pub fn fs_base() -> u64 {
    let mut base = 0u64;
    // SAFETY: the kernel writes to the value.
    unsafe { call3(ARCH_PRCTL, ARCH_GET_FS, &raw mut base as usize, 0) };
    base
}

/// Gives memory back.
pub fn unmap(at: usize, length: usize) {
    // SAFETY: the caller's own memory, which no thread uses any more.
    unsafe { call3(MUNMAP, at, length, 0) };
}

/// Whether the kernel lets this process write to an address. Nothing is written.
pub fn may_write(address: u64) -> bool {
    const MADV_POPULATE_WRITE: usize = 23;
    let page = (address & !(PAGE - 1)) as usize;
    // SAFETY: what is there stays as it is.
    unsafe { call3(MADVISE, page, PAGE as usize, MADV_POPULATE_WRITE) == 0 }
}

/// Whether the kernel can read a byte, whatever protection keys this thread may use.
pub fn may_kernel_read(address: u64) -> bool {
    let mut byte = 0u8;
    let [to, from] = [[&raw mut byte as u64, 1], [address, 1]];
    let args = [pid(), to.as_ptr() as usize, 1, from.as_ptr() as usize, 1, 0];
    // SAFETY: the kernel writes one byte to where there is room for it.
    unsafe { call6(PROCESS_VM_READV, args) == 1 }
}

/// How long a segment of shared memory is, by its id.
pub fn segment_length(id: usize) -> Option<u64> {
    const IPC_STAT: usize = 2;
    /// Its place in `struct shmid_ds`, behind `struct ipc_perm`.
    const LENGTH: usize = 6;
    let mut about = [0u64; 14];
    // SAFETY: `struct shmid_ds` is shorter than that.
    let result = unsafe { call3(SHMCTL, id, IPC_STAT, about.as_mut_ptr() as usize) };
    (result == 0).then_some(about[LENGTH])
}

/// Where the program's heap ends. It may not be mapped yet.
pub fn heap_end() -> u64 {
    // SAFETY: the kernel refuses to move it to zero, and returns where it is.
    unsafe { call3(BRK, 0, 0, 0) as u64 }
}

/// The process.
pub fn pid() -> usize {
    // SAFETY: a plain question.
    unsafe { call3(GETPID, 0, 0, 0) as usize }
}

/// The user whose files this process may use.
pub fn user() -> usize {
    // SAFETY: a plain question.
    unsafe { call3(GETEUID, 0, 0, 0) as usize }
}

/// The current thread.
pub fn tid() -> usize {
    // SAFETY: a plain question.
    unsafe { call3(GETTID, 0, 0, 0) as usize }
}

/// Sends a signal to the current thread.
pub fn raise(signal: usize) {
    // SAFETY: plain numbers.
    unsafe { call3(TGKILL, pid(), tid(), signal) };
}

/// Waits while a word has a value.
///
/// Without a time: the kernel can keep one interrupted call with a time for a thread, and that may be the
/// program's.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: the word outlives the call.
    unsafe { call6(FUTEX, [word.as_ptr() as usize, 0, value as usize, 0, 0, 0]) };
}

/// Waits while a word has a value, for at most some milliseconds.
pub fn futex_wait_for(word: &core::sync::atomic::AtomicU32, value: u32, milliseconds: u64) {
    let time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let args = [word.as_ptr() as usize, 0, value as usize, time.as_ptr() as usize, 0, 0];
    // SAFETY: the word and the time outlive the call.
    unsafe { call6(FUTEX, args) };
}

/// Wakes the threads that wait for a word to change.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the call takes an address, and reads nothing there.
    unsafe { call6(FUTEX, [word.as_ptr() as usize, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// Writes text to standard error, for an engine that fails.
pub fn write_error(text: &[u8]) {
    // SAFETY: the kernel reads the text.
    unsafe { call3(WRITE, 2, text.as_ptr() as usize, text.len()) };
}

/// Ends the process by `SIGABRT`, or else at once.
pub fn abort() -> ! {
    const SIGABRT: usize = 6;
    raise(SIGABRT);
    loop {
        // SAFETY: ends the process.
        unsafe { call3(EXIT_GROUP, 128 + SIGABRT, 0, 0) };
    }
}
