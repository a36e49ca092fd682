//! Signals: the kernel tells the engine, and the engine tells the program, with the state that the program
//! would have had.
//!
//! All handlers of the program are the engine's to the kernel. A signal that interrupts the clone is
//! passed on at once: any place in the clone has a state of the program's. One that interrupts the agent
//! waits, with all others blocked, until the thread goes back.

use crate::clone::record::{Thread, stepping};
use crate::clone::state::{self, RAX, RSP, State};
use crate::clone::system::{self, EINVAL};
use crate::clone::translate::inner;
use crate::clone::vectors::{VectorState, start_afresh, vector_size, xmm};
use crate::clone::{
    Engine, Guard, calls, engine, give_up, halt, image, locked, out_of_clone, pages, program,
    sound, switch, tracing,
};
use alloc::boxed::Box;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;
use weft_abi::halt::reason;

pub const SS_ONSTACK: u64 = 1;
pub const SS_DISABLE: u64 = 2;
const SS_AUTODISARM: u64 = 1 << 31;

const SA_NOCLDSTOP: u64 = 1;
const SA_NOCLDWAIT: u64 = 2;
const SA_SIGINFO: u64 = 4;
const SA_EXPOSE_TAGBITS: u64 = 0x800;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// What the kernel keeps of what it is told.
const SA_KNOWN: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SIGILL: usize = 4;
pub const SIGTRAP: usize = 5;
const SIGBUS: usize = 7;
const SIGFPE: usize = 8;
const SIGKILL: usize = 9;
pub const SIGSEGV: usize = 11;
const SIGSTOP: usize = 19;
const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
const SIG_SETMASK: usize = 2;

/// What the engine must see, whatever the program blocks: writes to guarded pages.
pub const NEEDED: u64 = bit(SIGSEGV) | bit(SIGBUS);
const ALL: u64 = !NEEDED;

/// What the engine looks at before the program does: what its own code, and the clone, could cause.
const WATCHED: u64 = NEEDED | bit(SIGILL);

/// What it looks at as well while a debugger wants to know.
const DEBUGGED: u64 = bit(SIGTRAP) | bit(SIGFPE);

/// The code of a fault at a page that is there but may not be used so.
const SEGV_ACCERR: i32 = 2;
/// The code of a step that the program has asked for, and the flag by which it does.
pub const TRAP_TRACE: i32 = 2;
pub const TRAP_FLAG: u64 = 0x100;
/// What the kernel says when it cannot write a frame, or read one: it is nobody's, and nowhere.
const SI_KERNEL: u64 = 0x80;
/// What the processor says of a fault in memory.
mod fault {
    pub const WRITE: u64 = 2;
    pub const FETCH: u64 = 16;
}
/// The most bytes of an instruction.
const LONGEST: u64 = 15;

/// Flags of which none is set, as far as the processor lets that be.
const NO_FLAGS: u64 = 2;

const EPERM: isize = -1;
const ENOMEM: isize = -12;
const MINSIGSTKSZ: u64 = 2048;

const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// What a program wants done with a signal, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// What the program wants done with each.
#[derive(Clone, Debug)]
pub struct Actions([Action; 65]);

pub mod later;
mod snippets;

/// The machine's registers in a frame, as the kernel lays them out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    /// `r8` to `r15`, `rdi`, `rsi`, `rbp`, `rbx`, `rdx`, `rax`, `rcx`, `rsp`.
    registers: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    segments: u64,
    error: u64,
    trap: u64,
    old_mask: u64,
    address: u64,
    vectors: u64,
    reserved: [u64; 8],
    pub mask: u64,
}

/// Which register of the machine each of a frame's is.
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];

/// What lies on the stack when a handler begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    restorer: u64,
    context: Context,
    info: [u64; 16],
}

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;

/// A fault, as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    pub signal: usize,
    pub info: &'a [u64; 16],
    pub context: &'a Context,
}

impl Context {
    pub fn general(&self) -> [u64; 16] {
        let mut general = [0; 16];
        for (value, register) in self.registers.into_iter().zip(ORDER) {
            general[register] = value;
        }
        general
    }

    /// Has the thread be stopped after each instruction, unless it blocks that.
    pub fn trap(&mut self) {
        if self.mask & bit(SIGTRAP) == 0 {
            self.rflags |= TRAP_FLAG;
        }
    }

    pub fn set_general(&mut self, general: &[u64; 16]) {
        self.registers = ORDER.map(|register| general[register]);
    }
}

