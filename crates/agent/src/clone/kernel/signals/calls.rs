//! System calls about signals. What the program sees of them is as if they did what it requested.

use crate::clone::base::registers::R10;
use crate::clone::base::signals::{
    NEEDED, SIG_BLOCK, SIG_UNBLOCK, SIGBUS, SIGKILL, SIGSEGV, SIGSTOP, SIGTRAP, bit,
};
use crate::clone::base::system::EINVAL;
use crate::clone::base::{program, signals, system};
use crate::clone::engine::lock::engine;
use crate::clone::kernel::pass::pass;
use crate::clone::thread::actions::{
    Action, Actions, FOR_THE_ENGINE, SA_KNOWN, SIG_IGN, install, install_as_wanted, set_action,
};
use crate::clone::thread::alternate_stack::{SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, is_on_stack};
use crate::clone::thread::record::Thread;

const EPERM: isize = -1;
const ENOMEM: isize = -12;
const MINSIGSTKSZ: u64 = 2048;

/// `rt_sigaction`; `None` if a signal came first, which is handled by the old action.
pub fn action(thread: &Thread) -> Option<isize> {
    (!thread.has_pending()).then(|| set_program_action(thread))
}

fn set_program_action(thread: &Thread) -> isize {
    let [_, _, old, _, _, _, new, signal, ..] = thread.general();
    let size = thread.general[R10].get();
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
            install_as_wanted(signal, &action);
        }
    }
    if old != 0 && !program::write(old, before) {
        return system::EFAULT;
    }
    0
}

/// `rt_sigprocmask`: keeps what the engine needs unblocked, and shows the program the mask that it requested.
pub fn change_mask(thread: &Thread) -> Option<isize> {
    let [_, _, old, _, _, _, new, how, ..] = thread.general();
    let hidden = thread.hidden_mask.get();
    // Before the call, which may write the old one to the same place.
    let set = if new == 0 { None } else { program::read::<u64>(new).map(|set| set & NEEDED) };
    let result = pass(thread)?;
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
            signals::change_mask(SIG_UNBLOCK, NEEDED);
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

/// Installs what the program wants done with the signals that the engine needs, for another program to inherit. No
/// other thread of this one may run meanwhile.
pub fn show_needed(thread: &Thread) {
    let _engine = engine();
    for signal in [SIGSEGV, SIGBUS] {
        let action = Actions::get(thread, signal);
        if action.handler == SIG_IGN {
            set_action(signal, &action);
        }
    }
    signals::change_mask(SIG_BLOCK, thread.hidden_mask.get());
}

/// Installs the engine's handler for them again.
pub fn hide_needed() {
    for signal in [SIGSEGV, SIGBUS] {
        install(signal, &FOR_THE_ENGINE);
    }
    signals::change_mask(SIG_UNBLOCK, NEEDED);
}
