//! The program that a debugger is on: what was set in it, and what is answered beside `gdbstub`.

mod extended;
mod host_io;
mod target;

use crate::beyond::{self, Aside, Concern, Request};
use crate::debuggee::{Breakpoint, Debuggee, Motion, Registers, Watchpoint};
use crate::files::Files;
use crate::registers::{AT_EVERY_STOP, Layout};
use crate::{libraries, signals};
use gdbstub::target::{TargetError, TargetResult};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
pub(crate) use target::{Number, number_of};
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Result};
use weft_symbols::hex;

/// The caller that has started the server.
pub trait Owner {
    /// Starts the program once more.
    fn start_again(&mut self, start: &Start) -> Result<Box<dyn Debuggee>>;

    /// Hears that a process is about to run, or stands still again.
    fn runs(&mut self, _pid: Tid, _is_running: bool) {}

    /// Answers `monitor WORDS` in GDB, while all of the program stands still, if there is one.
    fn monitor(&mut self, words: &str, program: Option<&mut dyn Debuggee>) -> Monitored;

    /// Hears that the debugger asks which libraries there are: some may be new.
    fn loads(&mut self, _program: &mut dyn Debuggee) {}

    /// Hears that a program is about to go on without a debugger.
    fn leaves(&mut self, _program: &mut dyn Debuggee) -> Result<()> {
        Ok(())
    }
}

/// How a program is to be started once more, as far as the debugger says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Another file than before.
    pub file: Option<OsString>,
    /// What follows its name.
    pub words: Vec<OsString>,
    /// Variables that are to have another value, or are not to be there.
    pub variables: BTreeMap<OsString, Option<OsString>>,
    /// Another folder to start in.
    pub directory: Option<PathBuf>,
}

/// What comes of a `monitor` command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitored {
    /// What GDB shows.
    pub text: String,
    /// Whether the program is to go on without a debugger.
    pub detaches: bool,
}

/// What GDB cannot do, in its own numbers.
const NO_SUCH_THING: u8 = 1;
const BAD_ADDRESS: u8 = 14;
const BAD_VALUE: u8 = 22;

/// What the machine is.
const TRIPLE: &str = "x86_64-pc-linux-gnu";

/// How many bytes may be watched at once.
const MOST_WATCHED: u64 = 16 << 20;

/// What GDB looks for to find thread-local variables: how far into a `link_map` its module's number is.
const MODULE_NUMBER: &str = "_thread_db_link_map_l_tls_modid";

/// A program under a debugger.
pub struct Program<'a> {
    debuggee: Option<Box<dyn Debuggee>>,
    /// Whether it ran before the debugger came.
    was_attached: bool,
    /// Whether the debugger stays when a program ends, to start it once more.
    pub(crate) is_extended: bool,
    owner: &'a mut dyn Owner,
    layout: Option<Layout>,
    /// The registers of threads, since the program last stopped.
    registers: HashMap<Tid, Registers>,
    /// By their kind and address: the one kind can be set where the other is.
    breakpoints: BTreeMap<(Kind, u64), Vec<Vec<u8>>>,
    watchpoints: Vec<Watchpoint>,
    /// Whether the program does not know yet of all that was set.
    is_changed: bool,
    /// The conditions of the breakpoint that is about to be set.
    conditions: Vec<Vec<u8>>,
    motions: HashMap<Tid, (Motion, Option<u8>)>,
    /// Whether threads that are not spoken of stay where they are.
    is_locked: bool,
    pub(crate) thread: Tid,
    pub(crate) files: Files,
    libraries: RefCell<String>,
    module_number_offset: Option<u32>,
    /// The signals that it is to get if it stands at one when the debugger goes.
    program_signals: Vec<u8>,
    /// How it is to be started when that is asked for.
    start: Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Software,
    Hardware,
}

impl<'a> Program<'a> {
    /// A program that stands still; `was_attached` if it ran before.
    pub fn new(debuggee: Box<dyn Debuggee>, was_attached: bool, owner: &'a mut dyn Owner) -> Self {
        Self {
            thread: debuggee.pid(),
            debuggee: Some(debuggee),
            was_attached,
            is_extended: false,
            owner,
            layout: None,
            registers: HashMap::new(),
            breakpoints: BTreeMap::new(),
            watchpoints: Vec::new(),
            is_changed: false,
            conditions: Vec::new(),
            motions: HashMap::new(),
            is_locked: false,
            files: Files::default(),
            libraries: RefCell::default(),
            module_number_offset: None,
            program_signals: signals::for_programs(),
            start: Start::default(),
        }
    }