impl Actions {
    /// Learns what the program has said so far. Returns where that is.
    pub fn read() -> u64 {
        let mut actions = Box::new(Self([Action::default(); 65]));
        for (signal, action) in actions.0.iter_mut().enumerate().skip(1) {
            // SAFETY: the kernel writes to the action.
            unsafe {
                let at = &raw mut *action as usize;
                system::call6(system::RT_SIGACTION, [signal, 0, at, 8, 0, 0]);
            }
        }
        Box::into_raw(actions) as u64
    }

    /// Has the kernel tell the engine of what the program handles, and of what the engine must know.
    pub fn take_over(thread: &Thread) {
        for (signal, action) in Self::of(thread).0.iter().enumerate().skip(1) {
            if NEEDED & bit(signal) != 0 {
                install(signal, &FOR_THE_ENGINE);
            } else if action.handler > SIG_IGN || watched() & bit(signal) != 0 {
                install_as_asked(signal, action);
            }
        }
    }

    /// Has the kernel do what the program wants done.
    pub fn give_back(thread: &Thread) {
        for (signal, action) in Self::of(thread).0.iter().enumerate().skip(1) {
            set_action(signal, action);
        }
    }

    /// A copy, for a child that shares memory but not this. The engine must be held, as for all here.
    pub fn copy(thread: &Thread) -> u64 {
        Box::into_raw(Box::new(Self::of(thread).clone())) as u64
    }

    /// Handles nothing any more, as the kernel has done for a child that is to begin so.
    pub fn clear(thread: &Thread) {
        for action in &mut Self::of(thread).0 {
            if action.handler > SIG_IGN {
                *action = Action::default();
            }
        }
        Self::take_over(thread);
    }

    /// Gives up a copy.
    pub fn forget(at: u64) {
        // SAFETY: `copy` has made it, and the child that used it is gone.
        drop(unsafe { Box::from_raw(at as *mut Self) });
    }

    fn of(thread: &Thread) -> &'static mut Self {
        // SAFETY: it lives as long as any thread that uses it; the engine's lock is held.
        unsafe { &mut *(thread.actions.load(Relaxed) as *mut Self) }
    }

    fn get(thread: &Thread, signal: usize) -> Action {
        Self::of(thread).0[signal.min(64)]
    }
}

/// What the kernel is told of signals that the engine needs: there is a handler.
const FOR_THE_ENGINE: Action = Action { handler: SIG_IGN + 1, flags: 0, restorer: 0, mask: 0 };

/// What the engine looks at before the program does.
fn watched() -> u64 {
    WATCHED | if halt::is_debugged() { DEBUGGED } else { 0 }
}

/// Has the kernel do what the program wants done, as far as the engine need not know.
fn install_as_asked(signal: usize, action: &Action) {
    let is_watched = watched() & bit(signal) != 0 && action.handler == SIG_DFL;
    install(signal, if is_watched { &FOR_THE_ENGINE } else { action });
}

/// Tells the kernel what to do: its own default, nothing, or the engine's handler.
fn install(signal: usize, action: &Action) {
    let kernel = if action.handler > SIG_IGN {
        Action {
            handler: switch::handle as *const () as u64,
            // What concerns the kernel only stays as it is; what concerns the frame is ours.
            flags: action.flags & !(SA_NODEFER | SA_RESETHAND)
                | SA_SIGINFO
                | SA_ONSTACK
                | SA_RESTORER
                // The program's stack may not be there when its frame is written.
                | if NEEDED & bit(signal) != 0 { SA_NODEFER } else { 0 },
            restorer: switch::restorer as *const () as u64,
            mask: ALL,
        }
    } else {
        *action
    };
    set_action(signal, &kernel);
}

fn set_action(signal: usize, action: &Action) {
    // SAFETY: the kernel reads the action.
    unsafe {
        let at = core::ptr::from_ref(action) as usize;
        system::call6(system::RT_SIGACTION, [signal, at, 0, 8, 0, 0]);
    }
}

/// `rt_sigaction`; nothing if a signal came first, which is handled as it was to be until now.
pub fn action(thread: &Thread) -> Option<isize> {
    (!thread.has_pending()).then(|| set_program_action(thread))
}

