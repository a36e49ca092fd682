//! What `/proc` says about a process: readers, and the parsers behind them.

use super::status::StatusText;
use crate::arch::SleepingCall;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The id of a thread or of a process, as the kernel counts in weft's own PID namespace.
pub type Tid = i32;

/// What tells a mapped file apart from all others for as long as it is mapped, as `/proc/PID/maps` has it:
/// its device and inode. `stat` may say otherwise, as on overlays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// As `major:minor`.
    pub device: (u32, u32),
    /// 0 for memory without a file.
    pub inode: u64,
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: TargetAddr,
    /// The address after the last.
    pub end: TargetAddr,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Shared with other processes, not copied on write.
    pub shared: bool,
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's device, as `major:minor`.
    pub device: (u32, u32),
    /// The file's inode; 0 for memory without a file.
    pub inode: u64,
    /// The file's path in the target's own mount namespace, a name in brackets, or nothing.
    pub path: String,
}

impl Mapping {
    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the mapping has no bytes; the kernel lists none such.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The file that is mapped.
    pub fn file(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: TargetAddr) -> bool {
        self.start <= address && address < self.end
    }
}

/// The memory map of a process.
pub fn maps(pid: Tid) -> Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps")).map_err(|e| unreadable(pid, "maps", &e))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse_mapping).collect())
}

/// A mapping, as a line of its own says.
pub(crate) fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (head, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        head
    };
    let (start, end) = field().split_once('-')?;
    let flags = field().as_bytes();
    let offset = u64::from_str_radix(field(), 16).ok()?;
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    Some(Mapping {
        start: TargetAddr(hex(start)?),
        end: TargetAddr(hex(end)?),
        read: flags.first() == Some(&b'r'),
        write: flags.get(1) == Some(&b'w'),
        execute: flags.get(2) == Some(&b'x'),
        shared: flags.get(3) == Some(&b's'),
        offset,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode,
        path: unescape(rest.trim_start()),
    })
}

/// The kernel writes a newline in a file's name as `\012`, and nothing else so.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// Fails if `/proc` is that of another PID namespace than weft's: then its numbers mean other processes to the kernel.
pub fn check_namespace(pid: Tid) -> Result<()> {
    // Which process has found that it is its own: a child that was forked may be in another namespace.
    static CHECKED: AtomicI32 = AtomicI32::new(0);
    let own = std::process::id() as Tid;
    if CHECKED.load(Ordering::Relaxed) == own {
        return Ok(());
    }
    let seen = fs::read_link("/proc/self").ok();
    if seen.as_deref() != Some(Path::new(&own.to_string())) {
        return Err(Error::new(ErrorKind::NoSuchProcess, format!("process {pid} cannot be reached"))
            .why("/proc is not that of weft's own PID namespace, so its numbers mean other processes here")
            .advice("mount it: `mount -t proc proc /proc`, or `unshare --mount-proc`, or run weft outside"));
    }
    CHECKED.store(own, Ordering::Relaxed);
    Ok(())
}

/// The threads of a process that exist now.
pub fn threads(pid: Tid) -> Result<Vec<Tid>> {
    check_namespace(pid)?;
    let entries =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| unreadable(pid, "task", &e))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The fields of `/proc/PID/stat` that weft uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The thread's name, at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X` or another letter of proc(5).
    pub state: char,
    /// The kernel's flags for it.
    pub flags: u64,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// Where the heap that `brk` moves starts; 0 where the kernel does not say.
    pub heap_start: u64,
}

/// The state of a thread (or, with the process id, of the main thread).
pub fn stat(tid: Tid) -> Result<Stat> {
    let text = fs::read(format!("/proc/{tid}/stat")).map_err(|e| unreadable(tid, "stat", &e))?;
    parse_stat(&String::from_utf8_lossy(&text))
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("/proc/{tid}/stat is unreadable")))
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything, parentheses and spaces included.
    let (head, tail) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        flags: fields.get(6)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        heap_start: fields.get(44).and_then(|f| f.parse().ok()).unwrap_or(0),
    })
}

