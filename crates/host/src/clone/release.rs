//! Taking the engine out of a process: its threads go on in the program's own code.

use super::presence::Presence;
use super::visit::{EngineCall, VisitArea, describe};
use crate::arch::{Registers, Step, Value, VectorState};
use crate::process::proc::{self, Tid};
use crate::process::ptrace;
use crate::process::stopped::{Caution, Stopped, is_weft};
use crate::trip::journey::Traveller;
use crate::trip::place;
use crate::trip::room::Room;
use crate::trip::sharing::{self, MemoryRange, map_private, removing, run_by, run_checked};
use crate::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};
use weft_abi::recording::RECORDING_NAME;
use weft_abi::{CloneThread, VALUES_NAME, busy};

/// How long threads may take to come to where they can leave.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a thread that must not be stopped where it is.
const REST: Duration = Duration::from_millis(2);
/// Threads that may be started while others leave.
const SPARE: usize = 64;

/// Stops all threads of a process, when none of them is where that would be noticed.
pub fn stop(pid: Tid) -> Result<Stopped> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stopped = Stopped::stop_all_in_clone(pid, Caution::SpareShortCalls)?;
        let Some((tid, call)) = stopped.not_stopped().next() else {
            await_faults(&mut stopped)?;
            return Ok(stopped);
        };
        stopped.release();
        if Instant::now() > deadline {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("thread {tid} of process {pid} cannot be stopped without harm"),
            )
            .why(format!("it sleeps in {call}"))
            .advice("try again"));
        }
        std::thread::sleep(REST);
    }
}

/// The same, and when none of them is away for a weft that was killed: in the room for trips, or where `is_away` says.
/// Such a thread comes back by itself; until then that room is in use.
pub fn stop_at_home(
    pid: Tid,
    is_away: impl Fn(&Registers, &[proc::Mapping], &Room) -> Result<bool>,
) -> Result<Stopped> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stopped = stop(pid)?;
        let maps = proc::maps(pid)?;
        let mut is_home = true;
        if let Ok(room) = Room::find(pid, &maps) {
            for registers in stopped.threads().values() {
                is_home &=
                    !room.contains(registers.instruction()) && !is_away(registers, &maps, &room)?;
            }
        }
        if is_home {
            return Ok(stopped);
        }
        stopped.release();
        if Instant::now() > deadline {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("a thread of process {pid} is on its way for a weft that was killed"),
            )
            .why("it has not had its turn since; the program is unharmed")
            .advice("try again"));
        }
        std::thread::sleep(REST);
    }
}

/// Signals of which the kernel has noted where the thread was.
const FAULTS: [i32; 5] = [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];

/// Waits until no thread has a fault to handle yet: it has to do so where it was.
fn await_faults(stopped: &mut Stopped) -> Result<()> {
    loop {
        let is_faulty = |tid: &Tid| proc::is_about_to_get(*tid, &FAULTS);
        let faulty: Vec<Tid> = stopped.threads().keys().copied().filter(is_faulty).collect();
        if faulty.is_empty() {
            return Ok(());
        }
        stopped.let_run(faulty)?;
    }
}

/// Takes the engine out of a process of which all threads are stopped. If that fails, the process goes on
/// from its clone.
pub fn take_out(stopped: &mut Stopped, presence: &Presence) -> Result<()> {
    let room = Room::find(stopped.pid(), &proc::maps(stopped.pid())?)?;
    stopped.stop_before(presence.call());
    let area = set_up(stopped, &room, 0)?;
    let outcome = leave(stopped, presence, &room, &area)
        .and_then(|mut threads| forget(stopped, presence, &room, &area, &mut threads));
    sharing::take_out(stopped, &[(area.at, area.length)]).and(outcome)?;
    // What it shares with targets of its own has the same names.
    if is_weft(stopped.pid()) {
        return Ok(());
    }
    // Nobody measures into it any more, and it counts against the program's limits.
    sharing::take_out(stopped, &measured_into(&proc::maps(stopped.pid())?))
}

/// What an engine measures and records into.
pub fn measured_into(maps: &[proc::Mapping]) -> Vec<MemoryRange> {
    let names = [VALUES_NAME, RECORDING_NAME].map(|name| format!("/memfd:{name} (deleted)"));
    let is_it = |mapping: &&proc::Mapping| mapping.shared && names.contains(&mapping.path);
    maps.iter().filter(is_it).map(|mapping| (mapping.start, mapping.len())).collect()
}

