//! Visits to the engine: a stopped thread asks it something on weft's behalf.

use crate::arch::{Registers, Step, VectorState};
use crate::base::page::PAGE;
use crate::process::proc::Tid;
use crate::process::stopped::Stopped;
use crate::process::{memory, ptrace};
use crate::trip::room::Room;
use crate::trip::sharing::{check_outcomes, run};
use crate::{Result, TargetAddr};
use weft_abi::{CloneRegisters, CloneStart, CloneThread, CloneVisit};

/// What the engine may use of stack on a visit.
const STACK: u64 = 256 << 10;

/// A call of an entry point of the engine, by a thread on a trip.
pub struct EngineCall {
    /// The entry point.
    pub entry: TargetAddr,
    /// With what the engine starts, if that is what it is for.
    pub start: CloneStart,
    /// What the thread does before it goes in, and after it.
    pub before: Vec<Step>,
    pub after: Vec<Step>,
    /// What is to be woven, if that is what it is for.
    pub message: Vec<u64>,
}

impl EngineCall {
    /// Nothing but the visit.
    pub fn to(entry: TargetAddr) -> Self {
        let start = CloneStart::default();
        Self { entry, start, before: Vec::new(), after: Vec::new(), message: Vec::new() }
    }
}

/// Memory of the target through which host and engine exchange what they know of threads.
#[derive(Clone, Copy, Debug)]
pub struct VisitArea {
    pub at: TargetAddr,
    pub length: u64,
}

impl VisitArea {
    /// How long one is for that many threads, and a message of that many words.
    pub fn length(threads: usize, message: usize) -> u64 {
        let list = size_of::<CloneVisit>() + threads * size_of::<CloneThread>() + message * 8;
        (list as u64).next_multiple_of(PAGE) + STACK
    }

    /// Where the engine finds a thread.
    pub fn place_of(&self, index: usize) -> TargetAddr {
        self.at + (size_of::<CloneVisit>() + index * size_of::<CloneThread>()) as u64
    }

    /// Sends one of the stopped threads to the engine with a list of threads, and brings that list up to
    /// date. Returns whether the engine has done what it was asked for.
    pub fn visit(
        &self,
        stopped: &Stopped,
        room: &Room,
        call: EngineCall,
        threads: &mut [(Tid, CloneThread)],
    ) -> Result<bool> {
        let EngineCall { entry, start, before, after, message } = call;
        let pid = stopped.pid();
        let (count, words) = (threads.len() as u64, message.len() as u64);
        let visit = CloneVisit { threads: count, is_done: 0, start, message: words };
        let mut bytes = bytes_of(&visit).to_vec();
        bytes.extend(threads.iter().flat_map(|(_, thread)| bytes_of(thread)));
        bytes.extend(message.iter().flat_map(|word| word.to_ne_bytes()));
        memory::write(pid, self.at, &bytes)?;
        let stack = self.at + self.length;
        let visiting = Step::Visit { entry, control: self.at, slot: self.at, stack };
        // What the engine calls itself is its own business.
        let (first, last) = (before.len(), after.len());
        let steps: Vec<Step> = before.into_iter().chain([visiting]).chain(after).collect();
        let outcomes = run(stopped, room, &steps)?;
        check_outcomes(pid, &outcomes[..first.min(outcomes.len())])?;
        check_outcomes(pid, &outcomes[outcomes.len().saturating_sub(last)..])?;
        let bytes = memory::read(pid, self.at, bytes.len())?;
        let (visit, rest) = bytes.split_at(size_of::<CloneVisit>());
        for ((_, thread), bytes) in threads.iter_mut().zip(rest.chunks(size_of::<CloneThread>())) {
            *thread = from_bytes(bytes);
        }
        Ok(from_bytes::<CloneVisit>(visit).is_done != 0)
    }
}

/// What all stopped threads have, for the engine.
pub fn describe(stopped: &Stopped) -> Result<Vec<(Tid, CloneThread)>> {
    let threads = stopped.threads().iter();
    threads.map(|(&tid, &registers)| Ok((tid, describe_one(tid, registers)?))).collect()
}

fn describe_one(tid: Tid, registers: Registers) -> Result<CloneThread> {
    let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
    let settled = registers.settled();
    let g = &settled.0;
    let raw = ptrace::vector_state(tid).map_err(failed)?;
    let area = ptrace::rseq_area(tid);
    Ok(CloneThread {
        registers: CloneRegisters { general: settled.general(), rip: g.rip, rflags: g.eflags },
        gs_base: g.gs_base,
        mask: ptrace::signal_mask(tid).map_err(failed)?,
        area: area.map_or(0, |(area, _)| area.0),
        signature: area.map_or(0, |(_, signature)| signature.into()),
        vectors: VectorState { raw }.xmm(),
        ..CloneThread::default()
    })
}

/// What is told of by plain numbers.
trait Plain: Copy {}
impl Plain for CloneVisit {}
impl Plain for CloneThread {}

fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: plain numbers without gaps.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn from_bytes<T: Plain>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as many bytes, and any of them are plain numbers.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}
