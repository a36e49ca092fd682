//! What everything else stands on: addresses of the target, the error type, and weft's own threads.

pub mod addr;
pub mod descriptors;
pub mod error;
pub mod maker;
pub mod page;
pub mod processors;
pub mod worker;
