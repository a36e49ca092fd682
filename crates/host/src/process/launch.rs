//! Starting a program and holding it before its first instruction.

use super::edit::CodeWriter;
use super::proc::{self, Tid};
use super::ptrace::{self, Event};
use super::stopped::{Caution, Stopped, before_breakpoint, settle_stop};
use super::{memory, status};
use crate::arch::Registers;
use crate::arch::instructions::{BREAKPOINT, JUMP_TO_ITSELF};
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What to start.
#[derive(Debug, Default)]
pub struct Launch {
    /// The program (looked up in `PATH`) and its arguments.
    pub command: Vec<OsString>,
    /// Its whole environment; weft's own when nothing is given.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// The folder that it starts in; weft's own when nothing is given.
    pub directory: Option<PathBuf>,
    /// Standard input, output and error; weft's own where nothing is given.
    pub streams: [Option<OwnedFd>; 3],
    /// Whether the kernel puts it where it always does, and not somewhere else each time.
    pub is_fixed: bool,
    /// Whether it is a job of its own, as a shell would have it: a process group.
    pub is_apart: bool,
}

/// Starts the program and stops it before its first instruction in user space: the dynamic loader's,
/// or its own when it has none. Must run on the thread that is to hold it.
///
/// The child waits, just before it becomes the program, for weft to seize it.
pub fn launch(launch: Launch) -> Result<(Child, Stopped)> {
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "there is no command to start")
            .advice("give a program and its arguments"));
    };
    let name = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(environment) = launch.environment {
        command.env_clear().envs(environment);
    }
    if let Some(directory) = launch.directory {
        command.current_dir(directory);
    }
    let [input, output, error] = launch.streams;
    for (stream, set) in [
        (input, Command::stdin as fn(&mut Command, Stdio) -> &mut Command),
        (output, Command::stdout),
        (error, Command::stderr),
    ] {
        if let Some(stream) = stream {
            set(&mut command, Stdio::from(stream));
        }
    }

    let (is_fixed, is_apart) = (launch.is_fixed, launch.is_apart);
    let scheduling = Scheduling::of_weft();
    let ignores_children = stop_ignoring_children();
    let failed = |e: io::Error| launch_failed(&name, &e);
    let (mut announcements, announce) = pipe().map_err(failed)?;
    let (permission, mut permit) = pipe().map_err(failed)?;
    let (announce_fd, permission_fd) = (announce.as_raw_fd(), permission.as_raw_fd());
    let permit_fd = permit.as_raw_fd();
    // SAFETY: between fork and exec, only system calls that allocate and lock nothing.
    unsafe {
        command.pre_exec(move || {
            // What Python ignores is not what the program shall ignore; the library restores SIGPIPE only.
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            if ignores_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            scheduling.take();
            if is_apart {
                libc::setpgid(0, 0);
            }
            if is_fixed {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
            // With an end of its own to write to, it would wait until its exit for a weft that gives no permission.
            libc::close(permit_fd);
            let pid = libc::getpid().to_ne_bytes();
            let mut byte = 0u8;
            if libc::write(announce_fd, pid.as_ptr().cast(), pid.len()) != pid.len() as isize
                || libc::read(permission_fd, (&raw mut byte).cast(), 1) != 1
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    // `spawn` returns when the program has started, which it does only when we let it; so it needs a
    // thread of its own, and we the child's id beforehand.
    let spawner = std::thread::spawn(move || {
        let child = command.spawn();
        drop((announce, permission));
        child
    });
    let mut pid = [0; size_of::<Tid>()];
    let seized = announcements.read_exact(&mut pid).is_ok();
    let pid = Tid::from_ne_bytes(pid);
    let mut refusal = None;
    if seized {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;
        refusal = ptrace::seize(pid, options).err().map(|error| may_not_trace(&name, pid, &error));
        if refusal.is_none() {
            permit.write_all(&[1]).map_err(failed)?;
        }
        // Without a permission the child reads the end of the pipe, and gives up.
        drop(permit);
    }
    let stopped = if seized && refusal.is_none() { hold_at_start(pid) } else { Ok(None) };
    let child =
        spawner.join().map_err(|_| Error::new(ErrorKind::Internal, "the spawner failed"))?;
    if let Some(error) = refusal {
        return Err(error);
    }
    let child = child.map_err(failed)?;
    match stopped? {
        Some(stopped) => Ok((child, stopped)),
        None => Err(Error::new(ErrorKind::LaunchFailed, format!("{name} did not start"))
            .why("it was killed before its first instruction")),
    }
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy)]
struct Scheduling {
    policy: i32,
    /// What the kernel has as `sched_param`.
    priority: i32,
    niceness: i32,
    /// By how many nanoseconds it may be woken late, if that is known.
    slack: Option<u64>,
}

impl Scheduling {
    /// That of weft's first thread, which a program inherits that weft starts. The thread that starts it is in a
    /// hurry.
    fn of_weft() -> Self {
        let pid = std::process::id();
        let mut priority = 0;
        // Not by the library: musl's functions refuse, because POSIX means processes by them, and Linux threads.
        // SAFETY: plain questions; the kernel writes to the number.
        let (policy, niceness) = unsafe {
            libc::syscall(libc::SYS_sched_getparam, pid, &raw mut priority);
            let policy = libc::syscall(libc::SYS_sched_getscheduler, pid) as i32;
            (policy, libc::getpriority(libc::PRIO_PROCESS, pid))
        };
        let slack = fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).ok();
        Self { policy, priority, niceness, slack: slack.and_then(|text| text.trim().parse().ok()) }
    }

    /// Applies it to this thread, between fork and exec.
    fn take(&self) {
        // One that is not to be inherited is the usual one in a child.
        if self.policy & libc::SCHED_RESET_ON_FORK == 0 {
            // SAFETY: plain numbers, and one that outlives the call.
            unsafe {
                let priority = &raw const self.priority;
                libc::syscall(libc::SYS_sched_setscheduler, 0, self.policy, priority);
                libc::setpriority(libc::PRIO_PROCESS, 0, self.niceness);
            }
        }
        if let Some(slack) = self.slack.filter(|&slack| slack > 0) {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
        }
    }
}

/// Makes the kernel keep how children end, even if the parent of weft had it ignore them. Returns whether it had: that is
/// so: a program that weft starts inherits it.
fn stop_ignoring_children() -> bool {
    static WERE_IGNORED: AtomicBool = AtomicBool::new(false);
    // SAFETY: the kernel writes to the structure; a handler that the embedding program has set is left alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_IGN {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            WERE_IGNORED.store(true, Relaxed);
        }
    }
    WERE_IGNORED.load(Relaxed)
}

