//! Facts about a process and about weft itself, read from `/proc` and from nowhere else.

use crate::arch::program::HEADER_SIZE;
use crate::process::memory;
use crate::process::proc::{self, dir, read_number};
use crate::process::status::Status;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// The flag of a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

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

fn is_kernel_thread(pid: i32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// Asks the kernel to read one byte that no process has. It first checks, as for attaching, what
/// yama and the security modules say, and only then fails to find the byte. Opening
/// `/proc/PID/mem` would check the same but also the file's mode, which tracing does not.
fn access(pid: i32) -> Access {
    match memory::read(pid, TargetAddr(0), 1) {
        Err(error) if error.kind == ErrorKind::PermissionDenied => Access::Refused,
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
    fn weft_may_look_at_itself() {
        let own = std::process::id() as i32;
        let target = Target::read(own).unwrap();
        assert_eq!(target.access, Access::Granted);
        assert!(!target.is_kernel_thread);
        assert_eq!(&target.elf_header.unwrap()[..4], b"\x7fELF");
    }
}
