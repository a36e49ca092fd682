//! The program's system calls. Most are made as they are; some the engine has to know of, and a few it
//! answers itself.

use crate::clone::record::Thread;
use crate::clone::regions::Region;
use crate::clone::state::{RAX, RCX};
use crate::clone::system::{self, EFAULT, ENOSYS, PAGE};
use crate::clone::{
    call_points, engine, filters, limits, maps, pages, processes, program, sequences, signals,
    switch, tables,
};
use core::ops::Range;
use weft_abi::COUNTER_FORBIDDEN;

const R11: usize = 11;
const MAP_TYPE: usize = 0xf;
const MREMAP_DONTUNMAP: u64 = 4;
const SHM_REMAP: u64 = 0o40000;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_REMOVE: u64 = 9;
const RECVFROM: usize = 45;
const RECVMSG: usize = 47;
const GETDENTS: usize = 78;
const GETCWD: usize = 79;
const GETDENTS64: usize = 217;
const READLINKAT: usize = 267;
const GETRANDOM: usize = 318;
const PREADV2: usize = 327;
/// As many as the kernel takes.
const MOST_BUFFERS: u64 = 1024;
/// What the kernel calls the end of what programs can map.
const END_OF_ADDRESSES: u64 = 0x7fff_ffff_f000;
const EPERM: isize = -1;
const PR_SET_SECCOMP: u64 = 22;
/// The last of the operations that set one; the others ask.
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const PR_SET_TSC: u64 = 26;
/// What makes a userfaultfd of `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const SECCOMP_MODE_STRICT: u64 = 1;
const SECCOMP_SET_MODE_STRICT: u64 = 0;
const IS_STRICT: &str =
    "the program is about to allow itself four system calls only (strict seccomp)";
const DISPATCHES: &str =
    "the program is about to handle system calls itself, by where they are made (user dispatch)";
const HANDLES_FAULTS: &str = "the program is about to handle page faults itself (userfaultfd)";
/// The length of the instruction.
pub const LENGTH: u64 = 2;

/// Makes the system call that the program's registers ask for; `pc` is behind it already.
pub fn system_call(thread: &Thread) {
    let next = thread.pc.get();
    let number = thread.general[RAX].get() as usize;
    // Natively, a debugger steps by this flag, and the instruction keeps it. One that was told of has been executed.
    let is_stepped = thread.is_stepping() && !thread.is_caught.get();
    let stepped = if is_stepped { signals::TRAP_FLAG } else { 0 };
    thread.trace_call();
    let result = match call_points::are_any() {
        true => call_points::around(thread, perform),
        false => perform(thread),
    };
    match result {
        Some(result) => {
            thread.trace_result(number, result);
            answer(thread, next, result);
            thread.general[R11].set(thread.general[R11].get() | stepped);
        }
        None => thread.pc.set(next - LENGTH),
    }
}

/// Has a thread go on behind a call with what the call returns.
pub fn answer(thread: &Thread, next: u64, result: isize) {
    thread.general[RAX].set(result as u64);
    thread.general[RCX].set(next);
    thread.general[R11].set(thread.flags.get());
    thread.way_out.set(next);
}

