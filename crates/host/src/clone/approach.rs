//! Making sure that a running process can be taken over.

use super::reclaim::reclaim;
use crate::base::worker::Worker;
use crate::process::proc::{self, Tid};
use crate::process::stopped::{Reach, Stopped, is_weft};
use crate::process::turn::Turn;
use crate::visited::engine::refuse_clone;
use crate::visited::leftovers::{abandoned, abandoned_probes, is_wefts, living_owner};
use crate::visited::loading;
use crate::visited::owner::Named;
use crate::{Error, ErrorKind, Result, checks};

/// Fails if another weft is in a process: of two, neither would know what the other does.
pub fn refuse_others(pid: Tid) -> Result<()> {
    let maps = proc::maps(pid)?;
    refuse_clone(pid, &maps)?;
    if is_weft(pid) {
        return Err(Error::new(ErrorKind::UnsupportedTarget, format!("process {pid} is a weft"))
            .why("what it shares with its targets would go when it leaves its clone")
            .advice("measure it by probes: --weaver patch"));
    }
    if !maps.iter().any(is_wefts) {
        return Ok(());
    }
    let owner = living_owner(pid, &maps).unwrap_or(Named::Unknown);
    Err(Error::new(ErrorKind::AlreadyTraced, format!("another weft is in process {pid}"))
        .why(format!("{} measures it by probes in its code", owner.whose()))
        .advice("end that one first, or measure without the clone: --weaver patch"))
}

/// Makes sure that a running process can be taken over, and keeps other wefts from it meanwhile.
pub fn approach(pid: Tid) -> Result<Turn> {
    reclaim(pid)?;
    clear_leftovers(pid)?;
    // Before the checks: one of them is whether it is traced.
    let turn = Turn::take(pid);
    checks::preflight(pid)?;
    // One that another weft has is not stopped for nothing.
    refuse_others(pid)?;
    turn
}

/// Takes out of a process what wefts have left in it that were killed.
pub fn clear_leftovers(pid: Tid) -> Result<()> {
    // What the process is, and whether it can be attached to, is for others to say.
    let Ok(maps) = proc::maps(pid) else { return Ok(()) };
    let has_leftovers =
        !abandoned(pid, &maps).is_empty() || !abandoned_probes(pid, &maps).is_empty();
    if has_leftovers && living_owner(pid, &maps).is_none() {
        let turn = Turn::take(pid);
        checks::preflight(pid)?;
        let _turn = turn?;
        let agent = loading::load(pid, |number| {
            held(pid, move |stopped| loading::try_load(stopped, number))
        })?;
        return match held(pid, move |stopped| agent.unload(stopped)) {
            Err(e) if matches!(e.kind, ErrorKind::TargetGone | ErrorKind::NoSuchProcess) => Ok(()),
            outcome => outcome,
        };
    }
    Ok(())
}

/// Stops threads of a process, does something with them, and lets them go.
fn held<R: Send + 'static>(
    pid: Tid,
    act: impl FnOnce(&mut Stopped) -> Result<R> + Send + 'static,
) -> Result<R> {
    Worker::<Stopped>::new().run(move |stopped| {
        *stopped = Reach::Some.stop(pid)?;
        let outcome = act(stopped);
        stopped.release();
        outcome
    })
}
