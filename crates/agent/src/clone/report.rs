//! The last words of an engine that cannot go on.

use super::program;
use super::system;
use super::thread::Thread;
use core::fmt::{self, Write};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::{CloneControl, REPORT_SIZE};

/// Where the [`CloneControl`] is, once there is one.
static CONTROL: AtomicU64 = AtomicU64::new(0);

/// Says where reports go.
pub fn write_to(control: &CloneControl) {
    CONTROL.store(core::ptr::from_ref(control) as u64, Relaxed);
}

struct Standard;

impl Write for Standard {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        system::complain(text.as_bytes());
        Ok(())
    }
}

/// The part of the shared memory that the host makes a file of.
struct Shared {
    control: u64,
    length: usize,
}

impl Write for Shared {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(REPORT_SIZE - self.length);
        let offset = core::mem::offset_of!(CloneControl, report) + self.length;
        // SAFETY: within the memory that the host has mapped for it; nobody reads it before the length is
        // set.
        unsafe {
            let target = (self.control as usize + offset) as *mut u8;
            core::ptr::copy_nonoverlapping(text.as_ptr(), target, count);
        }
        self.length += count;
        Ok(())
    }
}

/// Says what went wrong, and ends the program.
pub fn fail(what: &str) -> ! {
    fail_with(format_args!("{what}"))
}

/// Says what went wrong, and ends the program.
pub fn fail_with(what: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Standard, "weft: the clone engine failed: {what}");
    let control = CONTROL.load(Relaxed);
    if control != 0 {
        let mut shared = Shared { control, length: 0 };
        let _ = describe(&mut shared, what);
        // SAFETY: the host has mapped it, and leaves it there.
        let control = unsafe { &*(control as *const CloneControl) };
        control.report_length.store(shared.length as u32, Release);
    }
    // SAFETY: ends the process, by a signal so that nobody takes it for the program's own end.
    unsafe {
        system::call6(system::RT_SIGACTION, [6, [0u64; 4].as_ptr() as usize, 0, 8, 0, 0]);
        system::raise(6);
        loop {
            system::call3(system::EXIT_GROUP, 134, 0, 0);
        }
    }
}

/// What is known of the thread: where it was in the program, its registers, and the code there.
fn describe(out: &mut impl Write, what: fmt::Arguments<'_>) -> fmt::Result {
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    let thread = Thread::current();
    writeln!(out, "the clone engine failed: {what}")?;
    writeln!(out, "thread {}, at {:#x} of the program", thread.tid, thread.pc)?;
    for (name, value) in NAMES.iter().zip(thread.general) {
        writeln!(out, "{name:>5} {value:#018x}")?;
    }
    writeln!(out, "flags {:#x}", thread.flags)?;
    write!(out, "code ")?;
    match program::read::<[u8; 32]>(thread.pc) {
        Some(bytes) => bytes.iter().try_for_each(|byte| write!(out, " {byte:02x}"))?,
        None => write!(out, " cannot be read")?,
    }
    writeln!(out)
}
