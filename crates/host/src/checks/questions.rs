//! The questions about the target, in the order in which they are asked.

use super::facts::{Access, Own, Target};
use super::{freezer, permission};
use crate::arch::program::{self, Program};
use crate::process::proc::{self, Tid};
use crate::process::status::Status;
use crate::visited::engine::{self, refuse_clone};
use crate::visited::leftovers::{abandoned, abandoned_probes, living_owner};
use crate::visited::owner::Named;
use crate::{Error, ErrorKind, Result};

/// A question: what is well, in words, or the error that attaching would end in.
type Question = fn(&Target, &Own) -> Result<String>;

/// What no waiting and no command could fix comes first, what passes by itself last.
pub(super) const QUESTIONS: [(&str, Question); 8] = [
    ("process id", is_another_process),
    ("alive", is_alive),
    ("program", is_x86_64),
    ("permission", is_permitted),
    ("tracer", is_untraced),
    ("running", is_running),
    ("seccomp", is_not_strict),
    ("other wefts", is_nobodys_clone),
];

pub(super) fn preflight(target: &Target, own: &Own) -> Result<()> {
    QUESTIONS.iter().try_for_each(|(_, question)| question(target, own).map(drop))
}

fn is_another_process(target: &Target, own: &Own) -> Result<String> {
    let (pid, tgid) = (target.pid, target.status.tgid);
    if tgid != pid {
        return Err(Error::new(
            ErrorKind::NoSuchProcess,
            format!("{pid} is a thread, not a process"),
        )
        .why(format!("it is one of the threads of process {tgid}"))
        .advice(format!("attach to the process: weft attach {tgid}")));
    }
    if pid == own.pid {
        return Err(Error::new(ErrorKind::InvalidArgument, "weft cannot attach to itself")
            .why("it would stop itself, with nobody left to resume it")
            .advice("start a second weft from another terminal"));
    }
    Ok(format!("{} with {}", target.label(), count(target.status.threads, "thread")))
}

fn is_alive(target: &Target, _: &Own) -> Result<String> {
    let what = format!("{} has ended", target.label());
    match (target.status.state, target.status.threads) {
        ('Z', threads) if threads > 1 => Err(Error::new(
            ErrorKind::UnsupportedTarget,
            format!("the first thread of {} has ended", target.label()),
        )
        .why(format!(
            "its {} still run, but the kernel shows the process through its first thread only",
            count(threads - 1, "other thread")
        ))
        .advice("let the first thread of the program wait for the others (pthread_join)")),
        ('Z', _) => {
            let parent = target.status.parent;
            Err(Error::new(ErrorKind::ZombieTarget, what)
                .why(format!("it is a zombie: its parent {parent} has not yet asked how it ended"))
                .advice(format!("make the parent reap it, or end the parent: kill {parent}")))
        }
        ('X' | 'x', _) => Err(Error::new(ErrorKind::NoSuchProcess, what)
            .why("it is about to disappear")
            .advice("list the processes: weft ps")),
        (state, _) => Ok(format!("state {state}")),
    }
}

fn is_permitted(target: &Target, own: &Own) -> Result<String> {
    match target.access {
        Access::Granted => Ok("the kernel lets weft attach".into()),
        Access::Refused => Err(permission::explain(target, own)),
    }
}

fn is_x86_64(target: &Target, _: &Own) -> Result<String> {
    if target.is_kernel_thread {
        let what = format!("{} is a kernel thread", target.label());
        return Err(Error::new(ErrorKind::UnsupportedTarget, what)
            .why("weft instruments programs, and the kernel's threads run none")
            .advice("list what can be attached to: weft ps"));
    }
    let Some(header) = target.elf_header else {
        return Ok("its file cannot be read; weft will look at it in memory".into());
    };
    let what = match program::kind(&header) {
        Program::X86_64 => return Ok("64-bit x86".into()),
        Program::X86_32 => "a 32-bit x86 program",
        Program::X32 => "an x32 program",
        Program::Other => "a program for another machine",
    };
    Err(Error::new(ErrorKind::UnsupportedTarget, format!("{} is {what}", target.label()))
        .why("weft instruments 64-bit x86 programs only")
        .advice("build the program for x86-64, for instance: gcc -m64 ..."))
}

fn is_untraced(target: &Target, _: &Own) -> Result<String> {
    let tracer = target.status.tracer;
    if tracer == 0 {
        return Ok("none".into());
    }
    // The kernel names the thread that traces; a person ends processes.
    let process = Status::read(tracer).map_or(tracer, |thread| thread.tgid);
    let name = Status::read(process).map(|status| status.name).unwrap_or_default();
    Err(Error::new(ErrorKind::AlreadyTraced, format!("{} is being traced", target.label()))
        .why(format!("process {process} ({name}) traces it, and a process has one tracer at most"))
        .advice(format!("detach {name}, or end it: kill {process}")))
}

