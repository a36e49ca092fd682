//! The patch weaver: puts snippets into a live process and takes them out again.
//!
//! Code: `reading` reads a module (`segments`: its memory, `functions`: what symbols say, `parts`: which parts belong
//! together, `landing`: exceptions, `goroutines`), `text` is what is known of it, `points` where probes can be
//! (`shared`: in all targets of the same code, which `code_id` identifies).
//! Plans, which are pure: `window` is what they are made of, `plan` where jumps go, `search` how that is found,
//! `relocated` a whole function laid out anew, `trampoline` what jumps lead to; `terrain` shows a function to them.
//! Memory in the target: `arena` for code, `values` for what is measured (`extents`: what is free of it).
//! Probes: `site` compiles snippets for their places, `batch` takes new ones in, `weaver` prepares what is to be
//! there (`changes`), `apply` puts it there, `children` does so in forked processes, `messages` writes it for the engine
//! of a clone, `reloaded` sees that code was loaded again, `upkeep` frees slabs, `stack_tables` has
//! the unwind rules for snippets that take stacks. `listing` shows what is woven, `read`
//! and `sample` read what was measured; `calibrate` and `price` predict what it costs.

mod apply;
mod arena;
mod batch;
mod calibrate;
mod changes;
mod children;
mod clock;
mod code_id;
mod extents;
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
mod stack_tables;
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