fn set_program_action(thread: &Thread) -> isize {
    let [_, _, old, _, _, _, new, signal, ..] = thread.general();
    let size = thread.general[10].get();
    let signal = signal as usize;
    if size != 8 || !(1..=64).contains(&signal) {
        return EINVAL;
    }
    let wanted = if new == 0 {
        None
    } else {
        let Some(action) = program::read::<Action>(new) else { return system::EFAULT };
        if matches!(signal, SIGKILL | SIGSTOP) {
            return EINVAL;
        }
        Some(action)
    };
    let engine = engine();
    let before = Actions::get(thread, signal);
    if let Some(mut action) = wanted {
        action.mask &= !(bit(SIGKILL) | bit(SIGSTOP));
        action.flags &= SA_KNOWN;
        Actions::of(thread).0[signal] = action;
        let is_kept = engine.has_trap && signal == SIGTRAP && action.handler <= SIG_IGN;
        if NEEDED & bit(signal) == 0 && !is_kept {
            install_as_asked(signal, &action);
        }
    }
    if old != 0 && !program::write(old, before) {
        return system::EFAULT;
    }
    0
}

/// `rt_sigprocmask`: keeps what the engine needs unblocked, and the program believing what it asked for.
pub fn change_mask(thread: &Thread) -> Option<isize> {
    let [_, _, old, _, _, _, new, how, ..] = thread.general();
    let hidden = thread.hidden_mask.get();
    // Before the call, which may write the old one to the same place.
    let set = if new == 0 { None } else { program::read::<u64>(new).map(|set| set & NEEDED) };
    let result = calls::pass(thread)?;
    if result != 0 {
        return Some(result);
    }
    if let Some(set) = set {
        thread.hidden_mask.set(match how as usize {
            SIG_BLOCK => hidden | set,
            SIG_UNBLOCK => hidden & !set,
            _ => set,
        });
        if set != 0 && how as usize != SIG_UNBLOCK {
            add_to_mask(SIG_UNBLOCK, NEEDED);
        }
    }
    if old != 0 && hidden != 0 {
        // SAFETY: the kernel has just written it.
        unsafe { *(old as *mut u64) |= hidden };
    }
    Some(result)
}

/// `sigaltstack`
pub fn alternate_stack(thread: &Thread) -> isize {
    let [_, _, _, _, rsp, _, old, new, ..] = thread.general();
    let is_on = is_on_stack(&thread.altstack.get(), rsp);
    let mut before = thread.altstack.get();
    before[1] = match (before[1] & SS_DISABLE != 0, is_on) {
        (true, _) => SS_DISABLE,
        (false, true) => before[1] | SS_ONSTACK,
        (false, false) => before[1],
    };
    if new != 0 {
        let Some(mut wanted) = program::read::<[u64; 3]>(new) else { return system::EFAULT };
        wanted[1] &= 0xffff_ffff;
        let mode = wanted[1] & !SS_AUTODISARM;
        if is_on {
            return EPERM;
        }
        if mode > SS_DISABLE {
            return EINVAL;
        }
        if mode == SS_DISABLE {
            thread.altstack.set([0, SS_DISABLE, 0]);
        } else if wanted[2] < MINSIGSTKSZ {
            return ENOMEM;
        } else {
            thread.altstack.set([wanted[0], wanted[1] & SS_AUTODISARM, wanted[2]]);
        }
    }
    if old != 0 && !program::write(old, before) {
        return system::EFAULT;
    }
    0
}

fn is_on_stack(stack: &[u64; 3], rsp: u64) -> bool {
    let [start, flags, size] = *stack;
    flags & (SS_DISABLE | SS_AUTODISARM) == 0 && rsp > start && rsp - start <= size
}

/// Gives the kernel the engine's own stack for the frames of this thread. Returns the one that it had.
pub fn use_own_stack(thread: &Thread) -> [u64; 3] {
    let (start, size) = thread.signal_stack();
    let stack = [start, 0, size];
    let mut before = [0u64; 3];
    // SAFETY: the stack belongs to the thread for as long as it lives; the kernel writes three words.
    unsafe {
        let (new, old) = (stack.as_ptr() as usize, before.as_mut_ptr() as usize);
        system::call3(system::SIGALTSTACK, new, old, 0);
    }
    before[1] &= u64::from(u32::MAX);
    before
}

/// Changes some signals in the kernel's mask of this thread.
fn add_to_mask(how: usize, set: u64) {
    // SAFETY: the kernel reads the mask.
    unsafe {
        let at = &raw const set as usize;
        system::call6(system::RT_SIGPROCMASK, [how, at, 0, 8, 0, 0]);
    }
}

/// Lets traps in, which the kernel sends whether they are blocked or not.
pub fn let_traps_in() {
    add_to_mask(SIG_UNBLOCK, bit(SIGTRAP));
}

/// Has the kernel know what the program wants of those signals that the engine needs, for another program
/// to inherit. Nothing of this one may run meanwhile.
pub fn show_needed(thread: &Thread) {
    let _engine = engine();
    for signal in [SIGSEGV, SIGBUS] {
        let action = Actions::get(thread, signal);
        if action.handler == SIG_IGN {
            set_action(signal, &action);
        }
    }
    add_to_mask(SIG_BLOCK, thread.hidden_mask.get());
}

