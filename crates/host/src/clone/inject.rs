//! Bringing the engine into a process, and its threads into the engine.
//!
//! The engine is built by a thread on a trip ([`crate::journey`]): until the threads are sent to join it,
//! nothing of the process has changed but that it has more memory.

use super::losses::Losses;
use super::members::Members;
use super::recording::Recording;
use super::tables::{TablePlace, find_place};
use super::visit::{Desk, Errand, describe};
use super::{CloneOptions, Records, failed};
use crate::agent::{self, Sharing, away_trip, check_outcomes, permitted_traveller, removing};
use crate::agent_image::Freestanding;
use crate::arch::{Step, Value};
use crate::checks::limits::{self, Needs};
use crate::checks::seccomp;
use crate::leftovers::sign;
use crate::proc::{self, Tid};
use crate::room::{PAGE, Room};
use crate::stopped::Stopped;
use crate::target::open_pidfd;
use crate::{Error, ErrorKind, Result, TargetAddr, memory, place, ptrace};
use memmap2::MmapMut;
use std::ffi::OsStr;
use std::fs;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use weft_abi::recording::{RECORDING_SIZE, STRIPE_SIZE};
use weft_abi::{
    CLONE_MAGIC, CLONE_NAME, COUNTER_FORBIDDEN, CloneControl, CloneStart, CloneThread, EXEC_COUNT,
    ExecRequest, FOLDER_SIZE, REPORTS_SIZE, option, region_words,
};

static FILE: &[u8] = include_bytes!(env!("WEFT_CLONE"));

/// The ways into the engine: to start it, to join it, to leave it, to have it forget everything, to weave.
const WAYS: [&str; 5] = [
    "weft_clone_start",
    "weft_clone_join",
    "weft_clone_leave",
    "weft_clone_forget",
    "weft_clone_weave",
];

const ALL_SIGNALS: u64 = u64::MAX;
/// How many mappings the engine may begin with that were not there before.
const SPARE: usize = 16;

fn image() -> Result<&'static Freestanding<5>> {
    static IMAGE: LazyLock<Result<Freestanding<5>, String>> =
        LazyLock::new(|| Freestanding::parse(FILE, WAYS));
    IMAGE.as_ref().map_err(|why| failed("the engine that is built into weft is broken", why))
}

/// How much memory the engine takes, and right behind it what it shares with weft.
fn lengths(image: &Freestanding<5>) -> [u64; 2] {
    [image.bytes.len(), size_of::<CloneControl>()].map(|size| (size as u64).next_multiple_of(PAGE))
}

