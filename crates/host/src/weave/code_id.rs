//! Code that is the same in several targets.

use crate::process::proc::FileId;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// What code is the same: the file that it is from, and a hash of the code and of what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeId {
    /// The file.
    pub file: FileId,
    /// The hash.
    pub hash: u64,
}

/// Bytes that are in use, by their hash.
static BYTES: LazyLock<Mutex<HashMap<u64, Weak<[u8]>>>> = LazyLock::new(Mutex::default);

/// The same bytes, once for all targets: the code of a library is that of every process.
pub fn bytes(read: Vec<u8>) -> Arc<[u8]> {
    let mut hasher = DefaultHasher::new();
    read.hash(&mut hasher);
    let mut all = BYTES.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, bytes| bytes.strong_count() > 0);
    let known = all.get(&hasher.finish()).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| **known == *read) {
        return known;
    }
    let bytes: Arc<[u8]> = read.into();
    all.insert(hasher.finish(), Arc::downgrade(&bytes));
    bytes
}