/// Has the kernel tell the engine of them again.
pub fn hide_needed() {
    for signal in [SIGSEGV, SIGBUS] {
        install(signal, &FOR_THE_ENGINE);
    }
    add_to_mask(SIG_UNBLOCK, NEEDED);
}

/// Sets the kernel's mask of this thread, and returns the old one.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one and writes the other.
    unsafe {
        let (new, old) = (&raw const mask as usize, &raw mut old as usize);
        system::call6(system::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]);
    }
    old
}

/// Blocks all signals that the engine does not need; returns what was blocked.
pub fn block() -> u64 {
    set_mask(ALL)
}

/// Blocks every signal, also the one that the engine needs: nothing is written to meanwhile.
pub fn block_all() -> u64 {
    set_mask(u64::MAX)
}

/// What the kernel calls, on the engine's own stack, with everything but the needed blocked.
pub extern "C" fn handler(signal: usize, info: &mut [u64; 16], context: &mut Context) {
    let thread = Thread::current();
    let pc = context.rip;
    if signal == SIGSEGV && info[1] as i32 > 0 && thread.has_filled_buffer(info[2]) {
        // A record of a trace did not fit: it goes to the next buffer.
        let mut general = context.general();
        general[tracing::base_of(pc)] = thread.turn_buffer();
        context.set_general(&general);
        return;
    }
    if signal == SIGTRAP && halt::is_own_trap(pc) {
        // The debugger is gone, and the thread finds out.
        return;
    }
    let is_step = signal == SIGTRAP && info[1] as i32 == TRAP_TRACE;
    let (signal, is_step) = match thread.stepping.load(Relaxed) {
        stepping::NO => (signal, is_step),
        _ if !is_step => (signal, false),
        _ => match snippets::step(thread, info, context) {
            Some(waiting) => (waiting, false),
            None => return,
        },
    };
    if image().contains(&pc) {
        if !is_step {
            interrupted_agent(thread, signal, info, context);
        }
        return;
    }
    let mut engine = locked();
    if engine.is_gate(pc) {
        drop(engine);
        if !is_step {
            interrupted_agent(thread, signal, info, context);
        }
        return;
    }
    if let Some(next) = snippets::after_fault(&engine, info, pc) {
        context.rip = next;
        return;
    }
    if is_step && thread.errand.get() == halt::errand::WAY {
        thread.errand.set(halt::errand::NONE);
        return;
    }
    // A program that steps through itself takes one step where the clone takes several: all but the last are
    // not its own. Who is at the same place again has gone round a repeated instruction, and a snippet before that
    // is long over.
    let was_here = thread.trapped.replace(if is_step { pc } else { 0 }) == pc;
    if is_step && context.rflags & TRAP_FLAG != 0 {
        if !was_here && !state::is_between(&engine, pc) {
            return;
        }
        thread.trapped.set(0);
    }
    if snippets::has_begun(&engine, thread, info, context) {
        snippets::lead_out(&mut engine, thread, info, context);
        return;
    }
    let mut state = State { general: context.general(), pc, stacked: None };
    let is_fault = is_fault(info);
    if signal == SIGSEGV && is_fault {
        if let Some(page) = engine.pages.guarded(info[2]) {
            written(engine, thread, context, state, page);
            return;
        }
        // Others may have written to the same page, and been here first.
        let is_denied = info[1] as i32 == SEGV_ACCERR && context.error & fault::WRITE != 0;
        if is_denied && engine.is_writable(info[2]) {
            return;
        }
    }
    let is_at_instruction = is_fault && info[2] == pc;
    // An instruction may begin in a page that this processor could execute a moment longer. And a thread may
    // be where the kernel has sent it from a restartable sequence.
    let is_fetch = context.error & fault::FETCH != 0
        && (info[2].wrapping_sub(pc) < LONGEST || engine.half_of(info[2]).is_some());
    let is_retired = engine.half_of(pc).is_some() && !engine.is_current(pc);
    let is_step_over = thread.is_stepping() && engine.is_stop(pc);
    let is_suspect = is_fault && WATCHED & bit(signal) != 0;
    let is_broken = is_suspect && !sound::is_explained(&engine, pc, signal == SIGILL);
    let is_certain = is_broken && sound::is_certain(&engine, pc);
    state::restore(&mut engine, thread, &mut state);
    let is_inner = engine.is_inner(pc, state.pc);
    engine.cut(pc, state.pc);
    engine.trace_cut(thread, pc, (state.pc, &state.general));
    state.pc = halt::rejoin(thread, state.pc, &mut state.general, context.rflags);
    if is_broken {
        thread.set_general(&state.general);
        thread.pc.set(state.pc);
        thread.flags.set(context.rflags);
        // SAFETY: the kernel has written the vector state there.
        thread.vectors.set(unsafe { xmm(context.vectors) });
        thread.way_out.set(if is_certain { state.pc } else { 0 });
        engine = give_up::broken(engine, thread, Fault { signal, info, context });
    }
    let mut engine = out_of_clone(engine, thread);
    context.set_general(&state.general);
    context.rip = state.pc;
    if is_retired && signal == SIGSEGV && is_fault && is_fetch {
        // Out of what was thrown away, and on where it would have gone.
        let key = if is_inner { inner(state.pc) } else { state.pc };
        context.rip = engine.go_as(thread, key);
        engine.entered(thread, key);
        return;
    }
    if is_at_instruction {
        info[2] = state.pc;
    }
    if is_step_over && halt::asked(info).is_none() {
        // The debugger hears of one thing after the other.
        send_again(info);
        *info = halt::asking(reason::STEPPED, 0);
    }
    pass_on_in_clone(engine, thread, info, context);
}

