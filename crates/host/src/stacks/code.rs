//! The caller of code that has no unwind rules: by its instructions, or else by its frame pointer.

use crate::TargetAddr;
use crate::base::page::PAGE;
use crate::process::memory;
use crate::process::proc::Tid;
use std::cell::RefCell;
use std::collections::BTreeMap;
use weft_code::{Base, Known, LONGEST, Place, Return, call_number, ends_with_call, returns, spins};

/// How far apart the frames of one stack are at most.
const LARGEST_FRAME: u64 = 64 << 20;
/// How long a call is at most, and so what to look at in front of what it returns to.
const CALL: usize = 8;

/// The instruction that calls the kernel.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The registers that unwinding goes by.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    pub pc: u64,
    pub sp: u64,
    /// Not known of a thread that was left asleep, and of some callers.
    pub bp: Option<u64>,
}

impl Registers {
    fn at(&self, place: Place) -> Option<u64> {
        let base = match place.base {
            Base::StackPointer => self.sp,
            Base::FramePointer => self.bp?,
        };
        base.checked_add_signed(place.offset)
    }
}

/// The code of a process, read page by page when it is asked for.
pub struct Code {
    pid: Tid,
    pages: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Code {
    pub const fn new(pid: Tid) -> Self {
        Self { pid, pages: RefCell::new(BTreeMap::new()) }
    }

    /// The bytes at an address, and how many there are.
    fn at<const COUNT: usize>(&self, address: u64) -> ([u8; COUNT], usize) {
        let (mut bytes, mut length) = ([0; COUNT], 0);
        for byte in &mut bytes {
            let Some(at) = address.checked_add(length as u64) else { break };
            let mut pages = self.pages.borrow_mut();
            let page = pages.entry(at / PAGE).or_insert_with(|| {
                memory::read_while_there(self.pid, TargetAddr(at / PAGE * PAGE), PAGE)
            });
            let Some(&there) = page.get((at % PAGE) as usize) else { break };
            *byte = there;
            length += 1;
        }
        (bytes, length)
    }

    /// Whether the code at an address is in a loop that only waits for another thread.
    pub fn spins(&self, at: u64) -> bool {
        spins(at, |at| self.at::<LONGEST>(at))
    }

    /// The number of the system call from which a thread comes back to an address, if the code says which.
    pub fn call_number(&self, at: u64) -> Option<u32> {
        /// How far in front of the call its number may be set.
        const BEFORE: usize = 32;
        let call = self.call_before(at)?;
        let (bytes, length) = self.at::<BEFORE>(call.checked_sub(BEFORE as u64)?);
        call_number(bytes.get(..length).filter(|_| length == BEFORE)?)
    }

    /// Where the system call is from which a thread comes back to an address; nothing if there is none.
    pub fn call_before(&self, at: u64) -> Option<u64> {
        let call = at.checked_sub(SYSCALL.len() as u64)?;
        let (bytes, length) = self.at::<{ SYSCALL.len() }>(call);
        (length == SYSCALL.len() && bytes == SYSCALL).then_some(call)
    }

    /// Whether a call returns to an address, or Go says so: the first function of a goroutine returns to a call that
    /// ends it, with a `nop` in front.
    fn is_behind_call(&self, at: u64) -> bool {
        const GOROUTINE_ENDS: [u8; 2] = [0x90, 0xe8];
        let Some(before) = at.checked_sub(CALL as u64) else { return false };
        let (bytes, length) = self.at::<{ CALL + 1 }>(before);
        let (call, end) = (bytes.get(..CALL), bytes.get(CALL - 1..));
        length == CALL + 1 && (call.is_some_and(ends_with_call) || end == Some(&GOROUTINE_ENDS[..]))
    }
}

/// What is found of a caller.
pub enum Step {
    /// Its registers when it goes on.
    Caller { registers: Registers, is_guess: bool },
    /// There is none.
    End,
    /// The memory with its return address was not copied.
    Unreadable,
    /// Nothing says where it is.
    Unknown,
}

/// Where a probe goes on with the program: the first address on its way to a return that is not its own.
pub fn behind_probe(code: &Code, from: u64, is_own: impl Fn(u64) -> bool) -> Option<u64> {
    let mut behind = None;
    returns(from, |at| {
        if behind.is_none() && !is_own(at) {
            behind = Some(at);
        }
        // What follows is the program's, and need not be looked at.
        if behind.is_some() { ([0; LONGEST], 0) } else { code.at::<LONGEST>(at) }
    });
    behind
}

/// Finds the caller of where a thread, or a call, goes on.
pub fn without_rules(
    code: &Code,
    registers: &Registers,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let ways = returns(registers.pc, |at| code.at::<LONGEST>(at));
    let mut found: Vec<Registers> = Vec::new();
    for way in &ways {
        let Some(at) = registers.at(way.at).filter(|&at| is_above(registers.sp, at)) else {
            continue;
        };
        let Ok(pc) = read(at) else { return Step::Unreadable };
        if code.is_behind_call(pc)
            && let Some(caller) = caller(registers, way, pc, read)
        {
            found.push(caller);
        }
    }
    if let Some(&first) = found.first() {
        let is_guess = found.iter().any(|one| one.sp != first.sp);
        return Step::Caller { registers: first, is_guess };
    }
    match registers.bp {
        // What starts a thread has no caller, and by convention no frame pointer.
        Some(0) => Step::End,
        Some(bp) if is_above(registers.sp, bp) => {
            let (Ok(pc), Ok(next)) = (read(bp + 8), read(bp)) else { return Step::Unreadable };
            if !code.is_behind_call(pc) || (next != 0 && !is_above(bp, next)) {
                return Step::Unknown;
            }
            let registers = Registers { pc, sp: bp + 16, bp: Some(next) };
            Step::Caller { registers, is_guess: true }
        }
        _ => Step::Unknown,
    }
}

fn is_above(sp: u64, at: u64) -> bool {
    at.is_multiple_of(8) && (sp..sp.saturating_add(LARGEST_FRAME)).contains(&at)
}

fn caller(
    registers: &Registers,
    way: &Return,
    pc: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Registers> {
    let bp = match way.frame_pointer {
        None => None,
        Some(Known::Is(place)) => registers.at(place),
        Some(Known::In(place)) => registers.at(place).and_then(|at| read(at).ok()),
    };
    Some(Registers { pc, sp: registers.at(way.stack_pointer)?, bp })
}
