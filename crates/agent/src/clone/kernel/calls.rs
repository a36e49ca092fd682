//! The program's system calls. Most are made as they are; some the engine has to know of, and a few it
//! answers itself.

use crate::clone::base::fail::fail;
use crate::clone::base::instructions::SYSTEM_CALL_LENGTH;
use crate::clone::base::registers::{R11, RAX, RDI, RDX, RSI};
use crate::clone::base::signals::TRAP_FLAG;
use crate::clone::base::system::{EFAULT, ENOSYS};
use crate::clone::base::{program, system};
use crate::clone::engine::lock::engine;
use crate::clone::kernel::memory::memory;
use crate::clone::kernel::pass::{answer, pass};
use crate::clone::kernel::sequences::register as register_sequences;
use crate::clone::kernel::signals::calls as signal_calls;
use crate::clone::kernel::signals::frames;
use crate::clone::kernel::{call_points, filters, limits, memory_files, processes};
use crate::clone::thread::record::Thread;
use crate::clone::tools::tracing;
use weft_abi::COUNTER_FORBIDDEN;

/// What the kernel calls the end of what programs can map.
const END_OF_ADDRESSES: u64 = 0x7fff_ffff_f000;
const EPERM: isize = -1;
const PR_SET_SECCOMP: u64 = 22;
/// The last of the operations that set a filter; the others only query.
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
/// Makes the system call that is in the program's registers; `pc` is behind it already.
pub fn system_call(thread: &Thread) {
    let next = thread.pc.get();
    let number = thread.general[RAX].get() as usize;
    // Natively, a debugger steps by this flag, and the instruction keeps it. One that was reported has been
    // executed.
    let is_stepped = thread.is_stepping() && !thread.is_caught.get();
    let stepped = if is_stepped { TRAP_FLAG } else { 0 };
    tracing::system_call(thread);
    let result = match call_points::are_any() {
        true => call_points::around(thread, perform),
        false => perform(thread),
    };
    match result {
        Some(result) => {
            tracing::result(thread, number, result);
            answer(thread, next, result);
            thread.general[R11].set(thread.general[R11].get() | stepped);
        }
        None => thread.pc.set(next - SYSTEM_CALL_LENGTH),
    }
}

/// Makes or answers a system call; `None` if a signal came first.
fn perform(thread: &Thread) -> Option<isize> {
    let number = thread.general[RAX].get() as usize;
    match number {
        system::RT_SIGRETURN => Some(frames::return_from_handler(thread)),
        system::RT_SIGACTION => signal_calls::action(thread),
        system::SIGALTSTACK => Some(signal_calls::alternate_stack(thread)),
        system::RT_SIGPROCMASK => signal_calls::change_mask(thread),
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
        system::OPEN => memory_files::open(thread, thread.general[RDI].get()),
        system::OPENAT | system::OPENAT2 => memory_files::open(thread, thread.general[RSI].get()),
        system::READ | system::PREAD | system::READV | system::PREADV
            if memory_files::is_memory(thread.general[RDI].get()) =>
        {
            memory_files::read(thread)
        }
        system::CLOSE if memory_files::is_memory(thread.general[RDI].get()) => {
            memory_files::close(thread)
        }
        system::ARCH_PRCTL => gs_base(thread),
        system::PRCTL => {
            match thread.general[RDI].get() {
                // Reading it is about to be a fault, for snippets and the engine as well.
                PR_SET_TSC if thread.general[RSI].get() == u64::from(COUNTER_FORBIDDEN) => {
                    engine().leave_counter_alone()
                }
                PR_SET_SECCOMP if thread.general[RSI].get() == SECCOMP_MODE_STRICT => {
                    fail(IS_STRICT)
                }
                PR_SET_SECCOMP => filters::before_filter(thread.general[RDX].get()),
                PR_SET_SYSCALL_USER_DISPATCH if thread.general[RSI].get() != 0 => fail(DISPATCHES),
                _ => {}
            }
            pass(thread)
        }
        system::SECCOMP if thread.general[RDI].get() == SECCOMP_SET_MODE_STRICT => fail(IS_STRICT),
        system::SECCOMP => {
            if thread.general[RDI].get() <= SECCOMP_SET_MODE_FILTER {
                filters::before_filter(thread.general[RDX].get());
            }
            pass(thread)
        }
        // The engine may need memory, or wait for a call that unmaps some, while it has what the thread needs
        // that is to see to it.
        system::USERFAULTFD => fail(HANDLES_FAULTS),
        system::IOCTL if thread.general[RSI].get() == USERFAULTFD_IOC_NEW => fail(HANDLES_FAULTS),
        system::MLOCKALL => lock_all(thread),
        system::SETRLIMIT => {
            limits::before_limit(thread, thread.general[RDI].get(), thread.general[RSI].get());
            pass(thread)
        }
        system::PRLIMIT => {
            // That of another process is not the engine's business.
            if matches!(thread.general[RDI].get() as usize, pid if pid == 0 || pid == system::pid())
            {
                limits::before_limit(thread, thread.general[RSI].get(), thread.general[RDX].get());
            }
            pass(thread)
        }
        // What the kernel writes at any time cannot be compared after each block.
        system::RSEQ if engine().is_in_step() => Some(ENOSYS),
        system::RSEQ => register_sequences(thread),
        _ => pass(thread),
    }
}

/// `mlockall`: weft reserves far more memory than it uses, and the kernel would fill all of it at once. So pages
/// are locked when they are used; the program's own come a little later than it thinks.
fn lock_all(thread: &Thread) -> Option<isize> {
    const MCL_ONFAULT: u64 = 4;
    let flags = thread.general[RDI].replace(thread.general[RDI].get() | MCL_ONFAULT);
    let result = pass(thread);
    thread.general[RDI].set(flags);
    result
}

/// `arch_prctl`: `gs` is the engine's; the program's own is kept for it.
fn gs_base(thread: &Thread) -> Option<isize> {
    let (what, value) = (thread.general[RDI].get() as usize, thread.general[RSI].get());
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
