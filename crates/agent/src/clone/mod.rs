//! The clone engine: the program runs from a clone of its code that is made as it is needed, without being able to
//! detect it. See `docs/explanation/clone-engine.md`.
//!
//! The modules are layers, of which each uses only those before it: [`base`], [`thread`], [`cache`], [`tools`],
//! [`translate`], [`engine`], [`failure`], [`kernel`], [`dispatch`], [`switch`], [`entry`]. `tests/layers` checks
//! that.

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