/// How often a thread has had its turn on a processor; `None` when it has ended, or the kernel does not
/// report it.
pub fn turns(tid: Tid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// How many calls a thread has completed that [transfer data](crate::arch::is_counted); `None` when it has ended, or the
/// kernel does not report it.
pub fn transfers(pid: Tid, tid: Tid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/io")).ok()?;
    let number = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    number("syscr:")?.checked_add(number("syscw:")?)
}

/// What tells the program that a process runs from the one that it runs after `execve`: its file, and where its heap
/// starts, which the kernel chooses anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image {
    file: Option<(u64, u64)>,
    heap: u64,
}

impl Image {
    /// Whether the kernel has told it.
    pub fn is_known(&self) -> bool {
        self.file.is_some()
    }
}

/// That of a process.
pub fn image(pid: Tid) -> Image {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok();
    let heap = stat(pid).map_or(0, |stat| stat.heap_start);
    Image { file: file.map(|file| (file.dev(), file.ino())), heap }
}

/// Which processor a thread runs on, or ran on last.
pub fn processor(pid: Tid, tid: Tid) -> Option<usize> {
    let text = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// How often a thread has given its processor away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Because it slept, or was stopped.
    pub voluntary: u64,
    /// Because another was to have it.
    pub involuntary: u64,
}

/// That of a thread; `None` when it has ended, or the kernel does not report it.
pub fn switches(tid: Tid) -> Option<Switches> {
    let text = StatusText::read(tid).ok()?;
    let number = |name: &str| text.field(name).parse().ok();
    Some(Switches {
        voluntary: number("voluntary_ctxt_switches")?,
        involuntary: number("nonvoluntary_ctxt_switches")?,
    })
}

/// The system call that a thread sleeps in; `None` when it runs, or when the kernel does not report it.
pub fn sleeping_call(tid: Tid) -> Option<SleepingCall> {
    parse_sleeping_call(&fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?)
}

/// Where in the program a sleeping thread is, and its stack pointer.
pub fn sleeping_at(tid: Tid) -> Option<(TargetAddr, TargetAddr)> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let mut last = text
        .split_ascii_whitespace()
        .rev()
        .map(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).map(TargetAddr));
    let (at, stack) = (last.next()?.ok()?, last.next()?.ok()?);
    Some((at, stack))
}

/// How long the machine runs, without the time that it slept: `CLOCK_MONOTONIC`.
pub fn uptime() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

/// How long the threads of a process have run on processors, those that have ended included. It is exact
/// as of when each was last stopped, or gave up its processor.
pub fn run_time(pid: Tid) -> Duration {
    // What clock_getcpuclockid(3) makes of a process; the last bits mean that the scheduler counts.
    clock((!pid << 3) | 2)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure in.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where the program of a process begins: its own first instruction, not that of its loader.
pub fn entry(pid: Tid) -> Result<TargetAddr> {
    let entry = read_auxiliary(pid, libc::AT_ENTRY).map_err(|e| unreadable(pid, "auxv", &e))?;
    entry.map(TargetAddr).ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            format!("the kernel does not say where process {pid} begins"),
        )
    })
}

/// Whether one of some signals waits for this very thread, which does not block it.
pub fn is_about_to_get(tid: Tid, signals: &[i32]) -> bool {
    let [pending, blocked] = signal_sets(tid, ["SigPnd", "SigBlk"]);
    let waiting = pending & !blocked;
    signals.iter().any(|signal| waiting >> (signal - 1) & 1 == 1)
}

/// Whether a thread, or its whole process, has the kernel call a handler for a signal.
pub fn is_caught(tid: Tid, signal: i32) -> bool {
    let [caught] = signal_sets(tid, ["SigCgt"]);
    caught >> (signal - 1) & 1 == 1
}

/// Whether a thread blocks a signal, or its process ignores it.
pub fn is_refused(tid: Tid, signal: i32) -> bool {
    let [blocked, ignored] = signal_sets(tid, ["SigBlk", "SigIgn"]);
    (blocked | ignored) >> (signal - 1) & 1 == 1
}

