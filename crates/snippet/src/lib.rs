//! Snippets: what is measured at a point. A typed, loop-free language, and its compiler to x86-64.
//! IR in, bytes out; knows nothing of processes.
//!
//! ```
//! use weft_snippet::{PointKind, Weave};
//! let weave = Weave::parse("counter calls\ncalls += 1").unwrap();
//! assert_eq!(weave.body(PointKind::Entry).unwrap().len(), 1);
//! ```
#![no_std]

extern crate alloc;

mod asm;
mod compile;
mod cost;
mod interpret;
mod ir;
pub mod layout;
mod parse;
mod print;
pub mod read;
mod runtime;
mod site;
mod verify;

pub use compile::{Compiled, Refusal, compile};
pub use cost::{Costs, Operation, cost, dearest};
pub use interpret::{World, interpret};
pub use ir::{
    Binary, Buckets, Call, Datum, DatumId, DatumKind, Expr, LetId, NAN, PointKind, Scope, Section,
    Statement, TimerClock, Type, Unary, Weave, Width,
};
pub use parse::Diagnostic;
pub use runtime::{Runtime, runtime};
pub use site::{Clock, Env, Routines, Site, Source};
pub use verify::{At, MAX_OPERATIONS, Problem, permit, verify};
