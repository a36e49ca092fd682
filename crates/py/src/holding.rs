//! Whether this process holds a target that it has to give back before it may end.

use pyo3::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

static HELD: AtomicUsize = AtomicUsize::new(0);

/// A target that is held until it was given back, or this is dropped.
#[derive(Debug)]
pub struct Holding {
    is_held: AtomicBool,
}

impl Holding {
    /// To be called before the target is touched: from then on there may be something to give back.
    pub fn begin() -> Self {
        HELD.fetch_add(1, Relaxed);
        Self { is_held: AtomicBool::new(true) }
    }

    /// Whether it was not given back yet.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// The target was given back.
    pub fn end(&self) {
        if self.is_held.swap(false, Relaxed) {
            HELD.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
    }
}

#[pyfunction]
pub fn is_holding() -> bool {
    HELD.load(Relaxed) > 0
}
