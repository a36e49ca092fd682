//! Copies what unwinding needs of threads, while they stand still.

use super::engine::{Cloning, Place, Seen};
use super::python::{PythonLayout, PythonStacks, python_stacks};
use crate::process::memory;
use crate::process::proc::{self, Tid};
use crate::process::stopped::{Caution, Pause, Stopped};
use crate::{Result, TargetAddr};
use std::collections::BTreeMap;

/// How often to look at a thread that sleeps and wakes.
const LOOKS: usize = 8;
const AWAKE: &str = "it woke each time that it was looked at";

/// What unwinding needs of a thread.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    pub tid: Tid,
    pub pc: u64,
    pub sp: u64,
    /// Not known of a thread that was left asleep.
    pub bp: Option<u64>,
    /// Pieces of its memory.
    pub pieces: Vec<(TargetAddr, Vec<u8>)>,
    /// The system call that it is in, if the kernel shows it.
    pub call: Option<(u64, [u64; 6])>,
    /// Why nothing is known of it.
    pub hidden: Option<&'static str>,
}

impl Captured {
    /// A word of its memory, if that was copied.
    pub fn word(&self, at: u64) -> Option<u64> {
        self.pieces.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(at.checked_sub(start.0)?).ok()?;
            let word = bytes.get(offset..offset.checked_add(8)?)?;
            word.first_chunk().copied().map(u64::from_le_bytes)
        })
    }
}

/// All threads of a process.
#[derive(Clone, Debug)]
pub struct Capture {
    pub threads: Vec<Captured>,
    pub pause: Pause,
    pub python: Option<PythonStacks>,
}

/// Copies the threads of a process, of each the top of its stack, and some more where that was found to be wanted. A
/// thread that would notice if it was stopped is left asleep.
pub fn capture(
    stopped: &mut Stopped,
    pid: Tid,
    top: u64,
    wanted: &BTreeMap<Tid, Vec<(TargetAddr, u64)>>,
    python: Option<&PythonLayout>,
    cloning: &Cloning,
) -> Result<Capture> {
    *stopped = Stopped::stop_all(pid, Caution::SpareShortCalls)?;
    let places = cloning.settle(stopped)?;
    let more = |tid: &Tid| wanted.get(tid).map_or(&[][..], Vec::as_slice);
    let awake = stopped.threads().iter().map(|(&tid, registers)| {
        let g = &registers.0;
        let mut one =
            Captured { tid, pc: g.rip, sp: g.rsp, bp: Some(g.rbp), ..Captured::default() };
        // It is stopped on its way out of the call that it will go back to.
        if (g.orig_rax as i64) >= 0 {
            one.call = Some((g.orig_rax, [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9]));
        }
        one.copy_at(places.get(&tid).copied().unwrap_or_default(), pid, top, more(&tid));
        one
    });
    let mut threads: Vec<Captured> = awake.collect();
    let asleep: Vec<Tid> = stopped.not_stopped().map(|(tid, _)| tid).collect();
    threads.extend(asleep.into_iter().filter_map(|tid| {
        let place = |seen: &Seen| cloning.place(seen);
        sleeper(pid, tid, top, more(&tid), &place)
    }));
    let python = python.map(|layout| python_stacks(pid, layout));
    let pause = stopped.release();
    threads.sort_by_key(|thread| thread.tid);
    Ok(Capture { threads, pause, python })
}

impl Captured {
    /// Copies it with the registers that the program has.
    fn copy_at(&mut self, place: Place, pid: Tid, top: u64, more: &[(TargetAddr, u64)]) {
        match place {
            Place::AsSeen => self.copy(pid, top, more),
            Place::Program(found) => {
                (self.pc, self.sp, self.bp) = (found.pc, found.sp, Some(found.bp));
                self.call = self.call.filter(|_| found.is_calling);
                self.copy(pid, top, more);
                if let Some((at, value)) = found.stacked {
                    self.put(at, value);
                }
            }
            Place::Hidden(why) => {
                self.hidden = Some(why);
                self.call = None;
            }
        }
    }

    /// Puts a word into what was copied.
    fn put(&mut self, at: u64, value: u64) {
        for (start, bytes) in &mut self.pieces {
            let offset = at.checked_sub(start.0).and_then(|offset| usize::try_from(offset).ok());
            let word = offset.and_then(|offset| bytes.get_mut(offset..offset.checked_add(8)?));
            if let Some(word) = word {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    pub fn copy(&mut self, pid: Tid, top: u64, more: &[(TargetAddr, u64)]) {
        let pieces = [(TargetAddr(self.sp), top)].into_iter().chain(more.iter().copied());
        let read = |(at, length)| (at, memory::read_while_there(pid, at, length));
        self.pieces = pieces.map(read).collect();
    }
}

/// A thread that sleeps on: its memory is right if it has slept all the while. One that wakes each time says so;
/// nothing of one that has ended.
fn sleeper(
    pid: Tid,
    tid: Tid,
    top: u64,
    more: &[(TargetAddr, u64)],
    place: &dyn Fn(&Seen) -> Place,
) -> Option<Captured> {
    for _ in 0..LOOKS {
        let Some((pc, sp)) = proc::sleeping_at(tid) else { continue };
        let call = proc::sleeping_call(tid).map(|call| (call.number as u64, call.args));
        let mut one = Captured { tid, pc: pc.0, sp: sp.0, call, ..Captured::default() };
        one.copy_at(place(&Seen::asleep(pc.0, sp.0)), pid, top, more);
        if proc::sleeping_at(tid) == Some((pc, sp)) {
            return Some(one);
        }
    }
    proc::is_alive(tid).then(|| Captured { tid, hidden: Some(AWAKE), ..Captured::default() })
}
