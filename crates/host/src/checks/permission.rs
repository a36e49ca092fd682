//! Why the kernel refuses: it says only "not permitted", here its rules are gone through in its order.

use super::facts::{Own, Target};
use crate::process::capability::SYS_PTRACE;
use crate::{Error, ErrorKind};
use std::ffi::CStr;

/// What gives weft the right to trace, whatever stands in the way.
const GAIN_THE_CAPABILITY: &str = "run weft with CAP_SYS_PTRACE: sudo weft ..., or in a container: docker run --cap-add=SYS_PTRACE ...";

/// The security modules that may refuse to let one process trace another; yama says so in a file.
const MAY_FORBID: [&str; 6] = ["apparmor", "bpf", "landlock", "selinux", "smack", "tomoyo"];

/// The reason why the kernel lets `own` not attach to `target`, and the way around it.
pub(super) fn explain(target: &Target, own: &Own) -> Error {
    let (why, advice) = reason(target, own);
    Error::new(ErrorKind::PermissionDenied, format!("weft may not attach to {}", target.label()))
        .why(why)
        .advice(advice)
}

fn reason(target: &Target, own: &Own) -> (String, String) {
    if own.yama_scope == Some(3) {
        return (
            "yama's ptrace_scope is 3: nobody may attach, until the machine starts anew".into(),
            "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and reboot".into(),
        );
    }
    if own.status.effective.has(SYS_PTRACE) {
        // It does not count where the target lives, or something that it cannot override says no.
        return other_user_namespace(target, own).unwrap_or_else(|| elsewhere(own));
    }
    if !same_user(target, own) {
        return (
            format!(
                "it belongs to user {}, weft runs as user {} without CAP_SYS_PTRACE",
                user(target.status.uids[1]),
                user(own.status.uids[0]),
            ),
            GAIN_THE_CAPABILITY.into(),
        );
    }
    if !own.status.permitted.contains(target.status.permitted) {
        return (
            "it holds capabilities that weft does not have".into(),
            GAIN_THE_CAPABILITY.into(),
        );
    }
    if target.dumpable == Some(false) {
        return (
            "it is not dumpable: it changed its user, holds secrets, or its file may not be read"
                .into(),
            GAIN_THE_CAPABILITY.into(),
        );
    }
    match own.yama_scope {
        Some(1) => (
            "yama's ptrace_scope is 1: without CAP_SYS_PTRACE only one's own children may be traced".into(),
            "run: sudo sysctl kernel.yama.ptrace_scope=0, or: sudo weft ..., or start it with: weft run -- CMD"
                .into(),
        ),
        Some(2) => (
            "yama's ptrace_scope is 2: only those with CAP_SYS_PTRACE may attach".into(),
            "run: sudo sysctl kernel.yama.ptrace_scope=0, or: sudo weft ..., or give the interpreter the right: \
             sudo setcap cap_sys_ptrace+ep PYTHON"
                .into(),
        ),
        _ => other_user_namespace(target, own).unwrap_or_else(|| elsewhere(own)),
    }
}

fn other_user_namespace(target: &Target, own: &Own) -> Option<(String, String)> {
    let differs = target.user_namespace.is_some() && target.user_namespace != own.user_namespace;
    // The number of the target's namespace is often hidden by the same refusal; but from within
    // the first namespace every other one is a descendant, in which the capability counts.
    let hidden = target.user_namespace.is_none() && !own.in_initial_user_namespace;
    (differs || hidden).then(|| {
        (
            "it lives in a user namespace in which weft has no CAP_SYS_PTRACE".into(),
            "run weft as root outside of all containers, or inside that namespace: \
             sudo nsenter --target PID --user --mount --pid weft ..."
                .replace("PID", &target.pid.to_string()),
        )
    })
}

fn elsewhere(own: &Own) -> (String, String) {
    if own.status.seccomp_mode != 0 {
        return (
            "weft itself runs under a seccomp filter, which seems to forbid tracing".into(),
            "in a container: docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined ..."
                .into(),
        );
    }
    if own.selinux_denies {
        return (
            "SELinux denies ptrace to everyone (deny_ptrace)".into(),
            "run: sudo setsebool deny_ptrace off".into(),
        );
    }
    let Some(modules) = &own.security_modules else {
        return (
            "by all that weft can see it may; the kernel's security modules, which may forbid it, are not visible here"
                .into(),
            "run weft as root outside of all containers; `cat /sys/kernel/security/lsm` names the modules there"
                .into(),
        );
    };
    let may_forbid: Vec<&str> =
        modules.split(',').filter(|module| MAY_FORBID.contains(module)).collect();
    if may_forbid.is_empty() {
        return (
            format!(
                "the kernel gives no reason, and none of its modules is known for it: {modules}"
            ),
            "run weft as root outside of all containers".into(),
        );
    }
    let advice = if may_forbid.contains(&"apparmor") {
        "see which profile confines it: weft doctor PID; in a container: docker run --security-opt apparmor=unconfined ..."
    } else {
        "see what the kernel has logged: sudo dmesg, or for SELinux: sudo ausearch -m avc"
    };
    (format!("a security module seems to forbid it: {}", may_forbid.join(" or ")), advice.into())
}

