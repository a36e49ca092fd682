//! The engine's lock. There is no other, and so no order of locks.

use crate::clone::base::fail::fail;
use crate::clone::base::host::give_way;
use crate::clone::base::system;
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::engine::Engine;
use crate::clone::thread::record::Thread;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Shared {
    /// The id of the thread that holds the lock, or [`VISITOR`]; with [`WAITING`] if others wait for it. So a
    /// parent can see that its vforked child was killed while it held the lock.
    lock: AtomicU32,
    engine: UnsafeCell<Option<Engine>>,
}

/// In a lock: other threads wait for it.
const WAITING: u32 = 1 << 31;

/// In a lock: a thread holds it that the host has sent. No thread has this id.
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

/// Locks the engine, and makes sure that it has room. The calling thread must be out of the clone: see
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
        // A thread is still in the half that comes next, but not for long.
        drop(engine);
        // SAFETY: lets another thread run.
        unsafe { system::call3(system::SCHED_YIELD, 0, 0, 0) };
    }
}

/// Locks the engine, whether it has room or not. The host has precedence: threads that lock it one after the other
/// would never leave it.
pub fn locked() -> Guard {
    let lock = &SHARED.lock;
    let own = Thread::current().tid.get();
    give_way();
    if lock.compare_exchange(0, own, Acquire, Relaxed).is_ok() {
        return held();
    }
    loop {
        let seen = lock.load(Relaxed);
        if seen == 0 {
            // Other threads may wait.
            if lock.compare_exchange(0, own | WAITING, Acquire, Relaxed).is_ok() {
                return held();
            }
        } else if seen & WAITING != 0
            || lock.compare_exchange(seen, seen | WAITING, Relaxed, Relaxed).is_ok()
        {
            system::futex_wait(lock, seen | WAITING);
            give_way();
        }
    }
}

/// Whether a thread holds the lock.
pub fn is_held_by(thread: &Thread) -> bool {
    thread.tid.get() != 0 && SHARED.lock.load(Relaxed) & !WAITING == thread.tid.get()
}

/// Takes the lock over from a thread that was killed while it held it. Returns whether it was.
pub fn inherit(dead: &Thread, heir: &Thread) -> bool {
    let is_left = is_held_by(dead);
    if is_left {
        SHARED.lock.store(heir.tid.get() | WAITING, Relaxed);
    }
    is_left
}

/// Locks the engine for the host; `None` if a thread holds the lock.
pub fn locked_for_host() -> Option<Guard> {
    SHARED.lock.compare_exchange(0, VISITOR, Acquire, Relaxed).is_ok().then(held)
}

/// The engine, for code that holds the lock already: the guard unlocks it all the same.
pub fn held() -> Guard {
    // SAFETY: the lock is the caller's.
    match unsafe { &mut *SHARED.engine.get() } {
        Some(engine) => Guard(engine),
        None => fail("the engine is not there yet"),
    }
}

/// Marks a thread as out of the clone, and makes sure that the engine has room.
pub fn out_of_clone(engine: Guard, thread: &Thread) -> Guard {
    thread.epoch.store(u64::MAX, Release);
    if !engine.cache.is_full {
        return engine;
    }
    drop(engine);
    self::engine()
}

/// Unlocks the engine. Only where there is no guard: a child that was forked under the lock holds it, too.
pub fn unlock() {
    if SHARED.lock.swap(0, Release) & WAITING != 0 {
        system::futex_wake(&SHARED.lock);
    }
}

/// Puts the engine in place, before any thread joins it.
pub fn set_engine(engine: Engine) {
    // SAFETY: the caller has seen to it.
    unsafe { *SHARED.engine.get() = Some(engine) };
}

/// Takes the engine away without dropping it: what it was made of goes as a whole. No thread may come here any
/// more.
pub fn forget_engine() {
    // SAFETY: the caller has seen to it.
    unsafe { core::ptr::write(SHARED.engine.get(), None) };
}

/// Where the lock and the code cache are, which stay there; `None` if there is no engine yet.
pub fn addresses() -> Option<(u64, &'static CodeCache)> {
    // SAFETY: of the cache only the address of it and of its parts is wanted.
    let engine = unsafe { (*SHARED.engine.get()).as_ref() };
    engine.map(|engine| (SHARED.lock.as_ptr() as u64, &engine.cache))
}

/// All threads that ever were, without the lock; `None` if there is no engine yet.
pub fn known_threads() -> Option<impl Iterator<Item = &'static Thread>> {
    // SAFETY: of the engine only the list of threads is looked at, which stay.
    let engine = unsafe { (*SHARED.engine.get()).as_ref() };
    engine.map(Engine::threads)
}
