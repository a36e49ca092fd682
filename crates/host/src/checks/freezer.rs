//! Frozen cgroups: a frozen thread cannot be stopped, only waited for.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts;

/// A frozen cgroup, and the file and word that thaw it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frozen {
    pub cgroup: PathBuf,
    pub thaw: String,
}

/// The cgroup that freezes `pid`, if one does.
pub(super) fn frozen(pid: i32) -> Option<Frozen> {
    let memberships = fs::read_to_string(facts::dir(pid).join("cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    hierarchies(&memberships, &mounts).iter().find_map(|hierarchy| match hierarchy.version {
        Version::One => frozen_by_v1(hierarchy),
        Version::Two => frozen_by_v2(hierarchy),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A place where the freezer of a process can be looked up.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
    cgroup: PathBuf,
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
        .find(|cgroup| facts::read_number(cgroup.join(switch)) == Some(1))
        .unwrap_or(&hierarchy.cgroup)
        .to_path_buf()
}

/// Where the cgroups that can freeze are mounted, from `/proc/PID/cgroup` and `mountinfo`.
fn hierarchies(memberships: &str, mounts: &str) -> Vec<Hierarchy> {
    memberships
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let version = match (id, controllers) {
                ("0", "") => Version::Two,
                _ if controllers.split(',').any(|name| name == "freezer") => Version::One,
                _ => return None,
            };
            let (root, mount) = mounts.lines().find_map(|line| mount_of(line, version))?;
            // A mount may show only a part of the hierarchy.
            let below = Path::new(path).strip_prefix(root).ok()?;
            Some(Hierarchy { version, mount: mount.into(), cgroup: Path::new(mount).join(below) })
        })
        .collect()
}

/// The root and the mount point of a `mountinfo` line, if that is the freezer's file system.
fn mount_of(line: &str, version: Version) -> Option<(&str, &str)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let file_system = kind.next()?;
    let found = match version {
        Version::One => {
            file_system == "cgroup" && kind.nth(1)?.split(',').any(|option| option == "freezer")
        }
        Version::Two => file_system == "cgroup2",
    };
    let mut place = place.split(' ').skip(3);
    let (root, mount) = (place.next()?, place.next()?);
    found.then_some((root, mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 20 0:25 / /proc rw - proc proc rw
33 24 0:29 /docker/a /cg/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer
34 24 0:30 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn both_versions_are_found_under_their_mounts() {
        let found = hierarchies("6:cpu:/x\n5:freezer:/docker/a/b\n0::/slice/c\n", MOUNTS);
        let expected = [
            (Version::One, "/cg/freezer", "/cg/freezer/b"),
            (Version::Two, "/cg/unified", "/cg/unified/slice/c"),
        ];
        assert_eq!(
            found,
            expected.map(|(version, mount, cgroup)| Hierarchy {
                version,
                mount: mount.into(),
                cgroup: cgroup.into()
            })
        );
    }

    #[test]
    fn what_a_mount_does_not_show_is_not_guessed() {
        assert!(hierarchies("5:freezer:/elsewhere\n", MOUNTS).is_empty());
        assert!(hierarchies("5:freezer:/docker/a\n", "").is_empty());
    }
}
