//! A program that was started, and stands at its entry until it is let go.

use super::launch::{self, Launch};
use super::proc::{self, Tid};
use super::stopped::Stopped;
use crate::Result;
use crate::base::worker::Worker;
use std::process::Child;

/// A program with its libraries loaded that has not begun; nothing was put into it.
#[derive(Debug)]
pub struct Entered {
    pid: Tid,
    hold: Option<Worker<Stopped>>,
}

impl Entered {
    /// Starts a program. One that ends while it is loaded has ended when this returns.
    pub fn launch(launch: Launch) -> Result<(Self, Child)> {
        let hold = Worker::<Stopped>::new();
        let child = hold.run(move |state| -> Result<Child> {
            let (child, stopped) = launch::launch(launch)?;
            *state = stopped;
            // Where it cannot be held, it is let go: it is not to be harmed.
            if let Ok(entry) = proc::entry(child.id() as Tid) {
                let _ = launch::run_to(state, entry);
            }
            Ok(child)
        })?;
        Ok((Self { pid: child.id() as Tid, hold: Some(hold) }, child))
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Lets it begin.
    pub fn release(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.run(Stopped::release);
        }
    }
}
