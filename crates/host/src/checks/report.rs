//! Everything that can stand in the way, for `weft doctor`.

use super::facts::{self, Own, Target};
use super::questions::{QUESTIONS, count};
use crate::arch::cpu::Features;
use crate::process::capability::{Capabilities, SYS_ADMIN, SYS_PTRACE};
use crate::process::limits::soft;
use crate::process::proc;
use crate::{Error, Result};
use std::fs;

/// How well it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing stands in the way.
    Ok,
    /// weft works, but not everywhere or not with everything.
    Warn,
    /// weft does not work.
    Fail,
}

impl Status {
    /// The word that users and files see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How well it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// The command that mends it; empty when nothing needs mending.
    pub fix: String,
}

impl Check {
    fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), fix: String::new() }
    }

    fn warn(name: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Warn, fix: fix.into(), ..Self::ok(name, detail) }
    }

    fn fail(name: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, fix: fix.into(), ..Self::ok(name, detail) }
    }

    fn error(name: &str, error: Error) -> Self {
        Self::fail(name, format!("{}: {}", error.what, error.why), error.advice)
    }
}

/// What is true of the machine and, given a process, of that process.
pub fn report(pid: Option<i32>) -> Result<Vec<Check>> {
    let own = Own::read()?;
    let mut checks = machine(&own);
    match pid.map(Target::read) {
        None => {}
        Some(Ok(target)) => checks.extend(process(&target, &own)),
        Some(Err(error)) => checks.push(Check::error("process id", error)),
    }
    Ok(checks)
}

fn machine(own: &Own) -> Vec<Check> {
    let names = rustix::system::uname();
    let [release, architecture] =
        [names.release(), names.machine()].map(|name| name.to_string_lossy().into_owned());
    let privileged = own.status.effective.has(SYS_PTRACE);
    vec![
        kernel(&release),
        machine_architecture(&architecture),
        cpu(&Features::read()),
        ptrace_scope(own.yama_scope, privileged),
        capabilities(own.status.effective),
        own_seccomp(own.status.seccomp_mode),
        security_modules(),
        confinement("confinement", own.pid),
        memfd(proc::read_number("/proc/sys/vm/memfd_noexec")),
        proc_mount(&fs::read_to_string("/proc/self/mounts").unwrap_or_default(), privileged),
    ]
}

fn kernel(release: &str) -> Check {
    let name = "kernel";
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let fix = "boot Linux 5.13 or newer, for instance: sudo apt-get install linux-image-amd64";
    if version < (5, 6) {
        Check::fail(
            name,
            format!("Linux {release} is older than 5.6, which brought pidfd_getfd"),
            fix,
        )
    } else if version < (5, 13) {
        let detail = format!("Linux {release} is older than 5.13, so that rseq areas stay unknown");
        Check::warn(name, detail, fix)
    } else {
        Check::ok(name, format!("Linux {release}"))
    }
}

fn machine_architecture(machine: &str) -> Check {
    if machine == "x86_64" {
        Check::ok("architecture", machine)
    } else {
        let detail = format!("{machine} is not supported yet");
        Check::fail("architecture", detail, "run weft on an x86-64 machine")
    }
}

fn cpu(features: &Features) -> Check {
    let known =
        [("avx2", features.avx2), ("avx512", features.avx512), ("fsgsbase", features.fsgsbase)];
    let words: Vec<String> = known
        .iter()
        .map(|(name, has)| format!("{}{name}", if *has { "" } else { "no " }))
        .collect();
    let detail = format!("{}, xsave {} bytes", words.join(", "), features.xsave_size);
    if features.xsave_size == 0 {
        Check::fail("cpu", detail, "boot without the kernel parameter noxsave")
    } else {
        Check::ok("cpu", detail)
    }
}

fn ptrace_scope(scope: Option<u32>, privileged: bool) -> Check {
    let name = "ptrace scope";
    let fix = "sudo sysctl kernel.yama.ptrace_scope=0";
    match scope {
        None => Check::ok(name, "yama is not there: own processes may be traced"),
        Some(0) => Check::ok(name, "0: own processes may be traced"),
        Some(3) => Check::fail(
            name,
            "3: nobody may attach, until the machine starts anew",
            "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and reboot",
        ),
        Some(scope) if privileged => Check::ok(name, format!("{scope}: weft has CAP_SYS_PTRACE")),
        Some(1) => Check::warn(name, "1: weft may trace what it starts, not attach to others", fix),
        Some(scope) => Check::fail(name, format!("{scope}: tracing needs CAP_SYS_PTRACE"), fix),
    }
}