/// The kernel compares weft's real ids with all three of the target's.
fn same_user(target: &Target, own: &Own) -> bool {
    let all_equal = |theirs: [u32; 4], mine: u32| theirs[..3].iter().all(|id| *id == mine);
    all_equal(target.status.uids, own.status.uids[0])
        && all_equal(target.status.gids, own.status.gids[0])
}

/// The name of a user, or the number where there is no name.
pub(super) fn user(uid: u32) -> String {
    /// Names are shorter, with all that belongs to an entry.
    const ENTRY: usize = 16 << 10;
    // SAFETY: plain numbers and null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut buffer = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: the library writes to these three, no further than the buffer is long.
    unsafe {
        libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), ENTRY, &raw mut found);
    }
    if found.is_null() {
        return uid.to_string();
    }
    // SAFETY: an entry that was found has a name, which ends with a zero, in the buffer.
    unsafe { CStr::from_ptr(entry.pw_name) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::facts::Access;
    use super::*;
    use crate::process::capability::Capabilities;

    fn refused() -> Target {
        let mut target = Target {
            pid: 42,
            access: Access::Refused,
            dumpable: Some(true),
            user_namespace: Some(1),
            ..Target::default()
        };
        target.status.uids = [1000; 4];
        target.status.gids = [1000; 4];
        target
    }

    fn ordinary() -> Own {
        let mut own =
            Own { user_namespace: Some(1), in_initial_user_namespace: true, ..Own::default() };
        own.status.uids = [1000; 4];
        own.status.gids = [1000; 4];
        own
    }

    fn why(target: &Target, own: &Own) -> String {
        let error = explain(target, own);
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        assert!(!error.advice.is_empty());
        error.why
    }

    #[test]
    fn yama_scope_decides_for_an_own_process() {
        for scope in 1..=3 {
            let own = Own { yama_scope: Some(scope), ..ordinary() };
            assert!(why(&refused(), &own).contains(&format!("ptrace_scope is {scope}")));
        }
        let own = Own { yama_scope: Some(0), ..ordinary() };
        assert!(why(&refused(), &own).contains("security module"));
    }

    #[test]
    fn only_modules_that_are_there_are_suspected() {
        let with = |modules: &str| Own { security_modules: Some(modules.into()), ..ordinary() };
        assert!(why(&refused(), &ordinary()).contains("not visible"));
        assert!(why(&refused(), &with("lockdown,capability,yama")).contains("no reason"));
        let two = why(&refused(), &with("lockdown,yama,apparmor,bpf"));
        assert!(two.ends_with(": apparmor or bpf"), "{two}");
        let own = Own { selinux_denies: true, ..with("selinux") };
        assert!(why(&refused(), &own).contains("deny_ptrace"));
    }

    #[test]
    fn yama_scope_3_binds_root_too() {
        let mut own = Own { yama_scope: Some(3), ..ordinary() };
        own.status.effective = Capabilities(u64::MAX);
        assert!(why(&refused(), &own).contains("nobody may attach"));
    }

    #[test]
    fn another_user_comes_before_yama() {
        let own = Own { yama_scope: Some(1), ..ordinary() };
        let mut target = refused();
        target.status.uids[2] = 0;
        assert!(why(&target, &own).contains("without CAP_SYS_PTRACE"));
    }

    #[test]
    fn secrets_and_privileges_are_named() {
        let mut target = refused();
        target.dumpable = Some(false);
        assert!(why(&target, &ordinary()).contains("not dumpable"));
        target.status.permitted = Capabilities(1);
        assert!(why(&target, &ordinary()).contains("holds capabilities"));
    }

    #[test]
    fn a_capability_counts_only_in_its_namespace() {
        let mut own = ordinary();
        own.status.effective = Capabilities(1 << SYS_PTRACE);
        own.in_initial_user_namespace = false;
        let hidden = Target { user_namespace: None, ..refused() };
        let error = explain(&hidden, &own);
        assert!(error.why.contains("user namespace"));
        assert!(error.advice.contains("--target 42"));
    }

    #[test]
    fn a_filter_over_weft_is_suspected() {
        let mut own = ordinary();
        own.status.seccomp_mode = 2;
        assert!(why(&refused(), &own).contains("seccomp"));
    }
}