    /// Its process, if there is one.
    pub fn pid(&self) -> Option<Tid> {
        self.debuggee.as_ref().map(|debuggee| debuggee.pid())
    }

    /// What is debugged, if there is something.
    pub fn debuggee(&mut self) -> Option<&mut dyn Debuggee> {
        self.debuggee.as_deref_mut().map(|debuggee| debuggee as &mut dyn Debuggee)
    }

    /// The files that the debugger has open, and what is debugged.
    pub(crate) fn files_and_debuggee(&mut self) -> (&mut Files, Option<&dyn Debuggee>) {
        (&mut self.files, self.debuggee.as_deref().map(|debuggee| debuggee as &dyn Debuggee))
    }

    /// Detaches from the program, if it is there.
    pub fn detach(&mut self) -> Result<()> {
        match self.debuggee.take() {
            Some(mut debuggee) => {
                let left = self.owner.leaves(&mut *debuggee);
                debuggee.detach(&self.program_signals).and(left)
            }
            None => Ok(()),
        }
    }

    /// Ends the program, if it is there.
    pub fn kill(&mut self) {
        if let Some(mut debuggee) = self.debuggee.take() {
            debuggee.kill();
        }
    }

    /// What a debugger has set does not outlive its connection.
    pub(crate) fn forget_wishes(&mut self) {
        self.breakpoints.clear();
        self.watchpoints.clear();
        self.conditions.clear();
        self.is_changed = true;
        self.files = Files::default();
        self.is_extended = false;
        self.module_number_offset = None;
        self.program_signals = signals::for_programs();
        self.start = Start::default();
        if let Some(debuggee) = self.debuggee() {
            debuggee.catch_system_calls(None, false);
            debuggee.pass_signals(&[]);
            debuggee.report_forks(false);
        }
    }

    /// Tells the owner whether the program runs.
    pub(crate) fn tell_owner(&mut self, is_running: bool) {
        if let Some(pid) = self.pid() {
            self.owner.runs(pid, is_running);
        }
    }

    /// The program has ended.
    pub(crate) fn lose(&mut self) {
        self.debuggee = None;
        self.registers.clear();
    }

    /// The program has become another: what was set is not in it.
    pub(crate) fn become_another(&mut self) {
        self.breakpoints.clear();
        self.watchpoints.clear();
        self.is_changed = true;
    }

    /// Takes up what is to be known of a packet.
    pub(crate) fn note(&mut self, aside: Aside) {
        match aside {
            Aside::Thread(0) => self.thread = self.pid().unwrap_or(0),
            Aside::Thread(tid) => self.thread = tid,
            Aside::Conditions(_, conditions) => self.conditions = conditions,
            Aside::Libraries => {
                self.forget_unloaded();
                if let Some(debuggee) = &mut self.debuggee {
                    self.owner.loads(&mut **debuggee);
                }
            }
            Aside::Features | Aside::Nothing => {}
        }
    }

    /// Forgets breakpoints in memory that is not there any more, as natively they go with it: GDB does not take them out.
    fn forget_unloaded(&mut self) {
        let mut breakpoints = std::mem::take(&mut self.breakpoints);
        let before = breakpoints.len();
        breakpoints.retain(|&(_, address), _| self.is_readable(address, 1));
        self.is_changed |= breakpoints.len() < before;
        self.breakpoints = breakpoints;
    }

    /// Whether the debugger wants to hear of processes that the program makes.
    pub(crate) fn report_forks(&mut self, is_wanted: bool) {
        if let Some(debuggee) = self.debuggee() {
            debuggee.report_forks(is_wanted);
        }
    }

    /// The answer to what concerns processes that the program has made; `None` if it concerns the program.
    pub(crate) fn answer_for_children(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (pid, thread) = (self.pid()?, self.thread);
        let children = self.debuggee()?.children();
        let ok = b"OK".to_vec();
        match beyond::concern(packet) {
            Some(Concern::Detach(child)) if child != pid => {
                self.debuggee()?.part_from_child(child, false);
                Some(ok)
            }
            Some(Concern::Kill(child)) if child != pid => {
                self.debuggee()?.part_from_child(child, true);
                Some(ok)
            }
            // A debugger that leaves the parent follows the child.
            Some(Concern::Detach(_)) => {
                let &child = children.first()?;
                Some(self.go_with(child).map_or_else(|error| said(&error), |()| ok))
            }
            Some(Concern::Resume(child)) if children.contains(&child) => {
                self.debuggee()?.part_from_child(child, false);
                Some(said(&beside(child)))
            }
            _ if !children.contains(&thread) => None,
            _ => match packet.first() {
                // What GDB takes out of a child never was in it.
                Some(b'z' | b'Z') => Some(ok),
                Some(b'g' | b'G' | b'p' | b'P') => Some(said(&beside(thread))),
                _ => None,
            },
        }
    }

