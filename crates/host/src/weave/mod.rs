//! The patch weaver: puts snippets into a live process and takes them out again.
//!
//! `text` knows the code of modules, `points` where probes can be, `plan` (pure) where the jumps to
//! them go, `trampoline` (pure) what they lead to, `arena` and `values` hold memory in the target,
//! `edit` changes code, `weaver` brings them together.

mod arena;
mod clock;
mod edit;
mod family;
mod landing;
mod plan;
mod points;
mod read;
mod text;
mod trampoline;
mod values;
mod weaver;

pub(crate) use edit::{Edit, apply as apply_edits, outdated};
pub use points::Point;
pub use read::TimerValue;
pub(crate) use weaver::addresses_in;
pub use weaver::{Changes, Order, ProbeId, Refusal, Weaver};
