//! The clone engine: the program runs from a clone of its code that is made as it is needed, without being able to
//! detect it. See `docs/explanation/clone-engine.md`.
//!
//! The modules are layers, of which each uses only those before it: [`base`], [`thread`], [`cache`], [`tools`],
//! [`translate`], [`storing`], [`engine`], [`failure`], [`kernel`], [`dispatch`], [`switch`], [`entry`]. `tests/layers` checks
//! that.

mod base;
mod cache;
mod dispatch;
mod engine;
pub mod entry;
mod failure;
mod kernel;
pub mod storing;
mod switch;
mod thread;
mod tools;
mod translate;

#[cfg(weft_freestanding)]
pub(crate) use failure::give_up::fail_with;