fn capabilities(effective: Capabilities) -> Check {
    let name = "capabilities";
    let detail = effective.to_string();
    let container = "or in a container: docker run --cap-add=SYS_PTRACE ...";
    if !effective.has(SYS_PTRACE) {
        let detail = format!("{detail}: weft can attach to processes of its own user only");
        Check::warn(name, detail, format!("sudo weft ..., {container}"))
    } else if !effective.has(SYS_ADMIN) {
        let detail =
            format!("{detail}: weft cannot read seccomp filters, so it may refuse needlessly");
        Check::warn(name, detail, "sudo weft ...")
    } else {
        Check::ok(name, detail)
    }
}

fn own_seccomp(mode: u32) -> Check {
    let name = "seccomp";
    match mode {
        0 => Check::ok(name, "weft runs without a filter"),
        _ => Check::warn(
            name,
            "weft runs under a filter: it cannot read those of others, so it may refuse needlessly",
            "docker run --security-opt seccomp=unconfined ...",
        ),
    }
}

fn security_modules() -> Check {
    let name = "security modules";
    if facts::selinux_denies() {
        let detail = "SELinux denies ptrace to everyone (deny_ptrace)";
        return Check::fail(name, detail, "sudo setsebool deny_ptrace off");
    }
    Check::ok(name, facts::security_modules().unwrap_or_else(|| "none visible".into()))
}

/// What AppArmor says of a process; a profile may forbid to trace or to be traced.
fn confinement(name: &str, pid: i32) -> Check {
    let profile = proc::dir(pid).join("attr/apparmor/current");
    match fs::read_to_string(profile).unwrap_or_default().trim() {
        "" => Check::ok(name, "no AppArmor profile"),
        "unconfined" => Check::ok(name, "AppArmor: unconfined"),
        profile => Check::warn(
            name,
            format!("AppArmor confines it: {profile}"),
            "allow ptrace in that profile, or in a container: \
             docker run --security-opt apparmor=unconfined ...",
        ),
    }
}

fn memfd(noexec: Option<u32>) -> Check {
    let name = "memfd";
    match noexec {
        Some(2) => Check::fail(
            name,
            "vm.memfd_noexec is 2: shared memory can never be executable",
            "sudo sysctl vm.memfd_noexec=1",
        ),
        _ => Check::ok(name, "shared memory can be executable"),
    }
}

fn proc_mount(mounts: &str, privileged: bool) -> Check {
    let name = "/proc";
    let mut options = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        (place == "/proc" && kind == "proc").then_some(options)
    });
    // Of mounts over one another, the last one counts.
    let options = options.next_back().unwrap_or_default();
    let hidepid = options.split(',').find_map(|option| option.strip_prefix("hidepid="));
    match hidepid {
        None | Some("0" | "off") => Check::ok(name, "shows all processes"),
        Some(_) if privileged => Check::ok(name, "shows all processes to weft"),
        Some(value) => Check::warn(
            name,
            format!("hidepid={value} hides the processes of other users"),
            "sudo mount -o remount,hidepid=0 /proc",
        ),
    }
}

fn process(target: &Target, own: &Own) -> Vec<Check> {
    let mut checks: Vec<Check> = QUESTIONS
        .iter()
        .map(|(name, question)| {
            let name = format!("target: {name}");
            match question(target, own) {
                Ok(detail) => Check::ok(&name, detail),
                Err(error) => Check::error(&name, error),
            }
        })
        .collect();
    checks.push(dumpable(target));
    checks.push(namespaces(target.pid, own.pid));
    checks.push(confinement("target: confinement", target.pid));
    let limits_file = proc::dir(target.pid).join("limits");
    checks.push(limits(&fs::read_to_string(limits_file).unwrap_or_default(), target.status.locked));
    checks.push(new_privileges(target));
    checks
}