/// By what wefts know whether they have the same engine.
pub fn engine_hash() -> u64 {
    // FNV-1a: the same in every build of weft, as long as the engine is.
    FILE.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An engine in a process, and in those that the process has forked.
#[derive(Debug)]
pub struct Presence {
    shared: MmapMut,
    /// Where it is, with what it shares with weft right behind it; and how long both are.
    pub base: TargetAddr,
    pub length: u64,
    pub control: TargetAddr,
    pub leave: TargetAddr,
    pub forget: TargetAddr,
    pub weave: TargetAddr,
    /// The processes that it is in.
    pub members: Members,
    /// Its number among those of its family.
    pub number: u64,
    /// Which requests somebody sees to.
    pub serving: [AtomicBool; EXEC_COUNT],
    /// What it tells of what the program executes, if it does.
    recording: Mutex<Option<Arc<Recording>>>,
    /// Whether nobody executes anything there any more.
    is_over: AtomicBool,
}

impl Presence {
    /// The engine that a weft has left which is dead; the same as this weft's. It is only good for taking the
    /// engine out: what it shares is a copy.
    pub fn abandoned(pid: Tid, control: TargetAddr) -> Result<Self> {
        let image = image()?;
        let [image_length, shared_length] = lengths(image);
        let base = TargetAddr(control.0 - image_length);
        let [_, _, leave, forget, weave] = image.entries.map(|entry| base + entry);
        let bytes = memory::read(pid, control, size_of::<CloneControl>())?;
        let mut shared = MmapMut::map_anon(shared_length as usize)
            .map_err(|e| failed("weft has no memory left", e))?;
        shared[..bytes.len()].copy_from_slice(&bytes);
        Ok(Self {
            shared,
            base,
            length: image_length + shared_length,
            control,
            leave,
            forget,
            weave,
            // Those of its parents were forked with it, too.
            members: Members::of(pid, control, 0)?,
            number: 0,
            serving: [const { AtomicBool::new(false) }; EXEC_COUNT],
            recording: Mutex::new(None),
            is_over: AtomicBool::new(false),
        })
    }

    /// What it shares with weft.
    pub fn get(&self) -> &CloneControl {
        control_of(&self.shared)
    }

    /// The instruction by which the program's system calls are made.
    pub fn call(&self) -> TargetAddr {
        TargetAddr(self.get().debug.call.load(Relaxed))
    }

    /// What it tells of what the program executes, if it does.
    pub fn recording(&self) -> MutexGuard<'_, Option<Arc<Recording>>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody executes anything there any more, as far as is known.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Makes that known.
    pub fn be_over(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// Tells it where to put its reports.
    pub fn put_reports_into(&self, folder: &Path) {
        // A zero ends it: the last one stays.
        let places = &self.get().folder[..FOLDER_SIZE - 1];
        for (place, &byte) in places.iter().zip(folder.as_os_str().as_bytes()) {
            place.store(byte, Relaxed);
        }
    }

    /// The reports that it has written, in all processes.
    pub fn reports(&self) -> Vec<PathBuf> {
        let control = self.get();
        let length = (control.reports_length.load(Acquire) as usize).min(REPORTS_SIZE);
        let names: Vec<u8> =
            control.reports[..length].iter().map(|byte| byte.load(Acquire)).collect();
        let lines = names.split_inclusive(|&byte| byte == b'\n');
        // What is not whole yet is one for the next time.
        lines
            .filter_map(|line| line.strip_suffix(b"\n").filter(|name| !name.contains(&0)))
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .filter(|name| is_report(name))
            .collect()
    }

    /// Whether it is in a process: not in one that has become another program.
    pub fn is_in(&self, pid: Tid) -> bool {
        self.members.has(pid)
    }

    /// The processes that a process has forked with it, as well as those that have borrowed its memory.
    pub fn relatives(&self, pid: Tid) -> Vec<Tid> {
        self.members.all().filter(|&other| other != pid).collect()
    }

    /// Where a request stands, in the memory of all processes that it is in.
    pub fn request_at(&self, index: usize) -> TargetAddr {
        let requests = offset_of!(CloneControl, requests);
        let state = offset_of!(ExecRequest, state);
        self.control + (requests + index * size_of::<ExecRequest>() + state) as u64
    }

    /// Whether the program has forbidden itself to read the time stamp counter.
    pub fn is_counter_forbidden(&self) -> bool {
        self.get().counter_mode.load(Relaxed) == COUNTER_FORBIDDEN
    }

    /// Has threads that are about to fork leave the engine to the host, or do so again.
    pub fn want(&self, is_wanted: bool) {
        self.get().is_wanted.store(u32::from(is_wanted), Relaxed);
    }

    /// Whether the program has put a seccomp filter over itself since it is in the clone.
    pub fn is_filtered(&self) -> bool {
        self.get().is_filtered.load(Relaxed) != 0
    }

    /// What is missing from what is known of the program.
    pub fn losses(&self) -> Losses {
        let recorded = self.recording().as_ref().map(|recording| recording.losses());
        let mut losses = recorded.unwrap_or_default();
        losses.native = self.get().unfollowed.load(Relaxed);
        losses.left = self.get().left.load(Relaxed);
        losses
    }
}

/// What an engine shares with weft, in memory that is as large.
fn control_of(shared: &MmapMut) -> &CloneControl {
    assert!(shared.len() >= size_of::<CloneControl>());
    // SAFETY: it is at least that large, and all that both sides write is atomic.
    unsafe { &*shared.as_ptr().cast() }
}

/// Whether a file has the name of a report. The program could have written any other.
fn is_report(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let numbers = name.and_then(|name| name.strip_prefix("weft-")?.strip_suffix(".report"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let both = numbers.and_then(|numbers| numbers.split_once('-'));
    both.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
        && !path.as_os_str().as_bytes().iter().any(u8::is_ascii_control)
}

/// The system calls of the engine, and of snippets in a clone, with their first arguments.
const ENGINE_CALLS: [(i64, i32); 16] = [
    (libc::SYS_mmap, 0),
    (libc::SYS_mprotect, 0),
    (libc::SYS_munmap, 0),
    (libc::SYS_madvise, 0),
    (libc::SYS_rt_sigaction, libc::SIGSEGV),
    (libc::SYS_rt_sigprocmask, libc::SIG_SETMASK),
    (libc::SYS_sigaltstack, 0),
    (libc::SYS_arch_prctl, ARCH_SET_GS),
    (libc::SYS_gettid, 0),
    (libc::SYS_getpid, 0),
    (libc::SYS_tgkill, 0),
    (libc::SYS_rt_tgsigqueueinfo, 0),
    (libc::SYS_futex, 0),
    (libc::SYS_sched_yield, 0),
    (libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC),
    (libc::SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID),
];
const ARCH_SET_GS: i32 = 0x1001;

/// Fails if a process handles page faults itself. A thread of it that waits for one, or for the end of a call that
/// unmaps memory, may have the engine, which the thread that handles them needs.
fn refuse_fault_handlers(pid: Tid) -> Result<()> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Ok(()) };
    let is_one =
        |link: PathBuf| link.as_os_str().as_bytes().starts_with(b"anon_inode:[userfaultfd]");
    if !entries.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(is_one)) {
        return Ok(());
    }
    let what = format!("process {pid} handles page faults itself (userfaultfd)");
    Err(Error::new(ErrorKind::UnsupportedTarget, what)
        .why("from a clone it could wait for itself, for ever")
        .advice("measure it without the clone: --weaver patch"))
}

/// Fails if a seccomp filter over a thread forbids a system call that the engine makes.
fn refuse_filters(stopped: &Stopped) -> Result<()> {
    let calls = ENGINE_CALLS.map(|(number, first)| seccomp::Call::new(number, &[first as u64]));
    let is_filtered = seccomp::is_over_any_thread(stopped.pid());
    let mut threads = stopped.threads().keys().filter(|_| is_filtered);
    threads.try_for_each(|&tid| seccomp::examine(tid, &calls))
}

/// Brings the engine into a process, and has all its threads go on in the clone. They must all be stopped,
/// and do so when they are let go.
pub fn bring_in(stopped: &mut Stopped, options: &CloneOptions, number: u64) -> Result<Presence> {
    let pid = stopped.pid();
    refuse_fault_handlers(pid)?;
    refuse_filters(stopped)?;
    let image = image()?;
    let maps = proc::maps(pid)?;
    let room = Room::find(pid, &maps)?;
    let [image_length, shared_length] = lengths(image);
    // What is mapped, as the engine is told of it, with what is mapped for the engine.
    let most = 3 * (maps.len() + SPARE);
    let desk_length = Desk::length(stopped.threads().len(), most);
    let length = image_length + shared_length;
    let base = place::find(pid, &maps, length + desk_length)?;
    let control = base + image_length;
    let desk = Desk { at: base + length, length: desk_length };

    limits::check(pid, needs(stopped.threads().len() as u64, options.records))?;
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let sharing = Sharing::new(
        CLONE_NAME,
        shared_length,
        vec![agent::map_shared(control, shared_length, read_write, 0)],
    );
    // Whoever finds it knows whose it is, and what else there may be: see `reclaim`.
    let (shared, _) =
        sharing.make_signed(stopped, &room, open_pidfd(pid)?.as_raw_fd(), |shared| {
            let control = control_of(shared);
            control.engine.store(engine_hash(), Relaxed);
            control.desk_length.store(desk.length, Relaxed);
            control.every_signal.store(ALL_SIGNALS, Relaxed);
            sign(&control.owner)?;
            control.magic.store(CLONE_MAGIC, Release);
            Ok(())
        })?;
    let map = [map_private(base, image_length), map_private(desk.at, desk.length)];
    let started = note(stopped, &room, &map, control, offset_of!(CloneControl, is_mapped))
        .and_then(|()| {
            start(stopped, &room, &desk, options, Place { base, length, control, number }, shared)
        });
    let (presence, threads) = match started {
        Ok(started) => started,
        Err(error) => {
            // Nobody has been there yet. The first error is the one to report.
            let _ = agent::take_out(stopped, &[(base, length + desk.length)]);
            return Err(error);
        }
    };
    let join = base + image.entries[1];
    let clear = removing(desk.at, desk.length);
    note(stopped, &room, &clear, control, offset_of!(CloneControl, is_cleared))?;
    for (tid, thread) in threads {
        if let Err(error) = send(stopped, tid, join, thread.record)
            && proc::is_alive(tid)
        {
            return Err(error);
        }
    }
    // From here on there is no way but forward, with weft or without.
    presence.get().is_joined.store(1, Release);
    Ok(presence)
}

/// Has a thread do something, and write to a field of the control block that it has, on one trip: it makes that without
/// weft, too. What it writes is its signal mask, which blocks everything on a trip (or is made to, where weft is killed
/// right when it sends the thread); no filter can forbid that, since each trip ends by the same call.
fn note(
    stopped: &Stopped,
    room: &Room,
    steps: &[Step],
    control: TargetAddr,
    field: usize,
) -> Result<()> {
    let every = (control + offset_of!(CloneControl, every_signal) as u64).0;
    let call = |set: u64, old: u64| {
        let args = [libc::SIG_BLOCK as u64, set, old, 8].map(Value::Const).to_vec();
        Step::Call(libc::SYS_rt_sigprocmask, args)
    };
    let noting = [call(every, 0), call(0, (control + field as u64).0)];
    let steps: Vec<Step> = steps.iter().cloned().chain(noting).collect();
    let traveller = permitted_traveller(stopped, &steps)?;
    let outcomes = away_trip(stopped, &traveller, room, &steps, |_, _| Ok(()))?;
    check_outcomes(stopped.pid(), &outcomes)
}

/// What a program takes that runs from a clone: known beforehand, since there is no way back for a program
/// whose clone finds no memory.
fn needs(threads: u64, records: Records) -> Needs {
    /// A piece of clone, with the view that is written and a copy for a child that is being forked; one each
    /// near the program and its libraries, and one near code that is made.
    const CLONE: u64 = 3 * 3 * (128 << 20);
    /// What the engine knows of the code, its tables, and the agent's image.
    const KNOWN: u64 = 64 << 20;
    /// What the stacks of a thread take.
    const THREAD: u64 = 512 << 10;
    /// The mappings of the engine; and those that the program's fall into where its code is guarded.
    const MAPPINGS: u64 = 256;
    let (counters, recording) = match records {
        Records::Nothing => (0, 0),
        _ => (STRIPE_SIZE, RECORDING_SIZE),
    };
    let data = KNOWN + threads * (THREAD + counters);
    Needs {
        address_space: CLONE + data + recording,
        data,
        mappings: MAPPINGS + 4 * threads,
        memory: KNOWN,
    }
}

/// Where an engine goes.
struct Place {
    base: TargetAddr,
    length: u64,
    control: TargetAddr,
    /// Its number among those of its family.
    number: u64,
}

/// Has the engine built in memory that is there. Returns it, and the threads as it knows them. When it fails,
/// there is nothing more in the process than before.
fn start(
    stopped: &Stopped,
    room: &Room,
    desk: &Desk,
    options: &CloneOptions,
    Place { base, length, control, number }: Place,
    shared: MmapMut,
) -> Result<(Presence, Vec<(Tid, CloneThread)>)> {
    let pid = stopped.pid();
    let image = image()?;
    let [_, _, leave, forget, weave] = image.entries.map(|entry| base + entry);
    let mut bytes = image.bytes.clone();
    for &(at, value) in &image.relative {
        bytes[at as usize..at as usize + 8].copy_from_slice(&(base.0 + value).to_ne_bytes());
    }
    memory::write(pid, base, &bytes)?;
    let TablePlace { at: tables, reserved } = find_place(pid)?;
    let members = Members::of(pid, control, proc::stat(pid)?.start_time)?;
    let recording = Recording::begin(stopped, room, options.records)?;
    let recorded = recording.as_ref().map(Recording::range);
    let presence = Presence {
        shared,
        base,
        length,
        control,
        leave,
        forget,
        weave,
        members,
        number,
        serving: [const { AtomicBool::new(false) }; EXEC_COUNT],
        recording: Mutex::new(recording.map(Arc::new)),
        is_over: AtomicBool::new(false),
    };
    presence.get().processes.store(1, Relaxed);
    let start = CloneStart {
        control: control.0,
        image: [base.0, control.0],
        cache_size: options.cache_size,
        options: flags(options),
        recording: recorded.map_or(0, |(at, _)| at.0),
        mode: options.records.mode(),
        tables,
        reserved,
    };
    match begin(stopped, room, desk, &presence, start) {
        Ok(threads) => Ok((presence, threads)),
        Err(error) => {
            let _ = agent::take_out(stopped, recorded.as_slice());
            Err(error)
        }
    }
}

fn flags(options: &CloneOptions) -> u64 {
    let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    flag(!options.sees_changes, option::BLIND)
        | flag(!options.follows, option::STAY)
        | flag(options.in_step, option::IN_STEP)
}

/// Has the engine built. Returns the threads as it knows them.
fn begin(
    stopped: &Stopped,
    room: &Room,
    desk: &Desk,
    presence: &Presence,
    start: CloneStart,
) -> Result<Vec<(Tid, CloneThread)>> {
    let image = image()?;
    let mut threads = describe(stopped)?;
    if start.recording != 0 {
        threads.iter_mut().for_each(|(tid, thread)| thread.name = name_of(*tid));
    }
    let executable = image.data_start.unwrap_or(image.bytes.len() as u64);
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let protect = [presence.base.0, executable, protection].map(Value::Const).to_vec();
    let mut before = vec![Step::Call(libc::SYS_mprotect, protect)];
    // A filter may forbid the question; then the counter counts as allowed.
    if !seccomp::is_over_any_thread(stopped.pid()) {
        let mode = presence.control + offset_of!(CloneControl, counter_mode) as u64;
        let question = agent::counter_question(mode).map(Value::Const).to_vec();
        before.push(Step::Call(libc::SYS_prctl, question));
    }
    let message: Vec<u64> = proc::maps(stopped.pid())?.iter().flat_map(described).collect();
    if Desk::length(threads.len(), message.len()) > desk.length {
        return Err(failed("there is no room to say what is mapped", "there is too much of it"));
    }
    let entry = presence.base + image.entries[0];
    let errand = Errand { start, before, message, ..Errand::to(entry) };
    if !desk.visit(stopped, room, errand, &mut threads)? {
        return Err(Error::new(
            ErrorKind::UnsupportedTarget,
            format!("process {} has no room for the engine", stopped.pid()),
        )
        .why("it has no memory left"));
    }
    Ok(threads)
}

/// A thread's name, as the engine is told of it.
fn name_of(tid: Tid) -> [u64; 2] {
    let mut name = [0; 16];
    let read = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    let read = read.strip_suffix(b"\n").unwrap_or(&read);
    let length = read.len().min(name.len());
    name[..length].copy_from_slice(&read[..length]);
    let word = u128::from_le_bytes(name);
    [word as u64, (word >> 64) as u64]
}

/// What the engine is told of a mapping.
fn described(mapping: &proc::Mapping) -> [u64; 3] {
    let bits = [
        (mapping.read, libc::PROT_READ),
        (mapping.write, libc::PROT_WRITE),
        (mapping.execute, libc::PROT_EXEC),
    ];
    let protection = bits.into_iter().filter(|bit| bit.0).fold(0, |all, bit| all | bit.1 as u64);
    region_words(mapping.start.0, mapping.end.0, protection, mapping.shared)
}

/// Has a thread go on in the engine.
fn send(stopped: &mut Stopped, tid: Tid, join: TargetAddr, record: u64) -> Result<()> {
    let Some(home) = stopped.threads().get(&tid) else { return Ok(()) };
    let mut there = home.at(join);
    there.0.rdi = record;
    stopped.redirect(tid, there)?;
    ptrace::set_signal_mask(tid, ALL_SIGNALS).map_err(|e| ptrace::failed("move", tid, &e))
}

/// What a thread does to get memory of its own.
pub fn map_private(at: TargetAddr, length: u64) -> Step {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let args = [at.0, length, protection, flags, u64::MAX, 0].map(Value::Const);
    Step::Call(libc::SYS_mmap, args.to_vec())
}