/// Passes a signal on to a thread that has left the clone by it, and has the program's registers.
fn pass_on_in_clone(mut engine: Guard, thread: &Thread, info: &[u64; 16], context: &mut Context) {
    thread.is_masked.store(true, Relaxed);
    // SAFETY: the kernel has written the vector state there.
    match unsafe { tell(engine, thread, info, context) } {
        Ok((kept, _)) => engine = kept,
        // A child that has borrowed its parent's memory leaves that to it.
        Err(Deadly(signal)) => {
            thread.trace_signal(signal, is_fault(info));
            end_by(signal)
        }
    }
    context.rip = engine.set_out(thread, context);
    compiler_fence(SeqCst);
    thread.is_masked.store(false, Relaxed);
}

/// Tells the debugger of a signal, if there is one, and then the program. Says whether the program's handler has begun.
///
/// # Safety
/// The context's vector state must be there.
unsafe fn tell(
    mut engine: Guard,
    thread: &Thread,
    info: &[u64; 16],
    context: &mut Context,
) -> Result<(Guard, bool), Deadly> {
    let mut info = *info;
    let mut has_begun = false;
    loop {
        let is_wanted;
        (engine, is_wanted) = halt::consult(engine, thread, &mut info, context);
        // SAFETY: the caller vouches for it.
        if !is_wanted || !unsafe { pass_on(&mut engine, thread, &info, context)? } {
            return Ok((engine, has_begun));
        }
        has_begun = true;
        if !thread.is_stepping() {
            return Ok((engine, has_begun));
        }
        // A step into a handler ends before the first instruction of that.
        info = halt::asking(reason::STEPPED, 0);
    }
}

/// Whether a signal is because of what the thread has executed: the kernel says so.
fn is_fault(info: &[u64; 16]) -> bool {
    (info[1] as i32) > 0
}

/// A signal by which the program ends.
struct Deadly(usize);

/// Does with a signal what the program wants done. Says whether its handler has begun.
///
/// # Safety
/// The context's vector state must be there.
unsafe fn pass_on(
    engine: &mut Engine,
    thread: &Thread,
    info: &[u64; 16],
    context: &mut Context,
) -> Result<bool, Deadly> {
    let signal = info[0] as u32 as usize;
    let is_fault = is_fault(info);
    let is_needed = NEEDED & bit(signal) != 0 || engine.has_trap && signal == SIGTRAP;
    let is_watched = (WATCHED | DEBUGGED) & bit(signal) != 0;
    match Actions::get(thread, signal).handler {
        SIG_DFL if is_watched => return Err(Deadly(signal)),
        // Since it came, it has ceased to be the engine's.
        SIG_DFL | SIG_IGN if !is_needed => send_again(info),
        SIG_IGN if !is_fault => {}
        SIG_IGN => return Err(Deadly(signal)),
        // What cannot wait ends a program that wants it to.
        _ if is_fault && thread.hidden_mask.get() & bit(signal) != 0 => return Err(Deadly(signal)),
        _ => {
            // SAFETY: the caller vouches for it.
            let has_entered = unsafe { enter_handler(engine, thread, signal, info, context) };
            if !has_entered && signal == SIGSEGV {
                return Err(Deadly(SIGSEGV));
            }
            if !has_entered {
                // SAFETY: the same.
                return unsafe { pass_on(engine, thread, &FAULT_OF_THE_KERNEL, context) };
            }
            engine.control.stats.signals.fetch_add(1, Relaxed);
            thread.trace_signal(signal, is_fault);
            return Ok(true);
        }
    }
    Ok(false)
}

