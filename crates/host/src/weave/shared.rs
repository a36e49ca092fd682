//! Code, and points in it, once for all targets that run it.
//!
//! To find the points of a function, its control flow has to be followed. Of twenty processes of one
//! server, and of the C library that all programs have, that is the same work again and again.

use super::points::{Point, Selection};
use crate::proc::FileId;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use weft_snippet::PointKind;

/// How many addresses are kept at most.
const KEPT: usize = 1 << 20;

/// What code is the same: the file that it is from, and a hash of the code and of what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeId {
    /// The file.
    pub file: FileId,
    /// The hash.
    pub hash: u64,
}

/// Points of a function, and where there may be more that are not known; relative to a module's bias.
#[derive(Debug)]
struct Found {
    points: Box<[Point]>,
    unknown: Box<[u64]>,
}

/// By the code, where in it the function starts, and which points.
type Key = (CodeId, u64, Selection);

#[derive(Debug, Default)]
struct Shared {
    found: HashMap<Key, Arc<Found>>,
    addresses: usize,
}

/// Bytes that somebody has, by their hash.
static BYTES: LazyLock<Mutex<HashMap<u64, Weak<[u8]>>>> = LazyLock::new(Mutex::default);

/// The same bytes, once for all who have them: the code of a library is that of every process.
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

static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// The points of the function at `start`, as found before or now, in a module at `bias`.
pub fn points(
    code: CodeId,
    bias: u64,
    start: u64,
    selection: Selection,
    find: impl FnOnce() -> (Vec<Point>, Vec<u64>),
) -> (Vec<Point>, Vec<u64>) {
    let key = (code, start.wrapping_sub(bias), selection);
    let known = SHARED.lock().unwrap_or_else(PoisonError::into_inner).found.get(&key).cloned();
    if let Some(known) = known {
        let points = known.points.iter().map(|point| moved(point, bias)).collect();
        return (points, known.unknown.iter().map(|at| at.wrapping_add(bias)).collect());
    }
    let (points, unknown) = find();
    let back = bias.wrapping_neg();
    let found = Found {
        points: points.iter().map(|point| moved(point, back)).collect(),
        unknown: unknown.iter().map(|at| at.wrapping_add(back)).collect(),
    };
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.addresses += 1 + found.points.len() + found.unknown.len();
    if shared.addresses > KEPT {
        *shared = Shared::default();
    }
    shared.found.insert(key, Arc::new(found));
    (points, unknown)
}

/// A point of code that lies elsewhere by a distance.
fn moved(point: &Point, by: u64) -> Point {
    // Only an edge has an address there.
    let target =
        if point.kind == PointKind::Edge { point.target.wrapping_add(by) } else { point.target };
    Point { address: point.address.wrapping_add(by), target, ..*point }
}