    fn go_with(&mut self, child: Tid) -> Result<()> {
        if let Some(debuggee) = self.debuggee() {
            debuggee.go_with(child)?;
        }
        self.registers.clear();
        self.thread = child;
        self.is_changed = true;
        Ok(())
    }

    /// The features that the server has beyond those of `gdbstub`.
    pub(crate) fn features(&self) -> String {
        let evaluates = self.debuggee.as_ref().is_some_and(|it| it.evaluates_conditions());
        format!("{}{}", beyond::FEATURES, if evaluates { beyond::CONDITIONS } else { "" })
    }

    /// The answer to what `gdbstub` does not know; `None` if it cannot be given.
    pub(crate) fn answer(&mut self, request: Request) -> Option<Vec<u8>> {
        let ok = || Some(b"OK".to_vec());
        let pid = self.pid();
        let thread = self.thread;
        match request {
            Request::Why => Some(self.why()),
            Request::NoAcknowledgements => ok(),
            Request::WatchReads => Some(Vec::new()),
            Request::PassSignals(numbers) => {
                self.debuggee()?.pass_signals(&signals::all_from_gdb(&numbers));
                ok()
            }
            Request::ProgramSignals(numbers) => {
                self.program_signals = signals::all_from_gdb(&numbers);
                ok()
            }
            Request::Process => {
                let triple = hex(TRIPLE.as_bytes());
                Some(
                    format!("pid:{:x};triple:{triple};endian:little;ptrsize:8;", pid?).into_bytes(),
                )
            }
            Request::Threads(part) => {
                let mut xml = String::from("<threads>");
                for tid in self.debuggee()?.threads() {
                    let name = libraries::escape(self.debuggee()?.thread_name(tid).as_bytes());
                    xml += &format!("<thread id=\"p{:x}.{tid:x}\" name=\"{name}\"/>", pid?);
                }
                Some(part.of((xml + "</threads>").as_bytes()))
            }
            Request::SignalInfo(part) => {
                let info = self.debuggee()?.signal_info(thread).ok()?;
                Some(part.of(&info))
            }
            Request::SetSignalInfo(offset, bytes) => {
                let mut info = self.debuggee()?.signal_info(thread).ok()?;
                let end = offset.checked_add(bytes.len())?;
                info.get_mut(offset..end)?.copy_from_slice(&bytes);
                self.debuggee()?.set_signal_info(thread, &info).ok()?;
                Some(format!("{:x}", bytes.len()).into_bytes())
            }
            Request::Symbol(Some(address)) => {
                let mut field = [0; 12];
                if self.debuggee()?.read(address, &mut field) == field.len() {
                    // Its size, how many there are, and where it is.
                    self.module_number_offset =
                        Some(u32::from_le_bytes(field[8..].try_into().ok()?));
                }
                ok()
            }
            Request::Symbols if self.module_number_offset.is_none() => {
                Some(format!("qSymbol:{}", hex(MODULE_NUMBER.as_bytes())).into_bytes())
            }
            Request::Symbols | Request::Symbol(None) => ok(),
            Request::ThreadLocal { tid, offset, map } => {
                let address = self.thread_local(tid, offset, map)?;
                Some(format!("{address:x}").into_bytes())
            }
        }
    }

    /// Why the program stands still that nobody has had go on yet.
    fn why(&mut self) -> Vec<u8> {
        let Some(pid) = self.pid() else { return b"W00".to_vec() };
        let signal = if self.was_attached { 0 } else { signals::to_gdb(libc::SIGTRAP as u8) };
        let mut answer = format!("T{signal:02x}thread:p{pid:x}.{pid:x};");
        for (number, value) in self.at_every_stop(pid) {
            answer += &format!("{number:02x}:{};", hex(&value));
        }
        answer.into_bytes()
    }

