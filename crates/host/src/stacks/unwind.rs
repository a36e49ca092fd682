//! From a thread's registers and memory to the calls that it is in.

use super::capture::Captured;
use super::code::{Code, Registers, Step, behind_probe, without_rules};
use super::stack::{Frame, FrameKind, Stack};
use super::tables::{Piece, Rules, tables};
use crate::TargetAddr;
use crate::base::page::PAGE;
use crate::process::memory;
use crate::process::modules::Module;
use crate::process::proc::{self, Tid};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, FrameAddress, Unwinder};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use weft_abi::PROBES_NAME;

/// How many calls are listed at most: one that calls itself without end has no more to say.
const DEEPEST: usize = 4096;

/// What a signal handler returns to, `mov rax, 15; syscall`: all libraries have it so, and debuggers know it by that.
pub const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// What stands for a frame pointer that is not known: nothing can be read there. Zero would be the end of a stack.
const UNKNOWN: u64 = 8;

const UNREADABLE: &str = "memory cannot be read";
const NO_TABLES: &str = "nothing says where the caller of the last one is";

/// Why a stack ends where only the frame pointer leads on, of a thread that was left asleep.
pub const NO_FRAME_POINTER: &str = "its frame pointer is not known where it sleeps";

/// The unwind tables of a process.
pub struct Unwinding {
    pid: Tid,
    /// Whether addresses are those that signal handlers return to.
    signal_returns: RefCell<BTreeMap<u64, bool>>,
    unwinder: UnwinderX86_64<Piece>,
    rules: Rules,
    /// Whether there are rules for addresses.
    covered: RefCell<BTreeMap<u64, bool>>,
    code: Code,
    cache: RefCell<CacheX86_64>,
    /// Where weft's own probes are.
    probes: Vec<Range<u64>>,
}

impl Unwinding {
    /// Reads those of its modules.
    pub fn new(pid: Tid, modules: &[Module]) -> Self {
        let (mut unwinder, mut rules) = (UnwinderX86_64::new(), Rules::default());
        for module in modules {
            if let Some(sections) = tables(pid, module) {
                rules.add(module, &sections);
                let range = module.start.0..module.end.0;
                unwinder.add_module(framehop::Module::new(
                    module.path.clone(),
                    range,
                    module.bias,
                    sections,
                ));
            }
        }
        Self {
            pid,
            unwinder,
            rules,
            signal_returns: RefCell::default(),
            covered: RefCell::default(),
            code: Code::new(pid),
            cache: RefCell::new(CacheX86_64::new()),
            probes: probes(pid),
        }
    }

    /// The calls that a thread is in, and where memory was missing that was not copied.
    pub fn unwind(&self, thread: &Captured) -> (Stack, Option<TargetAddr>) {
        if let Some(cut) = thread.hidden {
            let call = thread.call;
            return (Stack { tid: thread.tid, frames: Vec::new(), cut: Some(cut), call }, None);
        }
        let mut missing = None;
        let mut read = |at: u64| {
            let word = thread.word(at);
            if word.is_none() {
                missing = Some(TargetAddr(at));
            }
            word.ok_or(())
        };
        let mut cache = self.cache.borrow_mut();
        let mut registers = Registers { pc: thread.pc, sp: thread.sp, bp: thread.bp };
        let (mut kind, mut is_guess) = (FrameKind::Next, false);
        let mut frames = Vec::new();
        let cut = loop {
            if frames.len() == DEEPEST {
                break Some("there are too many");
            }
            let at = registers.pc;
            let is_signal = match kind {
                FrameKind::Return => self.is_signal_return(at),
                _ => self.is_in_signal_return(at),
            };
            if is_signal {
                frames.push(Frame { address: at, kind: FrameKind::Signal, is_guess });
                let Some([pc, sp, bp]) = interrupted(registers.sp, &mut read) else {
                    break Some(UNREADABLE);
                };
                registers = Registers { pc, sp, bp: Some(bp) };
                kind = FrameKind::Next;
                continue;
            }
            frames.push(self.seen_by_program(Frame { address: at, kind, is_guess }));
            let frame = match (kind, NonZeroU64::new(at)) {
                (FrameKind::Return, Some(at)) => FrameAddress::ReturnAddress(at),
                _ => FrameAddress::InstructionPointer(at),
            };
            let is_next = kind == FrameKind::Next;
            kind = FrameKind::Return;
            // Nothing is mapped so low: what was called is no function, and has done nothing yet.
            if is_next && at < PAGE {
                let Ok(pc) = read(registers.sp) else { break Some(UNREADABLE) };
                registers = Registers { pc, sp: registers.sp.wrapping_add(8), bp: registers.bp };
                continue;
            }
            if frames.len() == 1
                && let Some(pc) = self.kept_by_vfork(thread)
            {
                registers.pc = pc;
                continue;
            }
            if !self.has_rule(frame.address_for_lookup()) {
                match without_rules(&self.code, &registers, &mut read) {
                    Step::Caller { registers: found, is_guess: guessed } => {
                        registers = found;
                        is_guess |= guessed;
                        continue;
                    }
                    Step::End => break None,
                    Step::Unreadable => break Some(UNREADABLE),
                    Step::Unknown => break Some(NO_TABLES),
                }
            }
            let bp = registers.bp.unwrap_or(UNKNOWN);
            let mut found = UnwindRegsX86_64::new(at, registers.sp, bp);
            match self.unwinder.unwind_frame(frame, &mut found, &mut cache, &mut read) {
                Ok(Some(next)) => {
                    // One that is not known stays so, until a caller's is found in memory.
                    let is_known = registers.bp.is_some() || found.bp() != UNKNOWN;
                    let bp = is_known.then_some(found.bp());
                    registers = Registers { pc: next, sp: found.sp(), bp };
                }
                Ok(None) => break None,
                Err(Error::CouldNotReadStack(_)) => break Some(UNREADABLE),
                Err(_) => break Some(NO_TABLES),
            }
        };
        // Nothing is mapped so low: what pointed there is no stack.
        let missing = missing.filter(|at| cut.is_some() && at.0 >= PAGE);
        let is_without = registers.bp.is_none() && missing.is_none();
        let cut = match cut {
            Some(UNREADABLE | NO_TABLES) if is_without => Some(NO_FRAME_POINTER),
            cut => cut,
        };
        (Stack { tid: thread.tid, frames, cut, call: thread.call }, missing)
    }

