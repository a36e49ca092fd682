//! Facts about a process and about weft itself, read from `/proc` and from nowhere else.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::capability::Capabilities;
use crate::arch::program::HEADER_SIZE;
use crate::{Error, ErrorKind, Result, proc};

/// The flag of a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
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

impl Status {
    pub fn parse(text: &str) -> Self {
        let fields: HashMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(k, v)| (k, v.trim()))
            .collect();
        let text_of = |key: &str| fields.get(key).copied().unwrap_or_default();
        let number = |key: &str| text_of(key).parse().unwrap_or(0);
        let ids = |key: &str| {
            let mut words = text_of(key).split_whitespace().map(|word| word.parse().unwrap_or(0));
            [(); 4].map(|()| words.next().unwrap_or(0))
        };
        let capabilities =
            |key: &str| Capabilities(u64::from_str_radix(text_of(key), 16).unwrap_or(0));
        Self {
            name: text_of("Name").into(),
            state: text_of("State").chars().next().unwrap_or('?'),
            tgid: number("Tgid") as i32,
            parent: number("PPid") as i32,
            tracer: number("TracerPid") as i32,
            uids: ids("Uid"),
            gids: ids("Gid"),
            threads: number("Threads"),
            locked: text_of("VmLck").trim_end_matches(" kB").parse().unwrap_or(0),
            permitted: capabilities("CapPrm"),
            effective: capabilities("CapEff"),
            no_new_privs: number("NoNewPrivs") == 1,
            seccomp_mode: number("Seccomp"),
            seccomp_filters: number("Seccomp_filters"),
        }
    }

    /// The status of a process or of a single thread.
    pub fn read(pid: i32) -> Result<Self> {
        match fs::read(dir(pid).join("status")) {
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            Err(_) => Err(no_such_process(pid)),
        }
    }
}

/// What `/proc` shows of a process that may become the target.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    pub pid: i32,
    pub status: Status,
    pub is_kernel_thread: bool,
    /// What the kernel answers when weft asks for what attaching asks for.
    pub access: Access,
    /// `None` when the kernel does not say, which it does only to those who may look inside.
    pub dumpable: Option<bool>,
    /// The first bytes of the program's file, unless it may not be read.
    pub elf_header: Option<[u8; HEADER_SIZE]>,
    pub user_namespace: Option<u64>,
}

/// The kernel's own answer to "may weft attach?".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Access {
    #[default]
    Granted,
    Refused,
}

impl Target {
    pub fn read(pid: i32) -> Result<Self> {
        if pid <= 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{pid} is no process id"))
                .why("process ids are positive numbers")
                .advice("list the processes: weft ps"));
        }
        let status = Status::read(pid)?;
        let dumpable = dumpable(pid, &status);
        Ok(Self {
            pid,
            is_kernel_thread: is_kernel_thread(pid),
            access: access(pid),
            dumpable,
            elf_header: elf_header(pid),
            user_namespace: proc::namespace(pid, "user"),
            status,
        })
    }

    /// The process as messages name it.
    pub fn label(&self) -> String {
        format!("process {} ({})", self.pid, self.status.name)
    }
}

/// What matters of weft itself and of the machine when permission is explained.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    pub pid: i32,
    pub status: Status,
    pub user_namespace: Option<u64>,
    /// Whether the user namespace is the machine's first one, in which capabilities are worth most.
    pub in_initial_user_namespace: bool,
    /// `None` where the kernel has no yama.
    pub yama_scope: Option<u32>,
    /// The kernel's security modules, if it says which: `lockdown,yama,apparmor`.
    pub security_modules: Option<String>,
    /// Whether SELinux lets nobody trace.
    pub selinux_denies: bool,
}

