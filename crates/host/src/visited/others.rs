//! What other wefts have in a target: which functions are theirs.
//!
//! Each weft notes what it has changed in the code, in memory of the target ([`weft_abi::ProbesHead`]). Another
//! one reads that, and leaves those functions alone; nothing else lets it tell changed code from the program's
//! own. To be read only in one's [`crate::process::turn::Turn`].

use super::leftovers::heads;
use super::owner::Named;
use crate::process::proc::{Mapping, Tid};
use crate::{Error, ErrorKind, Result, TargetAddr};
use weft_abi::Change;

/// A change to the code that another weft has made. One that changes nothing says that a function is its own.
#[derive(Clone, Debug)]
pub struct OtherChange {
    /// The change.
    pub change: Change,
    /// Whose it is, in words.
    pub whose: String,
}

/// The changes of all other wefts, those of other sessions of this process included: of all whose notes are
/// not `own`, by where these begin.
pub fn changes_of_others(
    pid: Tid,
    maps: &[Mapping],
    own: impl Fn(TargetAddr) -> bool,
) -> Result<Vec<OtherChange>> {
    let mut found = Vec::new();
    for head in heads(pid, maps).filter(|head| !own(head.at)) {
        let whose = match head.owner {
            // It would be gone otherwise: see [`crate::target::Target`].
            Named::Dead => "a weft that was killed, in whose code a thread still sleeps,".into(),
            owner => owner.whose(),
        };
        if !head.is_known {
            return Err(Error::new(
                ErrorKind::AlreadyTraced,
                format!("another version of weft has probes in process {pid}"),
            )
            .why(format!("they are those of {whose}, and cannot be told from the program"))
            .advice("end that one first"));
        }
        let changes = head.changes().into_iter();
        found.extend(changes.map(|change| OtherChange { change, whose: whose.clone() }));
    }
    Ok(found)
}
