//! weft's side of the process boundary. Knows nothing of Python.

mod addr;
mod error;
pub mod symbols;

pub use addr::TargetAddr;
pub use error::{Error, ErrorKind, Result};
