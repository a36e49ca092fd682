//! Where the cgroups of a process are, and what they leave it of memory.

use super::proc;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// A place where what a controller does to a process can be looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub version: Version,
    pub mount: PathBuf,
    pub cgroup: PathBuf,
}

/// The places of a process's cgroups of a controller, and of version 2, which has all.
pub(crate) fn hierarchies_of(pid: i32, controller: &str) -> Vec<Hierarchy> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let memberships = read(proc::dir(pid).join("cgroup"));
    hierarchies(&memberships, &read("/proc/self/mountinfo".into()), controller)
}

/// A limit of a cgroup over the memory of its processes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub path: PathBuf,
    pub limit: u64,
    /// What is used and cannot simply be dropped, as cached files can.
    pub used: u64,
}

/// The limits of all cgroups that a process is in.
pub(crate) fn memory(pid: i32) -> Vec<Memory> {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut found = Vec::new();
    for Hierarchy { version, mount, cgroup } in hierarchies_of(pid, "memory") {
        let (limit, usage, cached) = match version {
            Version::One => {
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
            }
            Version::Two => ("memory.max", "memory.current", "inactive_file "),
        };
        for path in cgroup.ancestors().take_while(|path| path.starts_with(&mount)) {
            let stat = fs::read_to_string(path.join("memory.stat")).unwrap_or_default();
            let cached = stat.lines().find_map(|line| line.strip_prefix(cached)?.parse().ok());
            if let (Some(limit), Some(used)) = (number(path.join(limit)), number(path.join(usage)))
            {
                let used = used.saturating_sub(cached.unwrap_or(0));
                found.push(Memory { path: path.into(), limit, used });
            }
        }
    }
    found
}

/// The same, from `/proc/PID/cgroup` and `mountinfo`.
fn hierarchies(memberships: &str, mounts: &str, controller: &str) -> Vec<Hierarchy> {
    memberships
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let version = match (id, controllers) {
                ("0", "") => Version::Two,
                _ if controllers.split(',').any(|name| name == controller) => Version::One,
                _ => return None,
            };
            let (root, mount) =
                mounts.lines().find_map(|line| mount_of(line, version, controller))?;
            // A mount may show only a part of the hierarchy.
            let below = Path::new(path).strip_prefix(root).ok()?;
            Some(Hierarchy { version, mount: mount.into(), cgroup: Path::new(mount).join(below) })
        })
        .collect()
}

/// The root and the mount point of a `mountinfo` line, if that is the controller's file system.
fn mount_of<'a>(line: &'a str, version: Version, controller: &str) -> Option<(&'a str, &'a str)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let file_system = kind.next()?;
    let found = match version {
        Version::One => {
            file_system == "cgroup" && kind.nth(1)?.split(',').any(|option| option == controller)
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
        let found =
            hierarchies("6:cpu:/x\n5:freezer:/docker/a/b\n0::/slice/c\n", MOUNTS, "freezer");
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
        assert!(hierarchies("5:freezer:/elsewhere\n", MOUNTS, "freezer").is_empty());
        assert!(hierarchies("5:freezer:/docker/a\n", "", "freezer").is_empty());
    }
}
