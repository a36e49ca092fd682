//! The clone engine: the program runs from a clone of its code that is made as it goes, and cannot
//! tell. See `docs/explanation/clone-engine.md`.
//!
//! The modules are layers: each uses those above it in this list only (`tests/layers/order.py`).

mod base;
mod cache;
mod dispatch;
mod engine;
mod entry;
mod failure;
mod kernel;
mod switch;
mod thread;
mod tools;
mod translate;

#[cfg(weft_freestanding)]
pub(crate) use failure::give_up::fail_with;
