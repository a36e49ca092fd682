//! The few capabilities that matter here.

use std::fmt;

/// The right to trace processes of others.
pub(crate) const SYS_PTRACE: u32 = 19;
/// The right, among much else, to read seccomp filters.
pub(crate) const SYS_ADMIN: u32 = 21;

/// A set of capabilities, as `/proc/PID/status` prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities(pub u64);

impl Capabilities {
    pub fn has(self, capability: u32) -> bool {
        self.0 >> capability & 1 == 1
    }

    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [(SYS_PTRACE, "CAP_SYS_PTRACE"), (SYS_ADMIN, "CAP_SYS_ADMIN")];
        let held: Vec<_> =
            known.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name).collect();
        f.write_str(&if held.is_empty() {
            "none that weft could use".into()
        } else {
            held.join(", ")
        })
    }
}
