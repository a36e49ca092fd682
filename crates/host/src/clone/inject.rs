//! Bringing the engine into a process, and its threads into the engine.
//!
//! The engine is built by a thread on a trip ([`crate::trip::journey`]): until the threads are sent to join it,
//! nothing of the process has changed but that it has more memory.

use super::members::Members;
use super::options::{CloneOptions, Records};
use super::presence::{Presence, control_of, failed, image, lengths};
use super::recording::Recording;
use super::tables::{TablePlace, find_place};
use super::visit::{EngineCall, VisitArea, describe};
use crate::arch::cpu::picks_bits;
use crate::arch::{Step, Value};
use crate::process::limits::{self, Needs};
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use crate::process::{memory, ptrace, seccomp};
use crate::store::learnt;
use crate::trip::image::engine_hash;
use crate::trip::place;
use crate::trip::room::Room;
use crate::trip::sharing::{self, Sharing, map_private, removing, run_checked};
use crate::visited::owner::sign;
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::fs;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use weft_abi::recording::{RECORDING_SIZE, STRIPE_SIZE};
use weft_abi::{
    CLONE_MAGIC, CLONE_NAME, CloneControl, CloneStart, CloneThread, EXEC_COUNT, option,
    region_words,
};

const ALL_SIGNALS: u64 = u64::MAX;
/// How many mappings the engine may begin with that were not there before.
const SPARE: usize = 16;

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

/// Fails if a seccomp filter over a thread forbids a system call that the engine makes. Returns whether there is a
/// filter at all.
fn refuse_filters(stopped: &Stopped) -> Result<bool> {
    let calls = ENGINE_CALLS.map(|(number, first)| seccomp::Call::new(number, &[first as u64]));
    let is_filtered = seccomp::is_over_any_thread(stopped.pid());
    let mut threads = stopped.threads().keys().filter(|_| is_filtered);
    threads.try_for_each(|&tid| seccomp::examine(tid, &calls))?;
    Ok(is_filtered)
}

