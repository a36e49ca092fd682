//! The filters of a real, stopped process.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use weft_host::ErrorKind;
use weft_host::checks::seccomp::{Call, Instruction, dump_filters, examine};

/// A filter that answers `memfd_create` with `action` and lets everything else pass.
fn filter(action: u32) -> Vec<Instruction> {
    let jump_unless_equal =
        |k: i64| Instruction { code: 0x15, jump_true: 0, jump_false: 1, k: k as u32 };
    vec![
        Instruction { code: 0x20, ..Instruction::default() },
        jump_unless_equal(libc::SYS_memfd_create),
        Instruction { code: 0x06, k: action, ..Instruction::default() },
        Instruction { code: 0x06, k: libc::SECCOMP_RET_ALLOW, ..Instruction::default() },
    ]
}

fn install(instructions: &[Instruction]) -> std::io::Result<()> {
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_ptr() as *mut libc::sock_filter,
    };
    // SAFETY: the kernel copies the program, whose layout is its own.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// `true`, under filters of its own and those of this thread, stopped before its first instruction.
fn stopped_under(actions: &[u32]) -> Child {
    let filters: Vec<_> = actions.iter().map(|action| filter(*action)).collect();
    let mut command = Command::new("true");
    let prepare = move || {
        filters.iter().try_for_each(|filter| install(filter))?;
        // SAFETY: it takes no addresses.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec only system calls are made.
    let child = unsafe { command.pre_exec(prepare) }.spawn().unwrap();
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let waited = unsafe { libc::waitpid(child.id() as i32, &raw mut status, 0) };
    assert!(waited == child.id() as i32 && libc::WIFSTOPPED(status), "{status:#x}");
    child
}

fn detach(child: &Child) {
    weft_host::ptrace::detach(child.id() as i32, 0).unwrap();
}

fn call(name: &'static str, number: i64) -> Call {
    Call { name, number: number as i32, args: [0; 6], instruction_pointer: 0x1000 }
}

#[test]
fn filters_of_a_stopped_process_are_read_and_obeyed() {
    let kill = libc::SECCOMP_RET_KILL_PROCESS;
    let mut child = stopped_under(&[libc::SECCOMP_RET_ERRNO | 1, kill]);
    let tid = child.id() as i32;
    match dump_filters(tid) {
        Ok(filters) => {
            assert_eq!(filters.len(), 2);
            assert_eq!(examine(tid, &[call("close", libc::SYS_close)]), Ok(()));
            let calls =
                [call("close", libc::SYS_close), call("memfd_create", libc::SYS_memfd_create)];
            let error = examine(tid, &calls).unwrap_err();
            assert_eq!(error.kind, ErrorKind::SeccompForbids);
            assert_eq!(error.why, "it answers memfd_create with: death of the process");
        }
        // Without CAP_SYS_ADMIN, weft refuses what it cannot know.
        Err(unreadable) => assert_eq!(examine(tid, &[]), Err(unreadable)),
    }
    detach(&child);
    assert!(child.wait().unwrap().success());
}

/// What `examine` says of a process when weft itself is under a filter with this answer, and the
/// process under as many, or one more. A thread of its own, because filters stay forever.
fn examine_under_own_filter(action: u32, one_more: bool) -> weft_host::Result<()> {
    let look = move || {
        install(&filter(action)).unwrap();
        let more: &[u32] = if one_more { &[libc::SECCOMP_RET_ALLOW] } else { &[] };
        let mut child = stopped_under(more);
        let answer = examine(child.id() as i32, &[]);
        detach(&child);
        assert!(child.wait().unwrap().success());
        answer
    };
    std::thread::spawn(look).join().unwrap()
}

#[test]
fn filters_shared_with_weft_are_tried_out() {
    assert_eq!(examine_under_own_filter(libc::SECCOMP_RET_ALLOW, false), Ok(()));
    let error = examine_under_own_filter(libc::SECCOMP_RET_ERRNO | 1, false).unwrap_err();
    assert!(error.why.starts_with("memfd_create failed"), "{error}");
    let error = examine_under_own_filter(libc::SECCOMP_RET_KILL_PROCESS, false).unwrap_err();
    assert!(error.why.starts_with("a call ended in SIGSYS"), "{error}");
}

#[test]
fn other_filters_are_not_guessed() {
    let error = examine_under_own_filter(libc::SECCOMP_RET_ALLOW, true).unwrap_err();
    assert!(error.why.contains("CAP_SYS_ADMIN"), "{error}");
}