/// Sets of signals, by what the kernel calls them; empty ones if the thread is gone.
fn signal_sets<const N: usize>(tid: Tid, names: [&str; N]) -> [u64; N] {
    StatusText::read(tid).map_or([0; N], |status| names.map(|name| status.set(name)))
}

/// Now, in clock ticks since boot: what [`Stat::start_time`] of a process is that starts now.
pub fn now() -> u64 {
    let time = clock(libc::CLOCK_BOOTTIME);
    // SAFETY: a plain question.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    time.as_secs() * per_second + u64::from(time.subsec_nanos()) * per_second / 1_000_000_000
}

/// The id that a process has in its own PID namespace.
pub fn own_pid(pid: Tid) -> Result<Tid> {
    let status = StatusText::read(pid).map_err(|e| unreadable(pid, "status", &e))?;
    let own = status.field("NSpid").split_ascii_whitespace().last();
    Ok(own.and_then(|own| own.parse().ok()).unwrap_or(pid))
}

/// The ids that the processes of this machine have for themselves, whatever namespace they are in.
pub fn own_pids() -> io::Result<BTreeSet<u32>> {
    let pids = fs::read_dir("/proc")?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<Tid>().ok());
    Ok(pids.map(|pid| own_pid(pid).unwrap_or(pid) as u32).collect())
}

/// Whether two processes have the same memory. Where the kernel does not report it, those whose memory looks the
/// same are taken for it.
pub fn share_memory(one: Tid, other: Tid) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: a plain question about two processes.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        0 => true,
        1..=3 => false,
        _ => matches!((maps(one), maps(other)), (Ok(one), Ok(other)) if one == other),
    }
}

fn parse_sleeping_call(text: &str) -> Option<SleepingCall> {
    let mut fields = text.split_ascii_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    (number >= 0).then_some(SleepingCall { number, args })
}

/// A value of the auxiliary vector that the kernel gave to the program.
pub fn auxiliary_value(pid: Tid, key: u64) -> Option<u64> {
    read_auxiliary(pid, key).ok().flatten()
}

fn read_auxiliary(pid: Tid, key: u64) -> io::Result<Option<u64>> {
    let bytes = fs::read(format!("/proc/{pid}/auxv"))?;
    let words = bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or([0; 8])));
    let words: Vec<u64> = words.collect();
    Ok(words.chunks_exact(2).find(|pair| pair[0] == key).map(|pair| pair[1]))
}

/// The number of a namespace (`pid`, `user`, ...) that a process lives in; two processes share it
/// exactly if their numbers are equal.
pub fn namespace(pid: Tid, kind: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok().map(|meta| meta.ino())
}