/// Brings the engine into a process, and has all its threads go on in the clone. They must all be stopped,
/// and do so when they are let go.
pub fn bring_in(stopped: &mut Stopped, options: &CloneOptions, number: u64) -> Result<Presence> {
    let pid = stopped.pid();
    refuse_fault_handlers(pid)?;
    let is_filtered = refuse_filters(stopped)?;
    let image = image()?;
    let maps = proc::maps(pid)?;
    let room = Room::find(pid, &maps)?;
    let [image_length, shared_length] = lengths(image);
    // What is mapped, as the engine is told of it, with what is mapped for the engine.
    let most = 3 * (maps.len() + SPARE);
    let visit_area_length = VisitArea::length(stopped.threads().len(), most);
    let length = image_length + shared_length;
    let base = place::find(pid, &maps, length + visit_area_length)?;
    let control = base + image_length;
    let area = VisitArea { at: base + length, length: visit_area_length };

    limits::check(pid, needs(stopped.threads().len() as u64, options.records))?;
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let sharing = Sharing::new(
        CLONE_NAME,
        shared_length,
        vec![sharing::map_shared(control, shared_length, read_write, 0)],
    );
    // A weft that finds it knows whose it is, and what else there may be: see `reclaim`.
    let (shared, _) = sharing.make_signed(stopped, &room, |shared| {
        let control = control_of(shared);
        control.engine.store(engine_hash(), Relaxed);
        control.visit_area_length.store(area.length, Relaxed);
        control.every_signal.store(ALL_SIGNALS, Relaxed);
        sign(&control.owner)?;
        control.magic.store(CLONE_MAGIC, Release);
        Ok(())
    })?;
    let map = [map_private(base, image_length), map_private(area.at, area.length)];
    let started = note(stopped, &room, &map, control, offset_of!(CloneControl, is_mapped))
        .and_then(|()| {
            let place = Place { base, length, control, number, is_filtered };
            start(stopped, &room, &area, options, place, shared)
        });
    let (presence, threads) = match started {
        Ok(started) => started,
        Err(error) => {
            // Nobody has been there yet. The first error is the one to report.
            let _ = sharing::take_out(stopped, &[(base, length + area.length)]);
            return Err(error);
        }
    };
    let join = base + image.entries[1];
    let clear = removing(area.at, area.length);
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

/// Sends a thread to take steps and to note in a field of the control block that it has taken them, on one trip: it makes
/// that without weft, too. What it writes is its signal mask, which blocks everything on a trip (or is made to, where weft is killed
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
    run_checked(stopped, room, &steps)
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

/// What it takes to map clones from files as well: they are not mapped where that is much.
fn needs_with_files() -> Needs {
    const FILES: Needs = Needs { address_space: 4 << 30, data: 1 << 30, mappings: 2048, memory: 0 };
    FILES
}

/// Where an engine goes.
struct Place {
    base: TargetAddr,
    length: u64,
    control: TargetAddr,
    /// Its number among those of its family.
    number: u64,
    /// Whether a seccomp filter is over the program.
    is_filtered: bool,
}

/// Builds the engine in memory that is there. Returns it, and the threads as it knows them. When it fails,
/// there is nothing more in the process than before.
fn start(
    stopped: &Stopped,
    room: &Room,
    area: &VisitArea,
    options: &CloneOptions,
    Place { base, length, control, number, is_filtered }: Place,
    shared: MmapMut,
) -> Result<(Presence, Vec<(Tid, CloneThread)>)> {
    let pid = stopped.pid();
    let image = image()?;
    let [_, _, leave, forget, weave] = image.entries.map(|entry| base + entry);
    // Addresses stand at its end only: not all of a megabyte need be copied for them.
    let first = image.relative.iter().map(|&(at, _)| at).min().unwrap_or(image.bytes.len() as u64);
    let (same, data) = image.bytes.split_at(first as usize);
    let mut data = data.to_vec();
    for &(at, value) in &image.relative {
        let at = (at - first) as usize;
        data[at..at + 8].copy_from_slice(&(base.0 + value).to_ne_bytes());
    }
    memory::write(pid, base, same)?;
    memory::write(pid, base + first, &data)?;
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
        kept: AtomicUsize::new(0),
    };
    presence.get().processes.store(1, Relaxed);
    let has_room = || limits::check(pid, needs_with_files()).is_ok();
    if let Some(folder) = options.folder.as_ref().filter(|_| !is_filtered && has_room()) {
        learnt::prepare(&presence.get().learnt, &folder.all(), &proc::maps(pid)?);
    }
    let start = CloneStart {
        control: control.0,
        image: [base.0, control.0],
        cache_size: options.cache_size,
        options: flags(options, is_filtered),
        recording: recorded.map_or(0, |(at, _)| at.0),
        mode: options.records.mode(),
        tables,
        reserved,
    };
    match begin(stopped, room, area, &presence, start, is_filtered) {
        Ok(threads) => Ok((presence, threads)),
        Err(error) => {
            let _ = sharing::take_out(stopped, recorded.as_slice());
            Err(error)
        }
    }
}

fn flags(options: &CloneOptions, is_filtered: bool) -> u64 {
    let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    flag(!options.sees_changes, option::BLIND)
        | flag(!options.follows, option::STAY)
        | flag(options.in_step, option::IN_STEP)
        | flag(picks_bits(), option::PICKS_BITS)
        | flag(!is_filtered, option::HUGE_PAGES)
}

/// Builds the engine. Returns the threads as it knows them.
fn begin(
    stopped: &Stopped,
    room: &Room,
    area: &VisitArea,
    presence: &Presence,
    start: CloneStart,
    is_filtered: bool,
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
    if !is_filtered {
        let mode = presence.control + offset_of!(CloneControl, counter_mode) as u64;
        let question = sharing::counter_question(mode).map(Value::Const).to_vec();
        before.push(Step::Call(libc::SYS_prctl, question));
    }
    let message: Vec<u64> = proc::maps(stopped.pid())?.iter().flat_map(described).collect();
    if VisitArea::length(threads.len(), message.len()) > area.length {
        return Err(failed("there is no room to say what is mapped", "there is too much of it"));
    }
    let entry = presence.base + image.entries[0];
    let call = EngineCall { start, before, message, ..EngineCall::to(entry) };
    if !area.visit(stopped, room, call, &mut threads)? {
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

/// Sends a thread on in the engine.
fn send(stopped: &mut Stopped, tid: Tid, join: TargetAddr, record: u64) -> Result<()> {
    let Some(home) = stopped.threads().get(&tid) else { return Ok(()) };
    let mut there = home.at(join);
    there.set_first_argument(record);
    stopped.redirect(tid, there)?;
    ptrace::set_signal_mask(tid, ALL_SIGNALS).map_err(|e| ptrace::failed("move", tid, &e))
}