const FAULT_OF_THE_KERNEL: [u64; 16] =
    [SIGSEGV as u64, SI_KERNEL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Ends the program as the signal would have.
pub fn end_by(signal: usize) -> ! {
    install(signal, &Action::default());
    // It may be blocked until it is not.
    system::raise(signal);
    set_mask(!bit(signal));
    loop {
        // SAFETY: ends the process.
        unsafe { system::call3(system::EXIT_GROUP, 128 + signal, 0, 0) };
    }
}

/// Keeps the mask of a thread that leaves the clone, with all signals blocked. One that waits comes to the
/// program when it is out.
pub fn keep_mask(thread: &Thread, mask: u64) {
    if !thread.has_pending() {
        thread.pending_mask.set(mask & !NEEDED);
        later::send(thread, 0);
    } else {
        send_waiting_again(thread);
    }
}

/// Goes on natively with what the thread's record has of the program.
pub fn go_natively(thread: &Thread) -> ! {
    let mut vectors = VectorState::save(&thread.vectors.get());
    halt::rejoin_in_agent(thread, thread.pc.get());
    let mut context = native_context(thread, vectors.at());
    context.mask |= thread.hidden_mask.get();
    context.stack = thread.altstack.get();
    let frame = Frame { context, ..Frame::default() };
    // SAFETY: the program's own `gs`; the engine's is not needed any more.
    unsafe {
        system::call3(system::ARCH_PRCTL, system::ARCH_SET_GS, thread.gs_base.get() as usize, 0);
    }
    switch::go_natively(&raw const frame as u64 + 8)
}

/// Goes on natively where a thread was that has not joined the engine. Its signals need not be blocked here: they are
/// still the program's own.
pub fn stay_native(thread: &Thread) -> ! {
    set_mask(thread.pending_mask.get() | thread.hidden_mask.get());
    switch::stay_native(thread)
}

/// What a thread's record has of the program, as the kernel would describe it.
fn native_context(thread: &Thread, vectors: u64) -> Context {
    let mut context = Context {
        flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        rip: thread.pc.get(),
        rflags: thread.flags.get(),
        // What every 64-bit program has: cs 0x33, ss 0x2b.
        segments: 0x002b_0000_0000_0033,
        vectors,
        mask: thread.pending_mask.get(),
        ..Context::default()
    };
    context.set_general(&thread.general());
    context
}

/// A write to code that has been translated.
fn written(mut engine: Guard, thread: &Thread, context: &mut Context, mut state: State, page: u64) {
    engine.control.stats.protection_faults.fetch_add(1, Relaxed);
    let is_in_clone = state::restore(&mut engine, thread, &mut state);
    let ends = pages::release(&mut engine, page);
    engine.pages.count_write(page);
    // Whoever writes to its own neighbourhood must not go on in code that is as it was: one instruction,
    // the writer, and then anew.
    if is_in_clone && ends.contains(&state.pc) {
        engine.cut(context.rip, state.pc);
        engine.trace_cut(thread, context.rip, (state.pc, &state.general));
        let mut engine = out_of_clone(engine, thread);
        context.set_general(&state.general);
        context.rip = engine.single(thread, state.pc);
    }
}

/// A signal while the thread is in the agent: it has to wait.
fn interrupted_agent(thread: &Thread, signal: usize, info: &[u64; 16], context: &mut Context) {
    let at = |label: &u8| core::ptr::from_ref(label) as u64;
    if (info[1] as i32) > 0 && WATCHED & bit(signal) != 0 {
        // SAFETY: labels, whose addresses alone count.
        unsafe {
            if context.rip == at(&switch::weft_copy_instruction) {
                context.rip = at(&switch::weft_copy_failed);
                return;
            }
            if context.rip == at(&switch::weft_resume_jump) {
                // To an address that is none. All registers are the program's by now.
                thread.epoch.store(u64::MAX, Release);
                context.rip = thread.target.get();
                pass_on_in_clone(engine(), thread, info, context);
                return;
            }
        }
        give_up::faulted(thread, Fault { signal, info, context });
    }
    if later::is_after_last_look(info, context)
        || later::is_waiting(thread, context) && later::keep(thread, info)
    {
        return;
    }
    thread.pending_info.set(*info);
    thread.pending_mask.set(context.mask & !NEEDED);
    thread.is_pending_early.store(thread.is_beginning.load(Relaxed), Relaxed);
    thread.set_pending();
    context.mask = ALL;
    let pc = context.rip;
    // SAFETY: labels, whose addresses alone count.
    unsafe {
        let resume = switch::resume as *const () as u64;
        if (resume..at(&switch::weft_resume_end)).contains(&pc) {
            context.rip = resume;
            // They may be the program's already, with which the agent cannot work.
            context.rflags = NO_FLAGS;
        } else if (at(&switch::weft_call_begin)..=at(&switch::weft_call_instruction)).contains(&pc)
        {
            context.rip = at(&switch::weft_call_abandoned);
        } else if (at(&switch::weft_return_begin)..=at(&switch::weft_return_instruction))
            .contains(&pc)
        {
            context.rip = at(&switch::weft_return_abandoned);
        } else if (switch::gate_missing as *const () as u64..at(&switch::weft_missing_out))
            .contains(&pc)
        {
            // It must not find its way back to the clone without the agent.
            thread.target.set(at(&switch::weft_missing_out));
        }
    }
}

/// Passes on the signal that waits. The thread is on its way back to the clone.
pub extern "C" fn deliver_pending(thread: &Thread) {
    if snippets::defer(thread) {
        return;
    }
    // It was about to enter the clone, but is not in it.
    thread.epoch.store(u64::MAX, Release);
    let info = thread.pending_info.get();
    let mut vectors = VectorState::save(&thread.vectors.get());
    let mut context = native_context(thread, vectors.at());
    thread.is_masked.store(true, Relaxed);
    compiler_fence(SeqCst);
    thread.clear_pending();
    let has_begun;
    {
        let mut engine = engine();
        engine.cut(thread.target.get(), thread.pc.get());
        engine.trace_cut(thread, thread.target.get(), (thread.pc.get(), &thread.general()));
        // SAFETY: the vector state was just saved.
        (engine, has_begun) = match unsafe { tell(engine, thread, &info, &mut context) } {
            Ok(told) => told,
            Err(Deadly(signal)) => {
                thread.trace_signal(signal, is_fault(&info));
                end_by(signal)
            }
        };
        // A handler begins afresh, and a debugger may have changed them.
        if has_begun || halt::is_debugged() {
            vectors.load();
            thread.vectors.set(if has_begun { [0; 16] } else { vectors.xmm() });
        }
        let was_trapping = context.rflags & TRAP_FLAG != 0;
        engine.set_out(thread, &mut context);
        if context.rflags & TRAP_FLAG != 0 && !was_trapping {
            thread.errand.set(halt::errand::WAY);
        }
    }
    thread.is_beginning.store(has_begun, Relaxed);
    set_mask(context.mask);
    thread.is_beginning.store(false, Relaxed);
    thread.is_masked.store(false, Relaxed);
    // What comes from here on interrupts the agent with the program's mask, and waits in its turn.
    compiler_fence(SeqCst);
    later::send(thread, 0);
}

/// Has the program's handler begin: writes its frame, and makes the context that of the handler. If there
/// is no room for a frame, nothing has happened.
///
/// # Safety
/// The context's vector state must be there.
unsafe fn enter_handler(
    engine: &mut Engine,
    thread: &Thread,
    signal: usize,
    info: &[u64; 16],
    context: &mut Context,
) -> bool {
    let action = Actions::get(thread, signal);
    let mask = context.mask;
    let rsp = context.general()[RSP];
    let alternate = thread.altstack.get();
    let is_on = is_on_stack(&alternate, rsp);
    let uses = action.flags & SA_ONSTACK != 0 && alternate[1] & SS_DISABLE == 0 && !is_on;
    // Below the red zone, unless the stack is a fresh one.
    let mut sp = if uses { alternate[0] + alternate[2] } else { rsp.wrapping_sub(128) };
    let size = vector_size(context.vectors);
    sp = sp.wrapping_sub(size as u64) & !63;
    let vectors = sp;
    sp = (sp.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
    // The kernel would rather not write beyond it, nor have a handler return to nowhere.
    let is_beyond = (uses || is_on) && (sp <= alternate[0] || sp - alternate[0] > alternate[2]);
    if is_beyond || action.flags & SA_RESTORER == 0 {
        return false;
    }
    engine.put_original_in_frame(context.vectors);
    // A native frame, but for what is the engine's.
    let mut shown = *context;
    shown.vectors = vectors;
    shown.mask = mask & !NEEDED | thread.hidden_mask.get();
    shown.old_mask = shown.mask;
    // As it was set, wherever the thread is: the kernel does not say so here.
    shown.stack = alternate;
    // The kernel writes the flags, and leaves what lies beside them as it is.
    let beside = sp + (offset_of!(Frame, context) + offset_of!(Context, stack) + 12) as u64;
    shown.stack[1] |= u64::from(program::read::<u32>(beside).unwrap_or(0)) << 32;
    let frame = Frame { restorer: action.restorer, context: shown, info: *info };
    for page in engine.pages.guarded_after(sp, 3) {
        pages::release(engine, page);
    }
    // SAFETY: the program's stack, where that is one.
    let is_written = unsafe {
        switch::copy(sp, &raw const frame as u64, size_of::<Frame>())
            && switch::copy(vectors, context.vectors, size)
    };
    if !is_written {
        return false;
    }
    if uses && alternate[1] & SS_AUTODISARM != 0 {
        thread.altstack.set([0, SS_DISABLE, 0]);
    }
    let mut general = context.general();
    general[RAX] = 0;
    general[7] = signal as u64;
    general[6] = sp + offset_of!(Frame, info) as u64;
    general[2] = sp + offset_of!(Frame, context) as u64;
    general[RSP] = sp;
    context.set_general(&general);
    context.rip = action.handler;
    // No single steps, no backward copies, no resumption.
    context.rflags &= !(0x100 | 0x400 | 0x1_0000);
    // SAFETY: the caller vouches for it: the state is the kernel's copy, or ours.
    unsafe { start_afresh(context.vectors) };
    let mut blocked = mask | thread.hidden_mask.get() | action.mask;
    if action.flags & SA_NODEFER == 0 {
        blocked |= bit(signal);
    }
    thread.hidden_mask.set(blocked & NEEDED);
    context.mask = blocked & !NEEDED;
    if action.flags & SA_RESETHAND != 0 {
        Actions::of(thread).0[signal] = Action { handler: SIG_DFL, ..action };
        if NEEDED & bit(signal) == 0 {
            install_as_asked(signal, &Action::default());
        }
    }
    true
}

/// `rt_sigreturn`: the program's handler has ended. It returns to the caller where there is no frame.
pub fn return_from_handler(thread: &Thread) -> isize {
    let at = thread.general[RSP].get();
    let mut frame = Frame::default();
    let context = &mut frame.context;
    // SAFETY: the program's stack, where that is one.
    if !unsafe { switch::copy(&raw mut *context as u64, at, size_of::<Context>()) } {
        return fault(thread);
    }
    thread.hidden_mask.set(context.mask & NEEDED);
    context.mask &= !NEEDED;
    let [start, flags, size] = context.stack;
    if flags & SS_DISABLE != 0 {
        thread.altstack.set([0, SS_DISABLE, 0]);
    } else {
        thread.altstack.set([start, flags & SS_AUTODISARM, size]);
    }
    let (start, size) = thread.signal_stack();
    context.stack = [start as u64, 0, size as u64];
    let mut engine = engine();
    context.rip = match thread.is_stepping() {
        true => engine.stop_before(thread, context.rip),
        false => engine.go(thread, context.rip),
    };
    drop(engine);
    loop {
        switch::return_from_signal(&raw const frame as u64 + 8);
        // A signal came. It comes again when it is let in, as the frame's mask says: even one that the engine needs.
        block_all();
        send_waiting_again(thread);
    }
}

/// Has a fault wait for the thread that the kernel would have said. Returns what the call does.
fn fault(thread: &Thread) -> isize {
    thread.is_masked.store(true, Relaxed);
    let mask = set_mask(ALL);
    if !thread.has_pending() {
        thread.pending_mask.set(mask);
    } else {
        send_waiting_again(thread);
    }
    thread.pending_info.set(FAULT_OF_THE_KERNEL);
    thread.set_pending();
    0
}

/// Has the kernel send the signal that waits once more, and those that have come since.
fn send_waiting_again(thread: &Thread) {
    let info = thread.pending_info.get();
    thread.clear_pending();
    send_again(&info);
    later::send(thread, info[0] as u32 as usize);
}

/// Has the kernel send a signal once more, for it to come when it is not blocked.
pub fn send_again(info: &[u64; 16]) {
    let signal = info[0] as u32 as usize;
    let args = [system::pid(), system::tid(), signal, info.as_ptr() as usize, 0, 0];
    // SAFETY: the kernel reads the description. It refuses those that only it may make; then the bare
    // signal has to do.
    if unsafe { system::call6(system::RT_TGSIGQUEUEINFO, args) } < 0 {
        system::raise(signal);
    }
}
