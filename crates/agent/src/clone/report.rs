//! The last words of an engine that cannot go on.

use super::system;
use core::fmt::{self, Write};

struct Standard;

impl Write for Standard {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        system::complain(text.as_bytes());
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
    // SAFETY: ends the process, by a signal so that nobody takes it for the program's own end.
    unsafe {
        system::call3(system::RT_SIGACTION, 6, [0u64; 4].as_ptr() as usize, 0);
        let pid = system::call3(system::GETPID, 0, 0, 0) as usize;
        let tid = system::call3(system::GETTID, 0, 0, 0) as usize;
        system::call3(system::TGKILL, pid, tid, 6);
        loop {
            system::call3(system::EXIT_GROUP, 134, 0, 0);
        }
    }
}
