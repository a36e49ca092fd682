//! How threads leave the clone.

/// By what a thread has left the clone.
pub struct Exit {
    /// Where the program goes on.
    pub target: u64,
    /// The branch that it left by, if that can be linked to its target; and its stub.
    pub site: u64,
    pub stub: u64,
    /// Which clone that was.
    pub epoch: u64,
    /// What the stub is marked with: the counter of its branch, if that counts once; where nothing is linked,
    /// whether it is the end of a block, not a branch.
    pub mark: u64,
}
