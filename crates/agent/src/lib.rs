//! The part of weft that runs inside the target.
#![cfg_attr(not(test), no_std)]
