//! Snippets: what is measured at a point. A typed, loop-free language, and its compiler to x86-64.
//! IR in, bytes out; knows nothing of processes.
//!
//! ```
//! use weft_snippet::{PointKind, Weave};
//! let weave = Weave::parse(
//!     "counter calls
//!      timer busy wall
//!      histogram sizes log2
//!      at entry { calls += 1; start busy; if arg(2) > 4096 { sizes << arg(2) } }
//!      at exit  { stop busy }",
//! );
//! assert_eq!(weave.unwrap().body(PointKind::Entry).unwrap().len(), 3);
//! ```
//!
//! # The language
//!
//! A newline or `;` ends a line; `#` begins a comment; inside parentheses a line may go on.
//!
//! | Declaration                                | is                                              |
//! |--------------------------------------------|-------------------------------------------------|
//! | `counter NAME [per point \| shared]`       | a sum                                           |
//! | `timer NAME wall \| cpu`                   | the time from the outermost start to its stop   |
//! | `histogram NAME log2`                      | a distribution by number of bits                |
//! | `histogram NAME linear LOW STEP COUNT`     | a distribution in equal steps                   |
//! | `map NAME[1 \| 2] CAPACITY`                | sums by one or two keys                         |
//! | `ring NAME(FIELD, ...) CAPACITY [blocking]`| records                                         |
//! | `local NAME`                               | a variable of each thread                       |
//! | `mark NAME`                                | time stamps of each thread, by frame            |
//!
//! Statements, alone or in `at entry|exit|call|after|block|edge|insn|load|store|syscall|sysreturn { ... }`:
//! `x += e`, `x -= e`, `m[k] += e`, `m[k1, k2] += e`, `h << e`, `start t`, `stop t`,
//! `emit r(e, ...)`, `let v = e`, `local = e`, `stamp m`, `call ADDRESS(e, ...)`,
//! `if e { ... } else if e { ... } else { ... }`; and what changes the program: `arg(n) = e`, `result = e`,
//! `return e`.
//!
//! Values are 64-bit integers that wrap, or doubles. Operators bind as in C: `|| && | ^ &`,
//! `== !=`, `< <= > >=`, `<< >>`, `+ -`, `* / %`, `- ! ~`. Division by 0 gives 0; shifts count
//! modulo 64. Functions: `min max udiv urem shr ult ule ugt uge`, `float int bits frombits`,
//! `load8` to `load64` and `loads8` to `loads32` (which give 0 where nothing can be read),
//! `since(mark)`, `arg(n)`, `reg(rax)`, `call ADDRESS(e, ...)`. Words: `result caller thread
//! address frame access.address access.size syscall.number now ticks cpu`.
//!
//! # From text to code
//!
//! [`Weave::parse`] reads and verifies; [`runtime`] makes the routines that snippets share;
//! [`layout::Allocator`] gives each datum a place; [`compile`] makes code for one [`Site`] in a main
//! piece, whose end falls through, and a cold one; [`read`] reads what was measured; [`interpret`]
//! says what a body means; [`cost`] what it will take.
#![no_std]

extern crate alloc;

mod asm;
mod compile;
mod cost;
mod facts;
mod interpret;
mod ir;
pub mod layout;
mod lex;
mod parse;
mod print;
pub mod read;
mod retire;
mod routine;
mod runtime;
mod site;
mod system_calls;
pub mod unwind;
mod verify;
mod walk;

pub use compile::{Compiled, Part, Refusal, compile, compile_all};
pub use cost::{Costs, Operation, cost, dearest};
pub use interpret::{World, interpret};
pub use ir::{
    Binary, Buckets, Call, Datum, DatumId, DatumKind, Expr, LetId, NAN, PointKind, Scope, Section,
    Statement, TimerClock, Type, Unary, Weave, Width,
};
pub use lex::Diagnostic;
pub use retire::renew;
pub use runtime::{CALL_OF_PROGRAM, Runtime, after_fault, runtime};
pub use site::{Clock, Engine, Env, OwnStack, Routines, Site, Source, ThreadId};
pub use system_calls::{GETPID, GETTID};
pub use verify::{At, MAX_OPERATIONS, Problem, permit, verify};
