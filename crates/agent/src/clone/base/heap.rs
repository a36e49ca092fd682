//! The engine's memory: whatever it allocates, it allocates while it holds its lock.

use crate::clone::base::system;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const CHUNK: usize = 4 << 20;
/// What is taken ahead when the kernel may not give more; it gives memory as it is used.
const AHEAD: usize = 256 << 20;
/// Sizes up to `16 << CLASSES - 1` are kept for reuse; larger ones go back to the kernel.
const CLASSES: usize = 13;

/// How many pieces of the kernel's can be given back in the end; far more than there ever are.
const PIECES: usize = 1024;

struct State {
    next: usize,
    end: usize,
    free: [usize; CLASSES],
    /// What the kernel has given: where, and how much.
    pieces: [(usize, usize); PIECES],
    /// Whether no memory is to be requested of the kernel any more.
    is_sealed: bool,
}

impl State {
    fn map(&mut self, size: usize) -> Option<usize> {
        let at = system::map_private(size)?;
        if let Some(free) = self.pieces.iter_mut().find(|piece| piece.0 == 0) {
            *free = (at, size);
        }
        Some(at)
    }

    fn unmap(&mut self, at: usize, size: usize) {
        if let Some(piece) = self.pieces.iter_mut().find(|piece| piece.0 == at) {
            *piece = (0, 0);
        }
        system::unmap(at, size);
    }

    /// Takes room from the chunk.
    fn take(&mut self, size: usize) -> Option<usize> {
        let mut at = self.next.next_multiple_of(size.next_power_of_two().min(4096));
        if at + size > self.end {
            at = if self.is_sealed { None } else { self.map(CHUNK) }?;
            self.end = at + CHUNK;
        }
        self.next = at + size;
        Some(at)
    }
}

/// Powers of two, from chunks that the kernel gives.
pub struct Heap(UnsafeCell<State>);

// SAFETY: used only under the engine's lock, or while there is one thread.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Self {
        let pieces = [(0, 0); PIECES];
        Self(UnsafeCell::new(State {
            next: 0,
            end: 0,
            free: [0; CLASSES],
            pieces,
            is_sealed: false,
        }))
    }

    /// Maps all memory that will be needed, and requests none of the kernel any more.
    pub fn seal(&self) {
        // SAFETY: see `Sync`.
        let state = unsafe { &mut *self.0.get() };
        if !state.is_sealed
            && let Some(at) = state.map(AHEAD)
        {
            (state.next, state.end, state.is_sealed) = (at, at + AHEAD, true);
        }
    }

    /// Unmaps everything; no thread may use it any more.
    pub fn unmap(&self) {
        // SAFETY: see `Sync`.
        let state = unsafe { &*self.0.get() };
        state.pieces.iter().for_each(|&(at, size)| system::unmap(at, size));
    }
}

fn class(layout: &Layout) -> usize {
    let size = layout.size().max(layout.align()).max(16);
    (size.next_power_of_two().trailing_zeros() - 4) as usize
}

// SAFETY: memory is handed out once until it is given back; powers of two are aligned to themselves
// up to a page.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see `Sync`.
        let state = unsafe { &mut *self.0.get() };
        let class = class(&layout);
        if class >= CLASSES {
            let size = layout.size();
            let at = if state.is_sealed { state.take(size) } else { state.map(size) };
            return at.map_or(null_mut(), |at| at as *mut u8);
        }
        let free = state.free[class];
        if free != 0 {
            // SAFETY: a free piece holds the address of the next.
            state.free[class] = unsafe { *(free as *const usize) };
            return free as *mut u8;
        }
        state.take(16 << class).map_or(null_mut(), |at| at as *mut u8)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        let at = unsafe { self.alloc(layout) };
        // Large pieces are never handed out again, so they are as the kernel gave them.
        if class(&layout) < CLASSES && !at.is_null() {
            // SAFETY: it was allocated with that size.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: see `Sync`.
        let state = unsafe { &mut *self.0.get() };
        let class = class(&layout);
        if class >= CLASSES {
            if !state.is_sealed {
                state.unmap(at as usize, layout.size());
            }
            return;
        }
        // SAFETY: the piece is free, and large enough for an address.
        unsafe { *(at as *mut usize) = state.free[class] };
        state.free[class] = at as usize;
    }
}

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Maps all memory that will be needed, and requests none of the kernel any more.
pub fn seal() {
    HEAP.seal();
}

/// Unmaps everything; no thread may use it any more.
pub fn unmap() {
    HEAP.unmap();
}
