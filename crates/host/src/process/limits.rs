//! Whether a process has room for what weft maps into it, within the limits that it runs under.
//!
//! What weft maps counts as the program's own. So weft takes at most half of what is left of each limit: the
//! program must be able to go on as it would without it.

use super::{cgroup, proc};
use crate::{Error, ErrorKind, Result};
use std::fs;

/// What weft is about to take of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of address space.
    pub address_space: u64,
    /// Bytes of it that are private and can be written.
    pub data: u64,
    /// Mappings.
    pub mappings: u64,
    /// Bytes of memory that will be used at once, not only when needed.
    pub memory: u64,
}

/// A limit, what has been used of it, and what weft needs.
struct Budget {
    name: &'static str,
    limit: u64,
    used: u64,
    need: u64,
    advice: String,
}

/// Fails if a limit leaves no room for that.
pub fn check(pid: i32, needs: Needs) -> Result<()> {
    let budgets = budgets(pid, needs);
    budgets.iter().find(|budget| !budget.is_enough()).map_or(Ok(()), |budget| {
        let Budget { name, limit, need, ref advice, .. } = *budget;
        let left = amount(budget.left());
        Err(Error::new(
            ErrorKind::LimitReached,
            format!("process {pid} has too little room left for this"),
        )
        .why(format!(
            "{name} is limited to {}, of which {left} are left; weft needs {} and leaves the program as much",
            amount(limit),
            amount(need),
        ))
        .advice(advice))
    })
}

impl Budget {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    fn is_enough(&self) -> bool {
        self.need == 0 || self.left() / 2 >= self.need
    }
}

fn budgets(pid: i32, needs: Needs) -> Vec<Budget> {
    let read = |name: &str| fs::read_to_string(proc::dir(pid).join(name)).unwrap_or_default();
    let (limits, status) = (read("limits"), read("status"));
    let mut found = Vec::new();
    let raise = |option: &str| format!("raise it: prlimit --pid {pid} --{option}=unlimited");
    if let Some(limit) = soft(&limits, "Max address space") {
        let used = size(&status, "VmSize:");
        let (name, need) = ("its address space (RLIMIT_AS)", needs.address_space);
        found.push(Budget { name, limit, used, need, advice: raise("as") });
    }
    if let Some(limit) = soft(&limits, "Max data size") {
        let used = size(&status, "VmData:");
        found.push(Budget {
            name: "its data (RLIMIT_DATA)",
            limit,
            used,
            need: needs.data,
            advice: raise("data"),
        });
    }
    // After mlockall(MCL_FUTURE), all that is mapped is locked at once.
    let locked = size(&status, "VmLck:");
    if locked > size(&status, "VmSize:") / 4
        && let Some(limit) = soft(&limits, "Max locked memory")
    {
        let (name, need) = ("its locked memory (RLIMIT_MEMLOCK)", needs.address_space);
        found.push(Budget { name, limit, used: locked, need, advice: raise("memlock") });
    }
    if let Some(limit) = proc::read_number("/proc/sys/vm/max_map_count") {
        found.push(Budget {
            name: "the number of its mappings (vm.max_map_count)",
            limit: limit.into(),
            used: proc::maps(pid).map_or(0, |maps| maps.len() as u64),
            need: needs.mappings,
            advice: format!("raise it: sudo sysctl vm.max_map_count={}", u64::from(limit) * 4),
        });
    }
    for group in cgroup::memory(pid) {
        found.push(Budget {
            name: "the memory of its cgroup",
            limit: group.limit,
            used: group.used,
            need: needs.memory,
            advice: format!("raise the limit of {}", group.path.display()),
        });
    }
    found
}

/// A soft limit from `/proc/PID/limits`, if there is one.
pub(crate) fn soft(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A size from `/proc/PID/status`, in bytes.
fn size(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) << 10
}

/// A number as people read it: as many bytes, or mappings.
fn amount(number: u64) -> String {
    match number {
        0..=65_536 => number.to_string(),
        65_537..=0x9f_ffff => format!("{} KB", number >> 10),
        _ => format!("{} MB", number >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_room() {
        let own = std::process::id() as i32;
        let needs = Needs { address_space: 4096, data: 4096, mappings: 3, memory: 4096 };
        assert_eq!(check(own, needs), Ok(()));
        let error = check(own, Needs { mappings: 1 << 40, ..Needs::default() }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitReached);
        assert!(error.why.contains("vm.max_map_count"), "{}", error.why);
    }

    #[test]
    fn the_program_keeps_half_of_what_is_left() {
        let budget = |used| Budget { name: "", limit: 100, used, need: 20, advice: String::new() };
        assert!(budget(60).is_enough());
        assert!(!budget(61).is_enough());
        assert!(!budget(200).is_enough());
    }

    #[test]
    fn limits_are_read() {
        let text = "Max data size             8192                 unlimited            bytes\n\
                    Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(soft(text, "Max data size"), Some(8192));
        assert_eq!(soft(text, "Max address space"), None);
        assert_eq!(size("VmSize:\t    12 kB\n", "VmSize:"), 12 << 10);
    }
}
