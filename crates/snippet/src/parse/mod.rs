//! From text to a weave.

mod declare;
mod parser;
mod words;