fn is_nobodys_clone(target: &Target, _: &Own) -> Result<String> {
    let found = presence(target.pid)?;
    Ok(found.unwrap_or_else(|| "none is in it".into()))
}

/// What other wefts have in a process, in words; an error if nobody else can be in it meanwhile.
pub(super) fn presence(pid: Tid) -> Result<Option<String>> {
    // Where its mappings cannot be read, other questions have said why.
    let Ok(maps) = proc::maps(pid) else { return Ok(None) };
    if let Some(found) = engine::find(pid, &maps).filter(|found| found.owner == Named::Dead) {
        let text = match found.is_joined() {
            true => "runs from the clone of a weft that was killed; attaching ends that",
            false => "has memory of a weft that was killed; attaching removes it",
        };
        return Ok(Some(text.into()));
    }
    refuse_clone(pid, &maps)?;
    if let Some(owner) = living_owner(pid, &maps) {
        return Ok(Some(format!("{} measures it: its functions are refused", owner.whose())));
    }
    let is_left = !abandoned(pid, &maps).is_empty() || !abandoned_probes(pid, &maps).is_empty();
    Ok(is_left.then(|| {
        "has the probes of a weft that was killed; attaching removes what no thread is in".into()
    }))
}

fn is_running(target: &Target, _: &Own) -> Result<String> {
    if target.status.state == 'T' {
        return Err(Error::new(ErrorKind::StoppedTarget, format!("{} is stopped", target.label()))
            .why("a signal (SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU) has stopped it")
            .advice(format!("resume it: kill -CONT {}", target.pid)));
    }
    match freezer::frozen(target.pid) {
        None => Ok("neither stopped nor frozen".into()),
        Some(frozen) => {
            Err(Error::new(ErrorKind::StoppedTarget, format!("{} is frozen", target.label()))
                .why(format!("its cgroup {} is frozen", frozen.cgroup.display()))
                .advice(format!("thaw it: {} (for a container: docker unpause ...)", frozen.thaw)))
        }
    }
}

fn is_not_strict(target: &Target, _: &Own) -> Result<String> {
    match target.status.seccomp_mode {
        0 => Ok("none".into()),
        1 => Err(super::seccomp::strict(&target.label())),
        _ => Ok(format!(
            "{}, checked when attaching",
            count(target.status.seccomp_filters, "filter")
        )),
    }
}

/// A number with its noun in the right form.
pub(super) fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::program::HEADER_SIZE;

    fn error(change: impl FnOnce(&mut Target)) -> Error {
        let mut target = Target { pid: 42, ..Target::default() };
        target.status =
            Status { name: "victim".into(), state: 'S', tgid: 42, threads: 1, ..Status::default() };
        assert_eq!(preflight(&target, &Own::default()), Ok(()));
        change(&mut target);
        let error = preflight(&target, &Own::default()).unwrap_err();
        assert!(!error.why.is_empty() && !error.advice.is_empty(), "{error:?}");
        error
    }

    #[test]
    fn each_obstacle_has_its_kind_and_its_advice() {
        let thread = error(|target| target.status.tgid = 40);
        assert_eq!(thread.kind, ErrorKind::NoSuchProcess);
        assert_eq!(thread.advice, "attach to the process: weft attach 40");
        let kernel = error(|target| target.is_kernel_thread = true);
        assert_eq!(kernel.kind, ErrorKind::UnsupportedTarget);
        assert_eq!(error(|target| target.status.state = 'Z').kind, ErrorKind::ZombieTarget);
        let stopped = error(|target| target.status.state = 'T');
        assert_eq!(stopped.kind, ErrorKind::StoppedTarget);
        assert_eq!(stopped.advice, "resume it: kill -CONT 42");
        assert_eq!(error(|target| target.status.tracer = 1).kind, ErrorKind::AlreadyTraced);
        let strict = error(|target| target.status.seccomp_mode = 1);
        assert_eq!(strict.kind, ErrorKind::SeccompForbids);
        let mut header = [0; HEADER_SIZE];
        (header[4], header[18]) = (1, 62);
        let x32 = error(|target| target.elf_header = Some(header));
        assert_eq!(x32.kind, ErrorKind::UnsupportedTarget);
        assert!(x32.what.contains("x32"));
    }

    #[test]
    fn a_first_thread_may_end_before_the_others() {
        let error = error(|target| {
            target.status.state = 'Z';
            target.status.threads = 3;
        });
        assert_eq!(error.kind, ErrorKind::UnsupportedTarget);
        assert!(error.why.contains("2 other threads"));
    }

    #[test]
    fn weft_refuses_itself() {
        let own = Own::read().unwrap();
        let error = preflight(&Target::read(own.pid).unwrap(), &own).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
    }
}