/// Whether anything can still be asked of a thread.
pub fn is_alive(tid: Tid) -> bool {
    stat(tid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Those of some processes that are there to stay: not the ones that are ending. Those that are about to end are given
/// so much time for it.
pub fn lasting(patience: Duration, find: impl Fn() -> Vec<Tid>) -> Vec<Tid> {
    let began = Instant::now();
    let look = || -> Vec<Tid> { find().into_iter().filter(|&pid| !is_ending(pid)).collect() };
    loop {
        let mut found = look();
        if found.is_empty() {
            // The kernel lists processes by id: one that is forked during the listing may have been passed over,
            // and its parent gone.
            found = look();
        }
        if found.is_empty() || began.elapsed() >= patience {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process executes nothing of its own any more.
fn is_ending(pid: Tid) -> bool {
    /// The kernel's flag for it (`PF_EXITING`).
    const EXITING: u64 = 4;
    stat(pid).map_or(true, |stat| matches!(stat.state, 'Z' | 'X') || stat.flags & EXITING != 0)
}

/// Whether any thread of a process can still do something. The first one may have ended before the others.
pub fn has_living_threads(pid: Tid) -> bool {
    threads(pid).is_ok_and(|tids| tids.into_iter().any(is_alive))
}

/// The error for a file of `/proc` that could not be read.
pub(crate) fn unreadable(pid: Tid, file: &str, error: &io::Error) -> Error {
    if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) {
        // Not by what reports its own failures here.
        let left = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        if left.and_then(|text| parse_stat(&text)).is_some_and(|stat| stat.state == 'Z') {
            return Error::new(ErrorKind::NoSuchProcess, format!("process {pid} has ended"))
                .why("nothing is left of it but its exit code, which its parent has not asked for")
                .advice("`weft ps` lists what is running");
        }
        return Error::new(ErrorKind::NoSuchProcess, format!("process {pid} does not exist"))
            .why("it has ended, or never was")
            .advice("`weft ps` lists what is running");
    }
    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        return Error::new(ErrorKind::SystemCall, format!("/proc/{pid}/{file} cannot be opened"))
            .why(error.to_string())
            .advice("raise the limit of weft, or of what uses it: `ulimit -n 4096`");
    }
    let kind = if error.kind() == io::ErrorKind::PermissionDenied {
        ErrorKind::PermissionDenied
    } else {
        ErrorKind::SystemCall
    };
    Error::new(kind, format!("/proc/{pid}/{file} cannot be read"))
        .why(error.to_string())
        .advice(format!("`weft doctor {pid}` says what stands in the way"))
}

pub(crate) fn dir(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The number in a file of one number, as those under `/proc/sys` are.
pub(crate) fn read_number(path: impl AsRef<Path>) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A descriptor of a process, by which the kernel knows it whatever becomes of its id.
pub fn open_pidfd(pid: Tid) -> Result<OwnedFd> {
    // SAFETY: plain numbers in, a new descriptor out.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(unreadable(pid, "", &io::Error::last_os_error()));
    }
    // SAFETY: the call just made it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// What was done to a child; `None` if it has ended, or runs another program: then it has nothing of
/// weft's any more.
pub(crate) fn unless_ended<T>(child: Tid, outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(_) if !is_alive(child) => Ok(None),
        Err(error) if matches!(error.kind, ErrorKind::TargetGone | ErrorKind::NoSuchProcess) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_of_a_file_with_spaces_and_a_newline() {
        let line =
            "7f00-7fff r-xs 00001000 fe:0a 42                         /tmp/a b\\012c (deleted)";
        let mapping = parse_mapping(line).unwrap();
        assert_eq!(mapping.path, "/tmp/a b\nc (deleted)");
        assert_eq!((mapping.start, mapping.end), (TargetAddr(0x7f00), TargetAddr(0x7fff)));
        assert_eq!((mapping.device, mapping.inode, mapping.offset), ((0xfe, 0xa), 42, 0x1000));
        assert!(mapping.read && !mapping.write && mapping.execute && mapping.shared);
    }

    #[test]
    fn a_mapping_without_a_file() {
        let mapping = parse_mapping("7f00-7fff rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(mapping.path, "");
        assert_eq!(parse_mapping("nonsense"), None);
    }

    #[test]
    fn a_name_made_to_confuse_the_reader_of_stat() {
        let tail = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = parse_stat(&format!("1 (a) R (b) Z {tail}")).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) R (b", 'Z'));
        assert_eq!((stat.flags, stat.start_time, stat.heap_start), (9, 22, 47));
    }

    #[test]
    fn sleeping_calls() {
        let call =
            parse_sleeping_call("232 0x5 0x7f 0x80 0xffffffff 0x0 0x8 0x7ffe 0x7f1").unwrap();
        assert_eq!((call.number, call.args[3]), (232, 0xffff_ffff));
        assert_eq!(parse_sleeping_call("running"), None);
        assert_eq!(parse_sleeping_call("-1 0x7ffe 0x7f1"), None);
    }

    #[test]
    fn reads_itself() {
        let me = std::process::id() as Tid;
        assert!(maps(me).unwrap().iter().any(|m| m.path == "[stack]"));
        assert!(threads(me).unwrap().contains(&me));
        assert!(stat(me).unwrap().start_time > 0);
        assert!(namespace(me, "pid").is_some());
        assert!(is_alive(me));
        assert_eq!(maps(-1).unwrap_err().kind, ErrorKind::NoSuchProcess);
    }
}
