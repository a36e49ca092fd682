//! What happens when the engine cannot go on.

pub mod give_up;
pub mod report;