/// Makes or answers a system call; nothing if a signal came first.
fn perform(thread: &Thread) -> Option<isize> {
    let number = thread.general[RAX].get() as usize;
    match number {
        system::RT_SIGRETURN => Some(signals::return_from_handler(thread)),
        system::RT_SIGACTION => signals::action(thread),
        system::SIGALTSTACK => Some(signals::alternate_stack(thread)),
        system::RT_SIGPROCMASK => signals::change_mask(thread),
        system::MMAP
        | system::MUNMAP
        | system::MPROTECT
        | system::PKEY_MPROTECT
        | system::MREMAP
        | system::MADVISE
        | system::SHMAT
        | system::SHMDT => memory(thread, number),
        system::CLONE | system::CLONE3 | system::FORK | system::VFORK => {
            processes::clone(thread, number)
        }
        system::EXECVE | system::EXECVEAT => processes::execute(thread),
        system::EXIT => processes::exit(thread),
        system::OPEN => maps::open(thread, thread.general[7].get()),
        system::OPENAT | system::OPENAT2 => maps::open(thread, thread.general[6].get()),
        system::READ | system::PREAD | system::READV | system::PREADV
            if maps::is_memory(thread.general[7].get()) =>
        {
            maps::read(thread)
        }
        system::CLOSE if maps::is_memory(thread.general[7].get()) => maps::close(thread),
        system::ARCH_PRCTL => gs_base(thread),
        system::PRCTL => {
            match thread.general[7].get() {
                // Reading it is about to be a fault, for snippets and the engine as well.
                PR_SET_TSC if thread.general[6].get() == u64::from(COUNTER_FORBIDDEN) => {
                    engine().leave_counter_alone()
                }
                PR_SET_SECCOMP if thread.general[6].get() == SECCOMP_MODE_STRICT => {
                    crate::clone::fail(IS_STRICT)
                }
                PR_SET_SECCOMP => filters::come(thread.general[2].get()),
                PR_SET_SYSCALL_USER_DISPATCH if thread.general[6].get() != 0 => {
                    crate::clone::fail(DISPATCHES)
                }
                _ => {}
            }
            pass(thread)
        }
        system::SECCOMP if thread.general[7].get() == SECCOMP_SET_MODE_STRICT => {
            crate::clone::fail(IS_STRICT)
        }
        system::SECCOMP => {
            if thread.general[7].get() <= SECCOMP_SET_MODE_FILTER {
                filters::come(thread.general[2].get());
            }
            pass(thread)
        }
        // The engine may need memory, or wait for a call that unmaps some, while it has what the thread needs
        // that is to see to it.
        system::USERFAULTFD => crate::clone::fail(HANDLES_FAULTS),
        system::IOCTL if thread.general[6].get() == USERFAULTFD_IOC_NEW => {
            crate::clone::fail(HANDLES_FAULTS)
        }
        system::MLOCKALL => lock_all(thread),
        system::SETRLIMIT => {
            limits::look_at(thread, thread.general[7].get(), thread.general[6].get());
            pass(thread)
        }
        system::PRLIMIT => {
            // That of another process is not the engine's business.
            if matches!(thread.general[7].get() as usize, pid if pid == 0 || pid == system::pid()) {
                limits::look_at(thread, thread.general[6].get(), thread.general[2].get());
            }
            pass(thread)
        }
        // What the kernel writes at any time cannot be compared after each block.
        system::RSEQ if engine().is_in_step() => Some(ENOSYS),
        system::RSEQ => sequences::register(thread),
        _ => pass(thread),
    }
}

/// `mlockall`: weft reserves far more memory than it uses, and the kernel would fill all of it at once. So pages are
/// locked when they are used; the program's own come a little later than it thinks.
fn lock_all(thread: &Thread) -> Option<isize> {
    const MCL_ONFAULT: u64 = 4;
    let flags = thread.general[7].replace(thread.general[7].get() | MCL_ONFAULT);
    let result = pass(thread);
    thread.general[7].set(flags);
    result
}

/// How many pages a system call may write to, as far as the engine takes care of it beforehand.
const AHEAD: u64 = 256;

/// Makes the call as it is; nothing if a signal came first.
pub fn pass(thread: &Thread) -> Option<isize> {
    let guarded = engine().pages.has_guarded();
    if guarded {
        free_buffers(thread);
    }
    let result = make(thread)?;
    if result != EFAULT {
        return Some(result);
    }
    // The kernel does not ask before it fails to write to a guarded page.
    if !pages::release_all(&mut engine()) {
        return Some(result);
    }
    make(thread)
}