/// Maps memory for a visit, with a message of that many words. The caller takes it out.
pub fn set_up(stopped: &Stopped, room: &Room, message: usize) -> Result<VisitArea> {
    let pid = stopped.pid();
    let length = VisitArea::length(stopped.threads().len() + SPARE, message);
    let area = VisitArea { at: place::find(pid, &proc::maps(pid)?, length)?, length };
    let steps = [map_private(area.at, area.length)];
    run_checked(stopped, room, &steps)?;
    Ok(area)
}

/// Waits until all threads can leave, and finds out where they are in the program.
fn leave(
    stopped: &mut Stopped,
    presence: &Presence,
    room: &Room,
    area: &VisitArea,
) -> Result<Vec<(Tid, CloneThread)>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut threads = describe(stopped)?;
        let fits = VisitArea::length(threads.len(), 0) <= area.length;
        // One that waits for its vforked child has not stopped yet.
        let are_all = stopped.not_stopped().next().is_none();
        if fits
            && are_all
            && area.visit(stopped, room, EngineCall::to(presence.leave), &mut threads)?
        {
            return Ok(threads);
        }
        if !fits || Instant::now() > deadline {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("process {} does not come out of its clone", stopped.pid()),
            )
            .why("its threads are busy, or it starts too many new ones")
            .advice("try again: it runs on as before"));
        }
        let_busy_run(stopped, &threads)?;
    }
}

/// Lets threads run a little that the engine says are busy.
pub fn let_busy_run(stopped: &mut Stopped, threads: &[(Tid, CloneThread)]) -> Result<()> {
    let busy = threads.iter().filter(|(_, thread)| thread.is_busy == busy::RUNNING);
    let busy = busy.map(|&(tid, _)| tid).collect();
    stopped.let_run(busy)?;
    await_faults(stopped)
}

/// Puts the threads where they are in the program, and takes out what the engine has made. If this weft is killed
/// meanwhile, each thread is either in the clone or out of it with all that it has: what else the kernel has of it is
/// set before its registers, and matters in the clone to nothing but signals, which are the program's again.
fn forget(
    stopped: &mut Stopped,
    presence: &Presence,
    room: &Room,
    area: &VisitArea,
    threads: &mut [(Tid, CloneThread)],
) -> Result<()> {
    let in_clone = |thread: &CloneThread| thread.is_busy != busy::NATIVE;
    for (index, (tid, _)) in threads.iter().enumerate().filter(|(_, one)| in_clone(&one.1)) {
        // The alternate stack lies behind the other things.
        let altstack = std::mem::offset_of!(CloneThread, altstack) as u64;
        let args = [(area.place_of(index) + altstack).0, 0].map(Value::Const).to_vec();
        let traveller = Traveller::new(stopped, *tid)?;
        let steps = [Step::Call(libc::SYS_sigaltstack, args)];
        run_by(stopped, &traveller, room, &steps)?;
    }
    for (tid, thread) in threads.iter().filter(|(_, thread)| in_clone(thread)) {
        put(stopped, *tid, thread)?;
    }
    let after = removing(presence.base, presence.length).to_vec();
    let call = EngineCall { after, ..EngineCall::to(presence.forget) };
    if area.visit(stopped, room, call, threads)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Internal, "the engine has not given its memory back"))
}

/// Gives a stopped thread what the program would have.
fn put(stopped: &mut Stopped, tid: Tid, thread: &CloneThread) -> Result<()> {
    let failed = |e: std::io::Error| ptrace::failed("move", tid, &e);
    let Some(mut registers) = stopped.threads().get(&tid).copied() else { return Ok(()) };
    let mut vectors = VectorState { raw: ptrace::vector_state(tid).map_err(failed)? };
    if vectors.xmm() != thread.vectors {
        vectors.set_xmm(&thread.vectors);
        ptrace::set_vector_state(tid, &vectors.raw).map_err(failed)?;
    }
    ptrace::set_signal_mask(tid, thread.mask).map_err(failed)?;
    registers.set_general(thread.registers.general);
    let g = &mut registers.0;
    g.rip = thread.registers.rip;
    g.eflags = thread.registers.rflags;
    g.orig_rax = u64::MAX;
    g.gs_base = thread.gs_base;
    stopped.redirect(tid, registers)
}
