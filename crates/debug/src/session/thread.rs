//! What is known of a thread, and what it reports: its [`Halt`].

use super::signal::Info;
use crate::debuggee::Motion;
use weft_abi::halt::Halt;
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Registers, Result, TargetAddr, memory};

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// It runs.
    Running,
    /// It stands still at an instruction of the program's.
    Halted(Halt),
    /// It is in a system call of the program's.
    InCall(Registers),
}

#[derive(Debug)]
pub struct Thread {
    pub place: Place,
    /// Whether it has been asked to stand still, and has not yet.
    pub is_asked: bool,
    /// Whether the kernel is about to stop it where it is, without a signal; and whether it has.
    pub is_stopping: bool,
    pub is_stopped: bool,
    /// Whether it has just been brought to the engine, and stands still without being asked.
    pub is_beginning: bool,
    /// Whether it is on its way to a system call that the kernel keeps for it, and forgets when a handler returns:
    /// the kernel stops it when it is there.
    pub is_resuming: bool,
    /// Whether it is to be asked there.
    pub is_bound: bool,
    /// A signal that the program does not handle, and that is reported to the debugger first.
    pub withheld: Option<Info>,
    /// The signal with which it was stopped in a system call.
    pub interrupted_by: Option<Info>,
    /// Whether that was not reported yet: a step that has ended there was reported before it.
    pub is_unreported: bool,
    /// The information that the debugger has set for a signal.
    pub described: Option<Info>,
    /// A signal that the debugger knows of, and that is on its way once more.
    pub let_through: Option<i32>,
    /// Its information.
    pub let_through_as: Option<Info>,
    /// What the debugger believes the number of its system call to be.
    pub call: u64,
    /// How it was last told to go on, and out of which system call.
    pub motion: Motion,
    pub left_call: u64,
    /// Whether a system call that it is in was made by a step.
    pub is_call_stepped: bool,
    /// Whether the end of that is to be reported, and whether it was.
    pub is_call_caught: bool,
    pub is_end_reported: bool,
    /// Whether it was last stopped where it has made a process.
    pub is_forking: bool,
}

impl Thread {
    pub fn new() -> Self {
        Self {
            place: Place::Running,
            is_asked: false,
            is_stopping: false,
            is_stopped: false,
            is_beginning: false,
            is_resuming: false,
            is_bound: false,
            withheld: None,
            interrupted_by: None,
            is_unreported: false,
            described: None,
            let_through: None,
            let_through_as: None,
            call: u64::MAX,
            motion: Motion::Continue,
            left_call: u64::MAX,
            is_call_stepped: false,
            is_call_caught: false,
            is_end_reported: false,
            is_forking: false,
        }
    }

    /// It stands in a system call, and perhaps before a signal.
    pub fn stop_in_call(&mut self, registers: Registers, signal: Option<Info>) {
        self.place = Place::InCall(registers);
        self.call = registers.0.orig_rax;
        self.interrupted_by = signal;
        (self.is_beginning, self.is_resuming, self.is_bound) = (false, false, false);
        (self.is_unreported, self.is_forking, self.is_stopped) = (false, false, false);
    }

    /// Whether its step is over where it is.
    pub fn has_stepped(&self, pc: u64) -> bool {
        match self.motion {
            Motion::Continue => false,
            Motion::Step => true,
            Motion::StepWithin(start, end) => !(start..end).contains(&pc),
        }
    }

    /// The signal that it was stopped for, as far as the debugger knows.
    pub fn signal(&self) -> Option<Info> {
        self.described.or(self.withheld).or(self.interrupted_by.filter(|_| !self.is_unreported))
    }
}

/// Why a thread stands still, as its engine reports it.
pub fn read_halt(tid: Tid, place: TargetAddr) -> Result<Halt> {
    let words = memory::words(&memory::read(tid, place, size_of::<Halt>())?);
    let [reason, about, context, info, gs_base, motion, start, end, signal, told, heard] =
        words[..]
    else {
        return Err(no_thread(tid));
    };
    let range = [start, end];
    Ok(Halt { reason, about, context, info, gs_base, motion, range, signal, told, heard })
}

/// Writes how a thread is to go on.
pub fn write_halt(tid: Tid, place: TargetAddr, halt: &Halt) -> Result<()> {
    let Halt { reason, about, context, info, gs_base, motion, range, signal, told, heard } = *halt;
    let [start, end] = range;
    let words = [reason, about, context, info, gs_base, motion, start, end, signal, told, heard];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    memory::write(tid, place, &bytes)
}

pub fn no_thread(tid: Tid) -> Error {
    Error::new(ErrorKind::TargetGone, format!("there is no thread {tid}"))
        .why("it has ended, or never was one of the program's")
}
