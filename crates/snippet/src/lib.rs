//! Snippets: what is measured at a point. A typed, loop-free language, and its compiler to x86-64.
//! IR in, bytes out; knows nothing of processes.
#![no_std]

extern crate alloc;