    /// Where a thread has a thread-local variable of a module. The C library keeps a table of the memory
    /// of all modules behind the first word of a thread's own.
    fn thread_local(&mut self, tid: Tid, offset: u64, map: u64) -> Option<u64> {
        const UNALLOCATED: u64 = u64::MAX;
        let thread = self.registers_of(tid).ok()?.fs_base;
        let number_offset = self.module_number_offset;
        let debuggee = self.debuggee()?;
        // A program without a loader is the only module.
        let number = match map {
            0 => 1,
            map => libraries::words::<1>(debuggee, map.checked_add(number_offset?.into())?)?[0],
        };
        let [_, table] = libraries::words(debuggee, thread)?;
        let entry = table.checked_add(number.checked_mul(16)?)?;
        let [start] = libraries::words(debuggee, entry)?;
        (start != UNALLOCATED && start != 0).then(|| start.wrapping_add(offset))
    }

    /// The registers of a thread, which are asked for once after each stop.
    fn registers_of(&mut self, tid: Tid) -> TargetResult<&mut Registers, Self> {
        if !self.registers.contains_key(&tid) {
            let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
            let registers =
                debuggee.registers(tid).map_err(|_| TargetError::Errno(NO_SUCH_THING))?;
            self.registers.insert(tid, registers);
        }
        self.registers.get_mut(&tid).ok_or(TargetError::Errno(NO_SUCH_THING))
    }

    /// How registers are laid out, with those of a thread.
    fn laid_out(&mut self, tid: Tid) -> TargetResult<(&Layout, &mut Registers), Self> {
        self.registers_of(tid)?;
        let registers = self.registers.get_mut(&tid).ok_or(TargetError::Errno(NO_SUCH_THING))?;
        Ok((self.layout.get_or_insert_with(|| Layout::of(registers)), registers))
    }

    /// Finds out how registers are laid out, if there is a program that has some: their description may be asked
    /// for before they are.
    pub(crate) fn lay_out(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = self.laid_out(pid);
        }
    }

    /// Gives the thread what its registers have been changed to.
    fn write_back(&mut self, tid: Tid) -> TargetResult<(), Self> {
        let registers = self.registers.remove(&tid).ok_or(TargetError::Errno(NO_SUCH_THING))?;
        let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        // They are asked for again: not everything can be what one would like it to be.
        debuggee.set_registers(tid, &registers).map_err(|_| TargetError::Errno(BAD_VALUE))
    }

    /// The registers of a thread that GDB wants to know at every stop.
    pub(crate) fn at_every_stop(&mut self, tid: Tid) -> Vec<(usize, Vec<u8>)> {
        let Ok((layout, registers)) = self.laid_out(tid) else { return Vec::new() };
        let value = |number| Some((number, layout.one(number, registers)?));
        AT_EVERY_STOP.into_iter().filter_map(value).collect()
    }

    /// All that the debugger wants the program to stop at.
    fn tell_wishes(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let mut all: Vec<Breakpoint> = Vec::new();
        for (&(_, address), conditions) in &self.breakpoints {
            match all.iter_mut().find(|there| there.address == address) {
                None => all.push(Breakpoint { address, conditions: conditions.clone() }),
                // One of the two without a condition is enough.
                Some(there) if there.conditions.is_empty() || conditions.is_empty() => {
                    there.conditions.clear();
                }
                Some(there) => there.conditions.extend(conditions.iter().cloned()),
            }
        }
        let watchpoints = self.watchpoints.clone();
        if let Some(debuggee) = self.debuggee() {
            debuggee.set_breakpoints(all);
            debuggee.set_watchpoints(watchpoints);
        }
    }

    /// Whether all of some memory is there, and little enough to be watched.
    fn is_readable(&mut self, address: u64, length: u64) -> bool {
        let Some(debuggee) = self.debuggee() else { return false };
        let is_possible =
            (1..=MOST_WATCHED).contains(&length) && address.checked_add(length).is_some();
        is_possible && debuggee.read(address, &mut vec![0; length as usize]) as u64 == length
    }

    fn add_breakpoint(&mut self, kind: Kind, address: u64) -> bool {
        let conditions = std::mem::take(&mut self.conditions);
        self.breakpoints.insert((kind, address), conditions);
        self.is_changed = true;
        true
    }

    fn remove_breakpoint(&mut self, kind: Kind, address: u64) {
        self.is_changed = true;
        self.breakpoints.remove(&(kind, address));
    }
}

/// What is said of a child that GDB wants to have beside its parent.
fn beside(child: Tid) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("process {child} cannot be debugged"))
        .why("weft debugs one process at a time, and none that has borrowed its parent's memory")
        .advice("set detach-on-fork on; where it is a vfork, set follow-fork-mode parent")
}

/// A failure as GDB shows it.
fn said(error: &Error) -> Vec<u8> {
    format!("E.{error}").into_bytes()
}