/// How a program that was started has ended, if it has. Stops that are for a tracer, who may be another
/// thread of weft's, are left to it: any thread that waits for the child would be given them. So is the end, while
/// there is one: it stays to be heard, and to be asked for once more.
///
/// `before` is called when it has ended and is about to be forgotten: until then the kernel reports what it has counted.
pub fn ended(child: &mut Child, before: impl FnOnce(Tid)) -> io::Result<Option<ExitStatus>> {
    // SAFETY: plain numbers; the kernel fills them in.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes to the structure.
    let result = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, options) };
    let has_ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    if has_ended && status::tracer(child.id() as Tid).is_some() {
        // SAFETY: the kernel wrote what it reports of a child.
        let status = unsafe { info.si_status() };
        let is_exit = info.si_code == libc::CLD_EXITED;
        return Ok(Some(ExitStatus::from_raw(if is_exit { status << 8 } else { status })));
    }
    if has_ended {
        before(child.id() as Tid);
    }
    // Whatever is wrong, the library says it best.
    if result != 0 || has_ended { child.try_wait() } else { Ok(None) }
}

/// Waits until the seized child has become the program; `None` when it ends instead.
fn hold_at_start(pid: Tid) -> Result<Option<Stopped>> {
    let failed = |e: io::Error| ptrace::failed("start", pid, &e);
    loop {
        match ptrace::poll(pid).map_err(failed)? {
            None => std::thread::sleep(Duration::from_micros(100)),
            Some(Event::Gone) => return Ok(None),
            Some(Event::Exec) => {
                ptrace::set_options(pid, libc::PTRACE_O_TRACESYSGOOD).map_err(failed)?;
                let registers = leave_exec(pid).map_err(failed)?;
                return Ok(registers.map(|registers| Stopped::adopt(pid, registers)));
            }
            Some(Event::Signal(signal)) => ptrace::resume(pid, signal).map_err(failed)?,
            Some(_) => ptrace::resume(pid, 0).map_err(failed)?,
        }
    }
}