fn dumpable(target: &Target) -> Check {
    let detail = match target.dumpable {
        Some(true) => "yes",
        Some(false) => "no: only those with CAP_SYS_PTRACE may attach",
        None => "unknown for processes of root",
    };
    Check::ok("target: dumpable", detail)
}

fn namespaces(pid: i32, own: i32) -> Check {
    let name = "target: namespaces";
    let different: Vec<_> = ["pid", "mnt", "user"]
        .into_iter()
        .filter(|kind| {
            crate::process::proc::namespace(pid, kind) != crate::process::proc::namespace(own, kind)
        })
        .collect();
    if different.is_empty() {
        Check::ok(name, "the same as weft's")
    } else if crate::process::proc::namespace(pid, "user").is_none() {
        let detail = "hidden from weft";
        Check::warn(name, detail, format!("sudo weft doctor {pid}"))
    } else {
        Check::ok(name, format!("its own: {}", different.join(", ")))
    }
}

/// The limits that could keep weft's mappings out of the target.
fn limits(limits: &str, locked: u32) -> Check {
    let name = "target: limits";
    if let Some(bytes) = soft(limits, "Max address space") {
        let detail = format!("its address space is limited to {bytes} bytes, and weft needs some");
        return Check::warn(name, detail, "start the program after: ulimit -v unlimited");
    }
    // After mlockall(MCL_FUTURE) new mappings count as locked memory as well.
    match soft(limits, "Max locked memory").filter(|_| locked > 0) {
        Some(bytes) => Check::warn(
            name,
            format!("it locks {locked} KiB of memory and may lock {bytes} bytes at most"),
            "start the program after: ulimit -l unlimited",
        ),
        None => Check::ok(name, "none that weft could reach"),
    }
}

fn new_privileges(target: &Target) -> Check {
    let detail = if target.status.no_new_privs { "set" } else { "not set" };
    let threads = count(target.status.threads, "thread");
    Check::ok("target: no_new_privs", format!("{detail} ({threads})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        assert_eq!(kernel("4.19.0-generic").status, Status::Fail);
        assert_eq!(kernel("5.10.0").status, Status::Warn);
        assert_eq!(kernel("5.13").status, Status::Ok);
        assert_eq!(kernel("6.1.0-rc1+").status, Status::Ok);
        assert_eq!(kernel("").status, Status::Fail);
    }

    #[test]
    fn scope_matters_less_to_the_privileged() {
        let status = |scope, privileged| ptrace_scope(scope, privileged).status;
        assert_eq!(status(None, false), Status::Ok);
        assert_eq!(status(Some(0), false), Status::Ok);
        assert_eq!(status(Some(1), false), Status::Warn);
        assert_eq!(status(Some(2), false), Status::Fail);
        assert_eq!(status(Some(2), true), Status::Ok);
        assert_eq!(status(Some(3), true), Status::Fail);
    }

    #[test]
    fn hidden_processes_are_noticed() {
        let mounts = "proc /proc proc rw,hidepid=invisible 0 0\n";
        assert_eq!(proc_mount(mounts, false).status, Status::Warn);
        assert_eq!(proc_mount(mounts, true).status, Status::Ok);
        assert_eq!(proc_mount("proc /proc proc rw 0 0\n", false).status, Status::Ok);
    }

    #[test]
    fn only_executable_memory_matters() {
        assert_eq!(memfd(None).status, Status::Ok);
        assert_eq!(memfd(Some(1)).status, Status::Ok);
        assert_eq!(memfd(Some(2)).status, Status::Fail);
    }

    #[test]
    fn limits_that_bite_are_warnings() {
        let space = "Max address space         1048576              unlimited            bytes\n";
        assert_eq!(limits(space, 0).status, Status::Warn);
        assert_eq!(limits(&space.replace("1048576", "unlimited"), 4).status, Status::Ok);
        let locked = "Max locked memory         65536                65536                bytes\n";
        assert_eq!(limits(locked, 0).status, Status::Ok);
        assert_eq!(limits(locked, 4).status, Status::Warn);
    }

    #[test]
    fn what_needs_mending_says_how() {
        let checks = report(Some(i32::MAX)).unwrap();
        assert!(checks.iter().all(|check| (check.status == Status::Ok) == check.fix.is_empty()));
        assert_eq!(checks.last().unwrap().status, Status::Fail);
    }
}
