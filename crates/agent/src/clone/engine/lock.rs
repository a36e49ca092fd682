//! The engine's lock. There is no other, and so no order of locks.

use crate::clone::base::fail::fail;
use crate::clone::base::system;
use crate::clone::engine::Engine;
use crate::clone::thread::record::Thread;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Shared {
    /// The id of the thread that has the engine, or [`VISITOR`]; with [`WAITING`] if others wait for it. So whoever
    /// finds that the thread is dead knows that it died with the engine.
    lock: AtomicU32,
    engine: UnsafeCell<Option<Engine>>,
}

/// In a lock: others wait.
const WAITING: u32 = 1 << 31;

/// In a lock: a thread has it that is here for the host. No thread has this id.
const VISITOR: u32 = WAITING - 1;

// SAFETY: the engine is reached only through the lock.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { lock: AtomicU32::new(0), engine: UnsafeCell::new(None) };

/// The engine, for as long as this lives.
pub struct Guard(&'static mut Engine);

impl core::ops::Deref for Guard {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0
    }
}

impl core::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        unlock();
    }
}

/// Waits for the engine, and for it to have room. Whoever comes here must be out of the clone: see
/// [`Thread::epoch`].
pub fn engine() -> Guard {
    loop {
        let mut engine = locked();
        engine.follow_halts();
        if !engine.cache.is_full {
            return engine;
        }
        if engine.is_drained() {
            engine.flush();
            return engine;
        }
        // Somebody is still in the half that comes next, but not for long.
        drop(engine);
        // SAFETY: gives others a turn.
        unsafe { system::call3(system::SCHED_YIELD, 0, 0, 0) };
    }
}

/// Waits for the engine.
pub fn locked() -> Guard {
    let lock = &SHARED.lock;
    let own = Thread::current().tid.get();
    if lock.compare_exchange(0, own, Acquire, Relaxed).is_ok() {
        return held();
    }
    loop {
        let seen = lock.load(Relaxed);
        if seen == 0 {
            // There may be others who wait.
            if lock.compare_exchange(0, own | WAITING, Acquire, Relaxed).is_ok() {
                return held();
            }
        } else if seen & WAITING != 0
            || lock.compare_exchange(seen, seen | WAITING, Relaxed, Relaxed).is_ok()
        {
            system::futex_wait(lock, seen | WAITING);
        }
    }
}

/// Whether a thread has the engine.
pub fn is_held_by(thread: &Thread) -> bool {
    thread.tid.get() != 0 && SHARED.lock.load(Relaxed) & !WAITING == thread.tid.get()
}

/// Takes the engine over from a thread that was killed while it had it, if it was.
pub fn inherit(dead: &Thread, heir: &Thread) -> bool {
    let is_left = is_held_by(dead);
    if is_left {
        SHARED.lock.store(heir.tid.get() | WAITING, Relaxed);
    }
    is_left
}

/// The engine, if nobody has it.
pub fn free() -> Option<Guard> {
    SHARED.lock.compare_exchange(0, VISITOR, Acquire, Relaxed).is_ok().then(held)
}

pub fn held() -> Guard {
    // SAFETY: the lock is the caller's.
    match unsafe { &mut *SHARED.engine.get() } {
        Some(engine) => Guard(engine),
        None => fail("the engine is not there yet"),
    }
}

/// Takes a thread out of the clone that has found its way out of it, and makes sure of room.
pub fn out_of_clone(engine: Guard, thread: &Thread) -> Guard {
    thread.epoch.store(u64::MAX, Release);
    if !engine.cache.is_full {
        return engine;
    }
    drop(engine);
    self::engine()
}

pub fn unlock() {
    if SHARED.lock.swap(0, Release) & WAITING != 0 {
        system::futex_wake(&SHARED.lock);
    }
}

/// Puts the engine there, while nobody else is here yet.
pub fn set_engine(engine: Engine) {
    // SAFETY: the caller has seen to it.
    unsafe { *SHARED.engine.get() = Some(engine) };
}

/// Takes the engine away without dropping it: what it was made of goes as a whole. Nobody may come here any more.
pub fn forget_engine() {
    // SAFETY: the caller has seen to it.
    unsafe { core::ptr::write(SHARED.engine.get(), None) };
}

/// All threads that ever were, whoever has the engine: `None` if it is not there yet.
pub fn known_threads() -> Option<impl Iterator<Item = &'static Thread>> {
    // SAFETY: of the engine only the list of threads is looked at, which stay.
    let engine = unsafe { (*SHARED.engine.get()).as_ref() };
    engine.map(Engine::threads)
}
