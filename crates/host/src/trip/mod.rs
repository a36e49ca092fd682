//! Sending a thread of the target to do something for weft, in the target.
//!
//! `room` and `place` find where code and memory can go, `journey` sends a thread and brings it back, `sharing`
//! gets memory that both sides have, `image` is what is put there.

pub mod image;
pub mod journey;
pub mod place;
pub mod room;
pub mod sharing;
