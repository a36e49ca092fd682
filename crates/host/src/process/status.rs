//! What `/proc/PID/status` says about a process or a thread.

use super::capability::Capabilities;
use crate::{Error, ErrorKind, Result};
use std::{fs, io};

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub name: String,
    pub state: char,
    pub tgid: i32,
    pub parent: i32,
    pub tracer: i32,
    /// Real, effective, saved and file-system user.
    pub uids: [u32; 4],
    /// Real, effective, saved and file-system group.
    pub gids: [u32; 4],
    pub threads: u32,
    /// How much of its memory is locked, in KiB.
    pub locked: u32,
    pub permitted: Capabilities,
    pub effective: Capabilities,
    pub no_new_privs: bool,
    pub seccomp_mode: u32,
    pub seccomp_filters: u32,
}

/// The text of `/proc/PID/status`: a line for each field, with a colon behind its name.
pub(crate) struct StatusText(String);

impl StatusText {
    /// Reads that of a process or of a single thread.
    pub fn read(pid: i32) -> io::Result<Self> {
        let bytes = fs::read(format!("/proc/{pid}/status"))?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// A field; empty where the kernel does not report it.
    pub fn field(&self, name: &str) -> &str {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().trim()
    }

    /// A field of hexadecimal digits: a set of signals or of capabilities.
    pub fn set(&self, name: &str) -> u64 {
        u64::from_str_radix(self.field(name), 16).unwrap_or(0)
    }

    fn number(&self, name: &str) -> u32 {
        self.field(name).parse().unwrap_or(0)
    }

    fn ids(&self, name: &str) -> [u32; 4] {
        let words = self.field(name).split_whitespace();
        let mut numbers = words.map(|word| word.parse().unwrap_or(0));
        [(); 4].map(|()| numbers.next().unwrap_or(0))
    }
}

impl Status {
    fn parse(text: &StatusText) -> Self {
        Self {
            name: text.field("Name").into(),
            state: text.field("State").chars().next().unwrap_or('?'),
            tgid: text.number("Tgid") as i32,
            parent: text.number("PPid") as i32,
            tracer: text.number("TracerPid") as i32,
            uids: text.ids("Uid"),
            gids: text.ids("Gid"),
            threads: text.number("Threads"),
            locked: text.field("VmLck").trim_end_matches(" kB").parse().unwrap_or(0),
            permitted: Capabilities(text.set("CapPrm")),
            effective: Capabilities(text.set("CapEff")),
            no_new_privs: text.number("NoNewPrivs") == 1,
            seccomp_mode: text.number("Seccomp"),
            seccomp_filters: text.number("Seccomp_filters"),
        }
    }

    /// The status of a process or of a single thread.
    pub fn read(pid: i32) -> Result<Self> {
        let text = StatusText::read(pid).map_err(|_| no_such_process(pid))?;
        Ok(Self::parse(&text))
    }
}

/// The thread that traces a thread, if one does.
pub(crate) fn tracer(tid: i32) -> Option<i32> {
    Status::read(tid).ok().map(|status| status.tracer).filter(|&tracer| tracer != 0)
}

/// The process that a thread belongs to, if there still is one: also of one that has ended and is yet to be collected.
pub(crate) fn process(tid: i32) -> Option<i32> {
    Status::read(tid).ok().map(|status| status.tgid)
}

pub(crate) fn no_such_process(pid: i32) -> Error {
    Error::new(ErrorKind::NoSuchProcess, format!("there is no process {pid}"))
        .why("it has ended, or lives in a PID namespace or behind a hidepid mount that weft cannot see")
        .advice("list the processes: weft ps --all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_parsed() {
        let status = Status::parse(&StatusText(
            "Name:\ta:b (c)\nState:\tT (stopped)\nTgid:\t12\nTracerPid:\t34\n\
             Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nThreads:\t9\nCapPrm:\t0000000000080000\n\
             CapEff:\t0000000000200000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n"
                .into(),
        ));
        assert_eq!((status.name.as_str(), status.state), ("a:b (c)", 'T'));
        assert_eq!((status.tgid, status.tracer, status.threads), (12, 34, 9));
        assert_eq!((status.uids, status.gids), ([1, 2, 3, 4], [5, 6, 7, 8]));
        assert_eq!((status.permitted.0, status.effective.0), (1 << 19, 1 << 21));
        assert!(status.no_new_privs);
        assert_eq!((status.seccomp_mode, status.seccomp_filters), (2, 3));
    }

    #[test]
    fn an_empty_status_has_no_rights() {
        assert_eq!(Status::parse(&StatusText(String::new())).effective, Capabilities(0));
    }
}
