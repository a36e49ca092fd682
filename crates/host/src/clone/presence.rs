//! An engine in a process, and in those that the process has forked.

use super::futex;
use super::losses::Losses;
use super::members::Members;
use super::recording::Recording;
use crate::arch::Registers;
use crate::base::page::PAGE;
use crate::process::memory;
use crate::process::proc::Tid;
use crate::trip::image::{ENGINE, Freestanding};
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::ffi::OsStr;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use weft_abi::{
    CLONE_THREAD_SIZE, COUNTER_FORBIDDEN, CloneControl, EXEC_COUNT, ExecRequest, FOLDER_SIZE,
    REPORTS_SIZE,
};

/// The entry points of the engine: start, join, leave, forget everything, weave.
const ENTRIES: [&str; 5] = [
    "weft_clone_start",
    "weft_clone_join",
    "weft_clone_leave",
    "weft_clone_forget",
    "weft_clone_weave",
];

pub fn image() -> Result<&'static Freestanding<5>> {
    static IMAGE: LazyLock<Result<Freestanding<5>, String>> =
        LazyLock::new(|| Freestanding::parse(ENGINE, ENTRIES));
    IMAGE.as_ref().map_err(|why| failed("the engine that is built into weft is broken", why))
}

/// How much memory the engine takes, and right behind it what it shares with weft.
pub fn lengths(image: &Freestanding<5>) -> [u64; 2] {
    [image.bytes.len(), size_of::<CloneControl>()].map(|size| (size as u64).next_multiple_of(PAGE))
}

/// An engine in a process, and in those that the process has forked.
#[derive(Debug)]
pub struct Presence {
    pub shared: MmapMut,
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
    /// Which requests are being served.
    pub serving: [AtomicBool; EXEC_COUNT],
    /// What it records of what the program executes, if it does.
    pub(super) recording: Mutex<Option<Arc<Recording>>>,
    /// Whether nobody executes anything there any more.
    pub(super) is_over: AtomicBool,
    /// How much of what it has noted is kept: see [`super::keeping`].
    pub(super) kept: AtomicUsize,
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
            kept: AtomicUsize::new(0),
        })
    }

    /// Whether a thread is in the engine for a host: there it is not on the stacks that the engine has for it.
    pub fn is_visited_by(&self, registers: &Registers) -> bool {
        let [in_image, on_stacks] = [
            (registers.instruction() - self.base) < self.length,
            registers.0.rsp.wrapping_sub(registers.0.gs_base) <= CLONE_THREAD_SIZE as u64,
        ];
        in_image && !on_stacks
    }

    /// What it shares with weft.
    pub fn get(&self) -> &CloneControl {
        control_of(&self.shared)
    }

    /// The instruction by which the program's system calls are made.
    pub fn call(&self) -> TargetAddr {
        TargetAddr(self.get().debug.call.load(Relaxed))
    }

    /// What it records of what the program executes, if it does.
    pub fn recording(&self) -> MutexGuard<'_, Option<Arc<Recording>>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody executes anything there any more, as far as is known.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Makes that known.
    pub fn mark_over(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// Sets where it puts its reports.
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

    /// Makes threads leave the engine's lock to the host, or take it again.
    pub fn want(&self, is_wanted: bool) {
        let word = &self.get().is_wanted;
        if word.swap(u32::from(is_wanted), Relaxed) != 0 && !is_wanted {
            futex::wake(word);
        }
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
pub fn control_of(shared: &MmapMut) -> &CloneControl {
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

/// Something that cannot be done with the engine.
pub fn failed(what: &str, why: impl ToString) -> Error {
    Error::new(ErrorKind::Internal, what).why(why.to_string())
}
