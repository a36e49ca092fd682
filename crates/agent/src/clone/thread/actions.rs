//! What the program wants done with signals, and what is installed in the kernel instead.

use crate::clone::base::signals::{ALL, DEBUGGED, NEEDED, WATCHED, bit, set_mask};
use crate::clone::base::{observers, system};
use crate::clone::thread::assembly;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::Thread;
use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Whether the kernel has the program's actions again, because the host takes the threads out. If it is killed before
/// the last of them, threads run on here without the engine's handler.
static ARE_GIVEN_BACK: AtomicU32 = AtomicU32::new(0);

pub const SA_NOCLDSTOP: u64 = 1;
pub const SA_NOCLDWAIT: u64 = 2;
pub const SA_SIGINFO: u64 = 4;
pub const SA_EXPOSE_TAGBITS: u64 = 0x800;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// The flags that the kernel keeps.
pub const SA_KNOWN: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

/// What a program wants done with a signal, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// What the program wants done with each.
#[derive(Clone, Debug)]
pub struct Actions(pub [Action; 65]);

impl Actions {
    /// Reads the actions that the program has installed so far. Returns where they are.
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

    /// Installs the engine's handler for what the program handles, and for what the engine must see.
    pub fn take_over(thread: &Thread) {
        for (signal, action) in Self::of(thread).0.iter().enumerate().skip(1) {
            if NEEDED & bit(signal) != 0 {
                install(signal, &FOR_THE_ENGINE);
            } else if action.handler > SIG_IGN || watched() & bit(signal) != 0 {
                install_as_wanted(signal, action);
            }
        }
    }

    /// Installs what the program wants done, for good. Once: threads that are out may have changed it since.
    pub fn give_back(thread: &Thread) {
        // A vforked child has actions of its own, and the memory of its parent.
        if thread.is_vforked.get() == 0 && ARE_GIVEN_BACK.swap(1, Relaxed) != 0 {
            return;
        }
        for (signal, action) in Self::of(thread).0.iter().enumerate().skip(1) {
            set_action(signal, action);
        }
    }

    /// A copy, for a child that shares memory but not actions. The engine must be locked, as for all here.
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

    /// Drops a copy.
    pub fn forget(at: u64) {
        // SAFETY: `copy` has made it, and the child that used it is gone.
        drop(unsafe { Box::from_raw(at as *mut Self) });
    }

    /// Those of a thread.
    pub fn of(thread: &Thread) -> &'static mut Self {
        // SAFETY: it lives as long as any thread that uses it; the engine's lock is held.
        unsafe { &mut *(thread.actions.load(Relaxed) as *mut Self) }
    }

    /// That of a thread for a signal.
    pub fn get(thread: &Thread, signal: usize) -> Action {
        Self::of(thread).0[signal.min(64)]
    }
}

/// An action that stands for the engine's handler, whatever the program wants done.
pub const FOR_THE_ENGINE: Action = Action { handler: SIG_IGN + 1, flags: 0, restorer: 0, mask: 0 };

/// What the engine looks at before the program does.
pub fn watched() -> u64 {
    WATCHED | if observers::is_debugged() { DEBUGGED } else { 0 }
}

/// Installs what the program wants done with a signal, unless the engine has to see it first.
pub fn install_as_wanted(signal: usize, action: &Action) {
    let is_watched = watched() & bit(signal) != 0 && action.handler == SIG_DFL;
    install(signal, if is_watched { &FOR_THE_ENGINE } else { action });
}

/// Whether the kernel has the program's actions again.
pub fn are_given_back() -> bool {
    ARE_GIVEN_BACK.load(Relaxed) != 0
}

/// Installs an action: the kernel's default, to ignore, or the engine's handler.
pub fn install(signal: usize, action: &Action) {
    let kernel = if action.handler > SIG_IGN {
        Action {
            handler: Landmark::Handle.address(),
            // What concerns the kernel only stays as it is; what concerns the frame is ours.
            flags: action.flags & !(SA_NODEFER | SA_RESETHAND)
                | SA_SIGINFO
                | SA_ONSTACK
                | SA_RESTORER
                // The program's stack may not be there when its frame is written.
                | if NEEDED & bit(signal) != 0 { SA_NODEFER } else { 0 },
            restorer: assembly::restorer as *const () as u64,
            mask: ALL,
        }
    } else {
        *action
    };
    set_action(signal, &kernel);
}

pub fn set_action(signal: usize, action: &Action) {
    // SAFETY: the kernel reads the action.
    unsafe {
        let at = core::ptr::from_ref(action) as usize;
        system::call6(system::RT_SIGACTION, [signal, at, 0, 8, 0, 0]);
    }
}

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
