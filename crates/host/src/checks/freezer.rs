//! Frozen cgroups: a frozen thread cannot be stopped, only waited for.

use crate::process::cgroup::{Hierarchy, Version, hierarchies_of};
use crate::process::proc;
use std::fs;
use std::path::PathBuf;

/// A frozen cgroup, and the file and word that thaw it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frozen {
    pub cgroup: PathBuf,
    pub thaw: String,
}

/// The cgroup that freezes `pid`, if one does.
pub(super) fn frozen(pid: i32) -> Option<Frozen> {
    hierarchies_of(pid, "freezer").iter().find_map(|hierarchy| match hierarchy.version {
        Version::One => frozen_by_v1(hierarchy),
        Version::Two => frozen_by_v2(hierarchy),
    })
}

fn frozen_by_v1(hierarchy: &Hierarchy) -> Option<Frozen> {
    let state = fs::read_to_string(hierarchy.cgroup.join("freezer.state")).ok()?;
    (state.trim() != "THAWED").then(|| {
        let cgroup = guilty(hierarchy, "freezer.self_freezing");
        let thaw = format!("echo THAWED | sudo tee {}", cgroup.join("freezer.state").display());
        Frozen { cgroup, thaw }
    })
}

fn frozen_by_v2(hierarchy: &Hierarchy) -> Option<Frozen> {
    let events = fs::read_to_string(hierarchy.cgroup.join("cgroup.events")).ok()?;
    events.lines().any(|line| line == "frozen 1").then(|| {
        let cgroup = guilty(hierarchy, "cgroup.freeze");
        let thaw = format!("echo 0 | sudo tee {}", cgroup.join("cgroup.freeze").display());
        Frozen { cgroup, thaw }
    })
}

/// The cgroup or the ancestor of it that was asked to freeze: the others merely follow.
fn guilty(hierarchy: &Hierarchy, switch: &str) -> PathBuf {
    hierarchy
        .cgroup
        .ancestors()
        .take_while(|cgroup| cgroup.starts_with(&hierarchy.mount))
        .find(|cgroup| proc::read_number(cgroup.join(switch)) == Some(1))
        .unwrap_or(&hierarchy.cgroup)
        .to_path_buf()
}
