//! Slabs of children that have ended, for those that come. A program may fork any number of children, and
//! there are slabs for so many only.

use super::weaver::Weaver;
use crate::process::proc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use weft_snippet::Datum;
use weft_snippet::layout::Place;

/// How long to rest between two looks. A machine forks some thousand children in a second at most.
const REST: Duration = Duration::from_millis(50);

/// How often it is seen to which libraries there are: once in so many looks.
const LOOKS_PER_UPDATE: u32 = 10;

/// Looks after the slabs of a weaver for as long as it is there.
pub fn keep(weaver: &Arc<Mutex<Weaver>>) {
    let weaver = Arc::downgrade(weaver);
    let keeper = thread::Builder::new().name("weft-keeper".into()).spawn(move || {
        for look in 1_u32.. {
            thread::sleep(REST);
            let Some(weaver) = weaver.upgrade() else { return };
            let Ok(mut weaver) = weaver.lock() else { return };
            weaver.return_slabs();
            if look.is_multiple_of(LOOKS_PER_UPDATE) {
                weaver.update_stack_tables();
            }
        }
    });
    // Where no thread can be started, slabs run out: reading says so.
    drop(keeper);
}

impl Weaver {
    /// Makes the unwind rules that the target has those of its code as it is now, if it has any.
    fn update_stack_tables(&mut self) {
        if self.stack_tables.base().is_some() {
            // Where that fails, the process is about to end.
            let _ = self.stack_tables.update(self.pid);
        }
    }

    /// Puts what ended children have measured together where slabs become scarce, and gives their slabs
    /// to others.
    fn return_slabs(&mut self) {
        for (index, values) in self.values.iter_mut().enumerate() {
            if !values.are_scarce() {
                continue;
            }
            // First whose they are, then who lives: so nobody is missed who came in between.
            let mut ended = values.processes();
            ended.remove(&self.own_pid);
            let Ok(living) = proc::own_pids() else { return };
            ended.retain(|pid| !living.contains(pid));
            let probes = self.probes.values().filter(|probe| probe.values == index);
            let data: Vec<(&Datum, Place)> = probes.flat_map(|probe| probe.placed()).collect();
            values.retire(&ended, &data);
        }
    }
}