    /// Forgets what it has read of the process' memory: code that a program makes itself may be other code by now.
    pub fn forget_code(&mut self) {
        self.signal_returns = RefCell::default();
        self.code = Code::new(self.pid);
        self.probes = probes(self.pid);
    }

    /// Whether the code at an address is in a loop that only waits for another thread.
    pub fn spins(&self, at: u64) -> bool {
        self.code.spins(at)
    }

    /// The system call that a thread is in that comes back from the kernel to an address: its number, if the code says
    /// which it is; nothing if it makes none.
    pub fn call_before(&self, at: u64) -> Option<Option<u32>> {
        self.code.call_before(at).map(|_| self.code.call_number(at))
    }

    /// What a thread in `vfork` returns to. The child has the stack meanwhile: so the libraries keep it in a register, which
    /// is one that the kernel shows as an argument, and push it back when the call has returned.
    fn kept_by_vfork(&self, thread: &Captured) -> Option<u64> {
        let (_, arguments) = thread.call.filter(|&(number, _)| number == libc::SYS_vfork as u64)?;
        let code = memory::read(self.pid, TargetAddr(thread.pc), 1).ok()?;
        const PUSHES: [u8; 3] = [0x57, 0x56, 0x52];
        let register = PUSHES.iter().position(|push| code.first() == Some(push))?;
        arguments.get(register).copied()
    }

    /// A frame as the program would have it: where a probe goes on, if it is in one.
    fn seen_by_program(&self, frame: Frame) -> Frame {
        let is_own = |at: u64| self.probes.iter().any(|range| range.contains(&at));
        if !is_own(frame.address) {
            return frame;
        }
        match behind_probe(&self.code, frame.address, is_own) {
            Some(address) => Frame { address, kind: FrameKind::Next, ..frame },
            None => Frame { kind: FrameKind::Probe, ..frame },
        }
    }

    /// Whether there is a rule for an address.
    fn has_rule(&self, at: u64) -> bool {
        *self.covered.borrow_mut().entry(at).or_insert_with(|| self.rules.cover(at))
    }

    /// Whether a thread is where a signal handler has returned to: at one of two instructions, or in the call that the
    /// second one makes.
    fn is_in_signal_return(&self, at: u64) -> bool {
        const SECOND: u64 = 7;
        [0, SECOND, SIGNAL_RETURN.len() as u64]
            .iter()
            .any(|&length| at.checked_sub(length).is_some_and(|start| self.is_signal_return(start)))
    }

    /// Whether a signal handler returns here.
    fn is_signal_return(&self, at: u64) -> bool {
        let mut known = self.signal_returns.borrow_mut();
        *known.entry(at).or_insert_with(|| {
            memory::read(self.pid, TargetAddr(at), SIGNAL_RETURN.len())
                .is_ok_and(|code| code == SIGNAL_RETURN)
        })
    }
}

/// Where code of probes is mapped.
fn probes(pid: Tid) -> Vec<Range<u64>> {
    let maps = proc::maps(pid).unwrap_or_default();
    let name = format!("/memfd:{PROBES_NAME} (deleted)");
    let own = maps.iter().filter(|one| one.execute && one.path == name);
    own.map(|one| one.start.0..one.end.0).collect()
}

/// Where a thread was when a signal came: its instruction, stack and frame pointers, from the frame that the kernel has
/// left for the handler.
fn interrupted(stack: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<[u64; 3]> {
    /// Of the kernel's `ucontext`, which the stack pointer points to when the handler has returned.
    const REGISTERS: [u64; 3] = [0xa8, 0xa0, 0x78];
    let mut values = [0; 3];
    for (value, offset) in values.iter_mut().zip(REGISTERS) {
        *value = read(stack.checked_add(offset)?).ok()?;
    }
    Some(values)
}
