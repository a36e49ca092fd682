//! Signals: GDB numbers them alike on all systems, and not as Linux does.

/// GDB's number of each of Linux' signals from 0 on.
const TO_GDB: [u8; 32] = [
    0, 1, 2, 3, 4, 5, 6, 10, 8, 9, 30, 11, 31, 13, 14, 15, // up to SIGTERM
    143, 20, 19, 17, 18, 21, 22, 16, 24, 25, 26, 27, 28, 23, 32, 12,
];

/// What GDB calls a signal that it does not know.
const UNKNOWN: u8 = 143;

/// GDB's number of a signal of Linux'.
pub fn to_gdb(number: u8) -> u8 {
    match number {
        0..=31 => TO_GDB[usize::from(number)],
        32 => 77,
        33..=63 => number - 33 + 45,
        64 => 78,
        _ => UNKNOWN,
    }
}

/// Linux' number of a signal of GDB's; nothing for none and for one that Linux does not have.
pub fn from_gdb(number: u8) -> Option<u8> {
    (1..=64).find(|&signal| to_gdb(signal) == number && number != UNKNOWN)
}

/// Linux' numbers of those that it has.
pub fn all_from_gdb(numbers: &[u8]) -> Vec<u8> {
    numbers.iter().copied().filter_map(from_gdb).collect()
}

/// What programs get if a debugger has not said which signals are theirs: two are mostly its own.
pub fn for_programs() -> Vec<u8> {
    let debuggers = [libc::SIGINT, libc::SIGTRAP].map(|signal| signal as u8);
    (1..=64).filter(|signal| !debuggers.contains(signal)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_both_ways() {
        for (linux, gdb) in [
            (libc::SIGTRAP, 5),
            (libc::SIGSEGV, 11),
            (libc::SIGUSR1, 30),
            (libc::SIGCHLD, 20),
            (libc::SIGSTOP, 17),
            (libc::SIGPWR, 32),
            (libc::SIGSYS, 12),
            (34, 46),
            (64, 78),
        ] {
            assert_eq!(to_gdb(linux as u8), gdb);
            assert_eq!(from_gdb(gdb), Some(linux as u8));
        }
        let there = (1..=64).filter(|&number| from_gdb(to_gdb(number)) == Some(number)).count();
        assert_eq!(there, 63, "all but SIGSTKFLT, which GDB does not know");
        assert_eq!((from_gdb(0), from_gdb(UNKNOWN), from_gdb(200)), (None, None, None));
    }
}