/// What the kernel is to write to must not be guarded: it would fail half-way.
fn free_buffers(thread: &Thread) {
    let [number, _, rdx, _, _, _, rsi, rdi, r8, r9, r10, ..] = thread.general();
    let mut engine = engine();
    let mut free = |address: u64, length: u64| {
        let region = engine.regions.at(address);
        if region.is_some_and(|region| region.is_code() && region.is_writable()) {
            let count = length.div_ceil(PAGE).clamp(1, AHEAD) + 1;
            for page in engine.pages.guarded_after(address, count) {
                pages::release(&mut engine, page);
            }
        }
    };
    // Any of them may be where something short goes, or mean nothing.
    [rdi, rsi, rdx, r10, r8, r9].into_iter().for_each(|address| free(address, PAGE));
    // Some calls fill what they are given, and some are told of it by a list.
    let (list, count) = match number as usize {
        system::READ | system::PREAD | RECVFROM | GETDENTS | GETDENTS64 | system::READLINK => {
            return free(rsi, rdx);
        }
        GETRANDOM | GETCWD => return free(rdi, rsi),
        READLINKAT => return free(rdx, r10),
        system::READV | system::PREADV | PREADV2 | system::PROCESS_VM_READV => (rsi, rdx),
        RECVMSG => match program::read::<[u64; 4]>(rsi) {
            Some([name, _, list, count]) => {
                free(name, PAGE);
                (list, count)
            }
            None => return,
        },
        _ => return,
    };
    for index in 0..count.min(MOST_BUFFERS) {
        if let Some([address, length]) = program::read::<[u64; 2]>(list + 16 * index) {
            free(address, length);
        }
    }
}

/// Makes the call as it is, whatever comes of it; nothing if a signal came first.
pub fn make(thread: &Thread) -> Option<isize> {
    // Once it is made, the program has no state that is known until its result is in its place.
    let way_out = thread.way_out.take();
    let result = switch::call(thread);
    if result == switch::ABANDONED {
        thread.way_out.set(way_out);
        return None;
    }
    Some(result)
}

/// What a call that changes mappings does so with, at addresses that the program chooses.
fn changed_by(thread: &Thread, number: usize) -> [Range<u64>; 2] {
    let [_, _, rdx, _, _, _, rsi, rdi, r8, _, r10, ..] = thread.general();
    let range = |start: u64, length: u64| start..start.saturating_add(length);
    match number {
        system::MMAP if r10 as usize & system::MAP_FIXED == 0 => [0..0, 0..0],
        system::MREMAP if r10 as usize & system::MREMAP_FIXED != 0 => {
            [range(rdi, rsi), range(r8, rdx)]
        }
        // How long a segment is, only the kernel knows.
        system::SHMAT if rdx & SHM_REMAP != 0 => [range(rsi, u64::MAX), 0..0],
        system::SHMAT | system::SHMDT => [0..0, 0..0],
        _ => [range(rdi, rsi), 0..0],
    }
}

/// Calls that change what is mapped.
fn memory(thread: &Thread, number: usize) -> Option<isize> {
    let changed = changed_by(thread, number);
    if changed.iter().any(tables::are_lent_from) {
        crate::clone::fail(
            "the program changes memory that it had reserved, where the clone has its tables",
        );
    }
    let (result, is_unnamed) = change_memory(thread, number)?;
    // Nobody waits for the host while it has the engine.
    if is_unnamed
        && !processes::have_named()
        && let Some(recorder) = &engine().recorder
    {
        recorder.leave_unnamed();
    }
    Some(result)
}