/// From the stop at which the kernel has set a program up, one stop further: on its way out to user space
/// it is where every other stopped thread is. Nothing when it ends instead.
pub(crate) fn leave_exec(pid: Tid) -> io::Result<Option<Registers>> {
    ptrace::interrupt(pid)?;
    ptrace::resume(pid, 0)?;
    loop {
        match ptrace::wait(pid)? {
            Event::Stop(_) => return Ok(settle_stop(pid)),
            Event::Gone => return Ok(None),
            Event::Signal(signal) => ptrace::resume_asked(pid, signal)?,
            _ => ptrace::resume_asked(pid, 0)?,
        }
    }
}

/// Lets a program that was just started run to an address that it comes to once, and stops all of
/// it there. Returns whether it came there: it may end before.
pub fn run_to(stopped: &mut Stopped, at: TargetAddr) -> Result<bool> {
    let pid = stopped.pid();
    let failed = |e: std::io::Error| ptrace::failed("run", pid, &e);
    let code = CodeWriter::open(pid)?;
    // The signal of a breakpoint is forced: the kernel would unblock it, or no longer ignore it, and the program
    // that has inherited that would not find it so.
    if proc::is_refused(pid, libc::SIGTRAP) {
        return run_into_loop(stopped, at, &code);
    }
    let first = memory::read(pid, at, 1)?;
    code.write(at, &[BREAKPOINT])?;
    ptrace::resume(pid, 0).map_err(failed)?;
    loop {
        match ptrace::wait(pid).map_err(failed)? {
            Event::Gone => return Ok(false),
            Event::Signal(signal) => {
                let before = before_breakpoint(pid, |here| here == at);
                if let Some(before) = before.filter(|_| signal == libc::SIGTRAP) {
                    code.write(at, &first)?;
                    stopped.redirect(pid, before)?;
                    stopped.stop_others(Caution::SpareSleepers)?;
                    return Ok(true);
                }
                ptrace::resume(pid, signal).map_err(failed)?;
            }
            _ => ptrace::resume(pid, 0).map_err(failed)?,
        }
    }
}

/// Does what [`run_to`] does, and sends no signal: the program comes to a jump to itself, and is looked after until it
/// is there.
fn run_into_loop(stopped: &mut Stopped, at: TargetAddr, code: &CodeWriter) -> Result<bool> {
    const MEANWHILE: Duration = Duration::from_millis(1);
    let pid = stopped.pid();
    let failed = |e: std::io::Error| ptrace::failed("run", pid, &e);
    let first = memory::read(pid, at, JUMP_TO_ITSELF.len())?;
    code.write(at, &JUMP_TO_ITSELF)?;
    ptrace::resume(pid, 0).map_err(failed)?;
    loop {
        std::thread::sleep(MEANWHILE);
        ptrace::interrupt(pid).map_err(failed)?;
        loop {
            match ptrace::wait(pid).map_err(failed)? {
                Event::Gone => return Ok(false),
                Event::Stop(_) => break,
                Event::Signal(signal) => ptrace::resume(pid, signal).map_err(failed)?,
                _ => ptrace::resume(pid, 0).map_err(failed)?,
            }
        }
        let registers = ptrace::registers(pid).map_err(failed)?;
        if registers.instruction() == at {
            code.write(at, &first)?;
            stopped.redirect(pid, registers)?;
            stopped.stop_others(Caution::SpareSleepers)?;
            return Ok(true);
        }
        ptrace::resume(pid, 0).map_err(failed)?;
    }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two new descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call just made them, and nobody else knows of them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

fn may_not_trace(name: &str, pid: Tid, error: &io::Error) -> Error {
    let what = format!("weft may not trace {name}");
    match status::tracer(pid) {
        Some(tracer) => Error::new(ErrorKind::AlreadyTraced, what)
            .why(format!("process {tracer} traces weft, and with it what weft starts"))
            .advice("start weft without it: strace without -f, for instance"),
        None => Error::new(ErrorKind::PermissionDenied, what)
            .why(error.to_string())
            .advice("`weft doctor` says what stands in the way"),
    }
}

fn launch_failed(name: &str, error: &io::Error) -> Error {
    let advice = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => "check the name, and PATH",
        (io::ErrorKind::PermissionDenied, _) => "is it executable?",
        (_, Some(libc::EMFILE)) => "weft itself has too few descriptors: run ulimit -n 256 before",
        (_, Some(libc::ENFILE)) => "the machine has no descriptors left: sysctl fs.file-nr",
        (_, Some(libc::EAGAIN)) => {
            "there may be no more processes (ulimit -u, or the cgroup's pids.max): allow more"
        }
        _ => "does it start without weft?",
    };
    Error::new(ErrorKind::LaunchFailed, format!("{name} cannot be started"))
        .why(error.to_string())
        .advice(advice)
}
