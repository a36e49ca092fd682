//! Code, and points in it, once for all targets that run it.
//!
//! To find the points of a function, its control flow has to be followed. Of twenty processes of one
//! server, and of the C library that all programs have, that is the same work again and again.

use super::code_id::CodeId;
use super::points::{Point, Selection};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use weft_snippet::PointKind;

/// How many addresses are kept at most.
const KEPT: usize = 1 << 20;

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