/// The same, and whether a file was mapped whose name only the host can tell.
fn change_memory(thread: &Thread, number: usize) -> Option<(isize, bool)> {
    let [_, _, rdx, _, _, _, rsi, rdi, _, _, r10, ..] = thread.general();
    let mut engine = engine();
    let engine = &mut *engine;
    // Others who map, or guard what is mapped, come before or after: not between this and its record.
    let mut result = make(thread)?;
    if result == EFAULT && pages::release_all(engine) {
        result = make(thread)?;
    }
    let mut is_unnamed = false;
    if result < 0 && result > -4096 {
        return Some((result, is_unnamed));
    }
    let whole = |length: u64| length.next_multiple_of(PAGE);
    match number {
        system::MMAP => {
            let start = result as u64;
            let end = start + whole(rsi);
            engine.unmapped(start, end);
            let is_shared = r10 as usize & MAP_TYPE != system::MAP_PRIVATE;
            engine.regions.insert(Region { start, end, protection: rdx as usize & 7, is_shared });
            let is_file = r10 as usize & system::MAP_ANONYMOUS == 0;
            if let Some(recorder) = &engine.recorder
                && is_file
                && rdx as usize & system::PROT_EXEC != 0
            {
                let offset = thread.general[9].get();
                is_unnamed = recorder.tell_module(start..end, thread.general[8].get(), offset);
            }
        }
        system::MUNMAP => {
            engine.unmapped(rdi, rdi + whole(rsi));
        }
        system::MPROTECT | system::PKEY_MPROTECT => {
            engine.forget(rdi, rdi + whole(rsi));
            engine.regions.protect(rdi, rdi + whole(rsi), rdx as usize & 7);
            if number == system::PKEY_MPROTECT || rdx as usize & system::PROT_READ == 0 {
                // What could be read is asked again.
                engine.pages.remove(rdi, rdi + whole(rsi));
            }
        }
        system::MREMAP => {
            let old = engine.regions.at(rdi).copied();
            engine.forget(rdi, rdi + whole(rsi));
            // With no old length, or where the kernel is asked to, the old mapping stays.
            if rsi != 0 && r10 & MREMAP_DONTUNMAP == 0 {
                engine.regions.remove(rdi, rdi + whole(rsi));
            }
            let (start, end) = (result as u64, result as u64 + whole(rdx));
            engine.forget(start, end);
            if let Some(old) = old {
                engine.regions.insert(Region { start, end, ..old });
            }
        }
        system::MADVISE if matches!(rdx, MADV_DONTNEED | MADV_FREE | MADV_REMOVE) => {
            // What is there afterwards is something else, and guarded as it was.
            let guarded = engine.pages.all_guarded();
            let range = rdi / PAGE..(rdi + whole(rsi)) / PAGE;
            for page in guarded.into_iter().filter(|page| range.contains(page)) {
                pages::release(engine, page);
            }
            engine.forget(rdi, rdi + whole(rsi));
        }
        system::SHMAT => {
            if let Some(length) = system::segment_length(rdi as usize) {
                let (start, end) = (result as u64, result as u64 + whole(length));
                engine.unmapped(start, end);
                let protection = segment_protection(rdx);
                engine.regions.insert(Region { start, end, protection, is_shared: true });
            }
        }
        system::SHMDT => {
            if let Some(&region) = engine.regions.at(rdi) {
                engine.unmapped(region.start, region.end);
            }
        }
        _ => {}
    }
    Some((result, is_unnamed))
}

/// With what protection `shmat` maps a segment, by its flags.
fn segment_protection(flags: u64) -> usize {
    const SHM_RDONLY: u64 = 0o10000;
    const SHM_EXEC: u64 = 0o100_000;
    let given = |flag: u64, bit: usize| if flags & flag != 0 { bit } else { 0 };
    system::PROT_READ
        | given(SHM_EXEC, system::PROT_EXEC)
        | (system::PROT_WRITE & !given(SHM_RDONLY, system::PROT_WRITE))
}

/// `arch_prctl`: `gs` is the engine's; the program's own is kept for it.
fn gs_base(thread: &Thread) -> Option<isize> {
    let (what, value) = (thread.general[7].get() as usize, thread.general[6].get());
    match what {
        system::ARCH_SET_GS if value >= END_OF_ADDRESSES => Some(EPERM),
        system::ARCH_SET_GS => {
            thread.gs_base.set(value);
            Some(0)
        }
        system::ARCH_GET_GS => {
            let is_written = program::write(value, thread.gs_base.get());
            Some(if is_written { 0 } else { EFAULT })
        }
        _ => pass(thread),
    }
}
