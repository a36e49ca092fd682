//! Copies what unwinding needs of threads, while they stand still or sleep.

use super::engine::{Place, Seen};
use crate::TargetAddr;
use crate::arch::{Registers, SleepingCall, may_be_cut_short};
use crate::process::memory;
use crate::process::proc::{self, Tid};

/// How often to look at a thread that sleeps and wakes.
const LOOKS: usize = 8;
pub const AWAKE: &str = "it woke each time that it was looked at";

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
    /// Whether that may have come back with less than it was asked for, as the thread was stopped.
    pub is_shortened: bool,
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

impl Captured {
    /// A thread that is stopped.
    pub fn stopped(
        pid: Tid,
        tid: Tid,
        registers: &Registers,
        place: Place,
        top: u64,
        more: &[(TargetAddr, u64)],
    ) -> Self {
        let g = &registers.0;
        let mut one = Self { tid, pc: g.rip, sp: g.rsp, bp: Some(g.rbp), ..Self::default() };
        // It is stopped on its way out of the call that it will go back to.
        if (g.orig_rax as i64) >= 0 {
            let args = [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9];
            one.call = Some((g.orig_rax, args));
            let call = SleepingCall { number: g.orig_rax as i64, args };
            one.is_shortened = may_be_cut_short(&call, g.rax as i64);
        }
        one.copy_at(place, pid, top, more);
        one
    }

    /// Copies it with the registers that the program has.
    pub fn copy_at(&mut self, place: Place, pid: Tid, top: u64, more: &[(TargetAddr, u64)]) {
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
pub fn sleeper(
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
