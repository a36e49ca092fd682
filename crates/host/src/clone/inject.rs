//! Bringing the engine into a process, and its threads into the engine.
//!
//! The engine is built by a thread on a trip ([`crate::journey`]): until the threads are sent to join it,
//! nothing of the process has changed but that it has more memory.

use super::recording::Recording;
use super::visit::{Desk, Errand, describe};
use super::{CloneOptions, failed};
use crate::agent::{self, Fetch, away_trip, check_outcomes, making_shared, permitted_traveller};
use crate::agent_image::Freestanding;
use crate::arch::{Step, Value};
use crate::proc::{self, Tid};
use crate::room::{PAGE, Room};
use crate::stopped::Stopped;
use crate::target::open_pidfd;
use crate::{Error, ErrorKind, Result, TargetAddr, memory, place, ptrace};
use memmap2::MmapMut;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use weft_abi::{
    CLONE_MAGIC, CLONE_NAME, CloneControl, CloneStart, CloneThread, FOLDER_SIZE, REPORTS_SIZE,
    option,
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

fn image() -> Result<&'static Freestanding<5>> {
    static IMAGE: LazyLock<Result<Freestanding<5>, String>> =
        LazyLock::new(|| Freestanding::parse(FILE, WAYS));
    IMAGE.as_ref().map_err(|why| failed("the engine that is built into weft is broken", why))
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
    /// By what the kernel knows the memory that it shares.
    inode: u64,
    /// When the process was started, in clock ticks since boot.
    since: u64,
    /// What it tells of what the program executes, if it does.
    recording: Mutex<Option<Arc<Recording>>>,
    /// Whether nobody executes anything there any more.
    is_over: AtomicBool,
}

impl Presence {
    /// What it shares with weft.
    pub fn get(&self) -> &CloneControl {
        // SAFETY: it is at least that large, and all that both sides write is atomic.
        unsafe { &*self.shared.as_ptr().cast() }
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
        self.is_over.load(Acquire)
    }

    /// Makes that known.
    pub fn be_over(&self) {
        self.is_over.store(true, Release);
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
            .collect()
    }

    /// Whether it is in a process: not in one that has become another program.
    pub fn is_in(&self, pid: Tid) -> bool {
        proc::maps(pid).is_ok_and(|maps| {
            maps.iter().any(|mapping| mapping.start == self.control && is_control(mapping))
        })
    }

    /// The processes that a process has forked with it.
    pub fn relatives(&self, pid: Tid) -> Vec<Tid> {
        let mut others = crate::weave::relatives(pid, self.inode, self.since);
        others.retain(|&other| self.is_in(other));
        others
    }
}

/// Whether a mapping is what an engine shares with weft.
pub fn is_control(mapping: &proc::Mapping) -> bool {
    mapping.shared && mapping.path == format!("/memfd:{CLONE_NAME} (deleted)")
}

/// Brings the engine into a process, and has all its threads go on in the clone. They must all be stopped,
/// and do so when they are let go.
pub fn bring_in(stopped: &mut Stopped, options: &CloneOptions) -> Result<Presence> {
    let pid = stopped.pid();
    let image = image()?;
    let maps = proc::maps(pid)?;
    let room = Room::find(pid, &maps)?;
    let image_length = (image.bytes.len() as u64).next_multiple_of(PAGE);
    let shared_length = (size_of::<CloneControl>() as u64).next_multiple_of(PAGE);
    let desk_length = Desk::length(stopped.threads().len(), 0);
    let length = image_length + shared_length;
    let base = place::find(pid, &maps, length + desk_length)?;
    let control = base + image_length;
    let desk = Desk { at: base + length, length: desk_length };

    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let steps = making_shared(
        CLONE_NAME,
        shared_length,
        vec![
            agent::map_shared(control, shared_length, read_write, 0),
            map_private(base, image_length),
            map_private(desk.at, desk.length),
        ],
    );
    let traveller = permitted_traveller(stopped, &steps)?;
    let pidfd = open_pidfd(pid)?;
    let mut fetch = Fetch::new(pidfd.as_raw_fd());
    let mapped =
        away_trip(stopped, &traveller, &room, &steps, |number, done| fetch.before(number, done))?;
    let outcome = check_outcomes(pid, &mapped).and_then(|()| fetch.memory()).and_then(|shared| {
        let [_, join, leave, forget, weave] = image.entries.map(|entry| base + entry);
        let mut bytes = image.bytes.clone();
        for &(at, value) in &image.relative {
            bytes[at as usize..at as usize + 8].copy_from_slice(&(base.0 + value).to_ne_bytes());
        }
        memory::write(pid, base, &bytes)?;
        let inode = proc::maps(pid)?.iter().find(|m| m.start == control).map_or(0, |m| m.inode);
        let since = proc::stat(pid)?.start_time;
        let recording = Recording::begin(stopped, &room, options.records)?;
        let place = recording.as_ref().map_or(0, |recording| recording.at().0);
        let presence = Presence {
            shared,
            base,
            length,
            control,
            leave,
            forget,
            weave,
            inode,
            since,
            recording: Mutex::new(recording.map(Arc::new)),
            is_over: AtomicBool::new(false),
        };
        presence.get().processes.store(1, Relaxed);
        presence.get().magic.store(CLONE_MAGIC, Release);
        let start = CloneStart {
            control: control.0,
            image: [base.0, control.0],
            cache_size: options.cache_size,
            options: flags(options),
            recording: place,
            mode: options.records.mode(),
        };
        let threads = begin(stopped, &room, &desk, &presence, start)?;
        Ok((presence, join, threads))
    });
    let (presence, join, threads) = match outcome {
        Ok(started) => started,
        Err(error) => {
            // Nobody has been there yet. The first error is the one to report.
            let _ = agent::take_out(stopped, &[(base, length + desk.length)]);
            return Err(error);
        }
    };
    agent::take_out(stopped, &[(desk.at, desk.length)])?;
    for (tid, thread) in threads {
        if let Err(error) = send(stopped, tid, join, thread.record)
            && proc::is_alive(tid)
        {
            return Err(error);
        }
    }
    Ok(presence)
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
    let executable = image.data_start.unwrap_or(image.bytes.len() as u64);
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let protect = [presence.base.0, executable, protection].map(Value::Const).to_vec();
    let before = vec![Step::Call(libc::SYS_mprotect, protect)];
    let errand = Errand { start, before, ..Errand::to(presence.base + image.entries[0]) };
    if !desk.visit(stopped, room, errand, &mut threads)? {
        return Err(Error::new(
            ErrorKind::UnsupportedTarget,
            format!("process {} has no room for the engine", stopped.pid()),
        )
        .why("it has no memory left, or none that is free below two gigabytes"));
    }
    Ok(threads)
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