impl Own {
    pub fn read() -> Result<Self> {
        let pid = std::process::id() as i32;
        Ok(Self {
            pid,
            status: Status::read(pid)?,
            user_namespace: proc::namespace(pid, "user"),
            in_initial_user_namespace: is_initial_user_namespace(),
            yama_scope: read_number("/proc/sys/kernel/yama/ptrace_scope"),
            security_modules: security_modules(),
            selinux_denies: selinux_denies(),
        })
    }
}

/// The kernel's security modules, if it says which. In most containers it does not.
pub(super) fn security_modules() -> Option<String> {
    let modules = fs::read_to_string("/sys/kernel/security/lsm").ok()?.trim().to_owned();
    (!modules.is_empty()).then_some(modules)
}

/// Whether SELinux lets nobody trace.
pub(super) fn selinux_denies() -> bool {
    let deny_ptrace = fs::read_to_string("/sys/fs/selinux/booleans/deny_ptrace");
    deny_ptrace.is_ok_and(|value| value.starts_with('1'))
}

pub(super) fn dir(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The number in a file of one number, as those under `/proc/sys` are.
pub(super) fn read_number(path: impl AsRef<Path>) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

pub(super) fn no_such_process(pid: i32) -> Error {
    Error::new(ErrorKind::NoSuchProcess, format!("there is no process {pid}"))
        .why("it has ended, or lives in a PID namespace or behind a hidepid mount that weft cannot see")
        .advice("list the processes: weft ps --all")
}

fn is_kernel_thread(pid: i32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// Asks the kernel to read one byte that no process has. It first checks, as for attaching, what
/// yama and the security modules say, and only then fails to find the byte. Opening
/// `/proc/PID/mem` would check the same but also the file's mode, which tracing does not.
fn access(pid: i32) -> Access {
    use nix::sys::uio::{RemoteIoVec, process_vm_readv};
    let mut byte = [0u8];
    let local = &mut [std::io::IoSliceMut::new(&mut byte)];
    let remote = [RemoteIoVec { base: 0, len: 1 }];
    match process_vm_readv(nix::unistd::Pid::from_raw(pid), local, &remote) {
        Err(nix::Error::EPERM | nix::Error::EACCES) => Access::Refused,
        _ => Access::Granted,
    }
}

/// The kernel gives the files of a process that is not dumpable to root. Of a process that belongs
/// to root already nothing can be told.
fn dumpable(pid: i32, status: &Status) -> Option<bool> {
    let owner = fs::metadata(dir(pid).join("mem")).ok()?.uid();
    let effective = status.uids[1];
    (effective != 0).then_some(owner == effective)
}

fn elf_header(pid: i32) -> Option<[u8; HEADER_SIZE]> {
    let mut header = [0; HEADER_SIZE];
    fs::File::open(dir(pid).join("exe")).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

fn is_initial_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_parsed() {
        let status = Status::parse(
            "Name:\ta:b (c)\nState:\tT (stopped)\nTgid:\t12\nTracerPid:\t34\n\
             Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nThreads:\t9\nCapPrm:\t0000000000080000\n\
             CapEff:\t0000000000200000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n",
        );
        assert_eq!((status.name.as_str(), status.state), ("a:b (c)", 'T'));
        assert_eq!((status.tgid, status.tracer, status.threads), (12, 34, 9));
        assert_eq!((status.uids, status.gids), ([1, 2, 3, 4], [5, 6, 7, 8]));
        assert_eq!((status.permitted.0, status.effective.0), (1 << 19, 1 << 21));
        assert!(status.no_new_privs);
        assert_eq!((status.seccomp_mode, status.seccomp_filters), (2, 3));
    }

    #[test]
    fn an_empty_status_has_no_rights() {
        assert_eq!(Status::parse("").effective, Capabilities(0));
    }

    #[test]
    fn weft_may_look_at_itself() {
        let own = std::process::id() as i32;
        let target = Target::read(own).unwrap();
        assert_eq!(target.access, Access::Granted);
        assert!(!target.is_kernel_thread);
        assert_eq!(&target.elf_header.unwrap()[..4], b"\x7fELF");
    }
}
