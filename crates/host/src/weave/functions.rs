//! What is known of a module's functions without looking at their code.

use super::code_id::CodeId;
use super::padding::code_length;
use super::segments::Segment;
use crate::process::modules::Module;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use weft_code::Convention;
use weft_symbols::{FunctionKind, FunctionTable, Origin};

/// A function that nothing names longer than this is not believed.
const LONGEST: u64 = 16 << 20;

/// Functions that never come back, by the names that the linker knows.
const NEVER_RETURN: [&str; 34] = [
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "__abort",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "__libc_fatal",
    "__libc_start_main",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "err",
    "errx",
    "verr",
    "verrx",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
    "__cxa_call_unexpected",
    "__cxa_pure_virtual",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__clang_call_terminate",
    "rust_begin_unwind",
];

/// Beginnings of such names: the C++ library's throwing helpers and Rust's panics.
const NEVER_RETURN_PREFIXES: [&str; 3] = ["_ZSt17__throw_", "_ZSt20__throw_", "_ZN4core9panicking"];

/// Functions that are entered elsewhere than at their start: a goroutine returns to the second byte of
/// this one when it ends.
const ENTERED_INSIDE: [&str; 2] = ["runtime.goexit", "runtime.goexit.abi0"];

/// Beginnings of the names of functions of Go's that its runtime does not interrupt.
const UNPREEMPTIBLE: [&str; 3] = ["runtime.", "runtime/internal/", "reflect."];

/// What is known of a function without looking at its code.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Where it starts.
    pub start: u64,
    /// The address after its end.
    pub end: u64,
    /// Whether it is a part of another function that was placed elsewhere.
    pub is_cold: bool,
    /// Whether it is entered elsewhere than at its start.
    pub is_entered_inside: bool,
    /// Whether only the unwind tables have it.
    pub is_unnamed: bool,
    /// Whether it ever comes back.
    pub returns: bool,
    /// Whether it only leads to a function of another module.
    pub is_stub: bool,
    /// Whether it is Go's.
    pub is_go: bool,
    /// Whether Go's runtime may interrupt it anywhere, and go on from there later.
    pub is_preemptible: bool,
}

impl Known {
    /// How it is called.
    pub fn convention(&self) -> Convention {
        if self.is_go { Convention::Go } else { Convention::SystemV }
    }
}

/// What points depend on: the code, what data lies beside it, and where functions are known to be.
pub fn code_id(module: &Module, segments: &[Segment], functions: &[Known]) -> CodeId {
    let mut hasher = DefaultHasher::new();
    // Data may hold addresses, which differ from process to process; the build tells it from other data.
    segments.iter().filter(|s| s.is_code).for_each(|segment| segment.bytes.hash(&mut hasher));
    module.build_id.hash(&mut hasher);
    for known in functions {
        [known.start, known.end].map(|at| at.wrapping_sub(module.bias)).hash(&mut hasher);
        known.returns.hash(&mut hasher);
    }
    CodeId { file: module.file, hash: hasher.finish() }
}

/// Whether a name of a program that has Go in it is Go's: with a package. Compilers of C put a point only
/// before words of their own.
fn is_name_of_go(name: &str) -> bool {
    const OTHERS: [&str; 6] = ["cold", "part", "isra", "constprop", "lto_priv", "llvm"];
    name.split_once('.').is_some_and(|(package, rest)| {
        !package.is_empty() && !OTHERS.iter().any(|word| rest.starts_with(word))
    })
}

/// The functions, and the parts of them that were placed elsewhere, by the start of the function.
pub type Functions = (Vec<Known>, HashMap<u64, Vec<Range<u64>>>);

pub fn known_functions(
    table: &FunctionTable,
    bias: u64,
    segments: &[Segment],
    unwound: &[u64],
    has_go: bool,
) -> Functions {
    let mut functions: Vec<Known> = Vec::with_capacity(table.len());
    // Several files may have a function of the same name.
    let mut by_name: HashMap<&str, Option<u64>> = HashMap::new();
    let mut cold: Vec<(&str, Range<u64>)> = Vec::new();
    for function in table.iter() {
        let start = bias.wrapping_add(function.offset());
        let Some(segment) = segments.iter().find(|s| s.is_code && s.range().contains(&start))
        else {
            continue;
        };
        let name = function.name();
        let is_stub = function.kind() == FunctionKind::Plt;
        let base = name.strip_suffix("@plt").unwrap_or(name);
        let base = base.split('@').next().unwrap_or(base);
        let never = NEVER_RETURN.contains(&base)
            || NEVER_RETURN_PREFIXES.iter().any(|prefix| base.starts_with(prefix));
        let size = function.size();
        let end = if size == 0 || size > LONGEST { start } else { start + size };
        let is_go =
            function.origin() == Origin::GoTable || has_go && !is_stub && is_name_of_go(name);
        let is_cold = name.contains(".cold");
        if is_cold {
            cold.push((name.split(".cold").next().unwrap_or(name), start..end));
        } else {
            let is_only = !by_name.contains_key(name);
            by_name.insert(name, is_only.then_some(start));
        }
        functions.push(Known {
            start,
            end: end.min(segment.range().end),
            is_cold,
            is_entered_inside: ENTERED_INSIDE.contains(&name),
            is_unnamed: function.origin() == Origin::Frames,
            returns: !never,
            is_stub,
            is_go,
            is_preemptible: is_go && !UNPREEMPTIBLE.iter().any(|prefix| name.starts_with(prefix)),
        });
    }
    functions.sort_unstable_by_key(|f| f.start);
    // One whose length nothing tells ends where the next begins, or where padding before it does. What
    // calls to libraries share before the first of them has no name, but unwind tables have it.
    for index in (0..functions.len()).rev() {
        let start = functions[index].start;
        if functions[index].end == start
            && let Some(segment) = segments.iter().find(|s| s.range().contains(&start))
        {
            let limit = segment.range().end;
            let next = functions.get(index + 1).map_or(limit, |next| next.start.min(limit));
            let unwound = unwound.get(unwound.partition_point(|&at| at <= start));
            let next = unwound.map_or(next, |&unwound| unwound.min(next));
            let code =
                &segment.bytes[(start - segment.start) as usize..(next - segment.start) as usize];
            functions[index].end = start + code_length(code);
        }
    }
    let mut cold_parts: HashMap<u64, Vec<Range<u64>>> = HashMap::new();
    for (name, range) in cold {
        if let Some(&Some(start)) = by_name.get(name) {
            cold_parts.entry(start).or_default().push(range);
        }
    }
    (functions, cold_parts)
}
