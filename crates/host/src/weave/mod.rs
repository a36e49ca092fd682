//! The patch weaver: puts snippets into a live process and takes them out again.
//!
//! `text` knows the code of modules, `points` where probes can be (`shared`: in all targets of the same
//! code), `plan` (pure) where the jumps to them go, `relocated` (pure) how a whole function is laid out
//! anew, `trampoline` (pure) what they lead to, `arena` and `values` hold memory in the target
//! (`extents`: what is free of it), `site` compiles snippets for their places, `edit` changes code,
//! `batch` takes new probes in, `reloaded` sees that code with probes was loaded again, `weaver` prepares what is to be there, `apply` puts it there, `listing`
//! shows it, `read` and `sample` read what was measured; `calibrate` and `price` predict what it costs.

mod apply;
mod arena;
mod batch;
mod calibrate;
mod changes;
mod clock;
mod code_id;
mod extents;
mod family;
mod functions;
mod goroutines;
mod landing;
mod listing;
mod messages;
mod padding;
mod parts;
mod plan;
#[cfg(test)]
mod plan_tests;
mod points;
mod price;
mod read;
mod reading;
mod reloaded;
mod relocated;
mod sample;
mod search;
mod segments;
mod shared;
mod site;
mod terrain;
mod text;
mod trampoline;
mod upkeep;
mod values;
mod weaver;
mod window;
mod woven;

pub use batch::{Batch, Item, Order};
pub use changes::Changes;
pub(crate) use messages::refusal as refusal_in_clone;
pub use points::{Point, Selection};
pub use price::usual_costs;
pub use read::TimerValue;
pub use sample::Sampler;
pub(crate) use upkeep::keep;
pub use values::Whose;
pub use weaver::{FoundPoints, Weaver};
pub use woven::{ProbeId, Refusal};
