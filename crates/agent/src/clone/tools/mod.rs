//! What the clone has that the program does not: snippets, counters, traces, breakpoints. Each has what is to be
//! written where; the translator writes it.

pub mod conditions;
pub mod halts;
pub mod recorder;
pub mod system_calls;
pub mod tracing;
pub mod watches;
pub mod weaving;
