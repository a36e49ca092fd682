//! What the clone has that the program does not.

pub mod halt;
pub mod recording;
pub mod tracing;
pub mod weaving;
