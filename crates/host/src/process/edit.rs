//! Changing the code of a target.
//!
//! The threads that are in the program stand still meanwhile. Those that sleep in the kernel are not
//! woken for it, but one of them may wake at any time. So where there are any, each change takes three
//! steps: a breakpoint over its first byte, then the rest, then the first byte. A thread that wakes in
//! between and gets there waits at the breakpoint for weft, which traces it.

use super::memory;
use super::proc::{self, Tid};
use super::stopped::Stopped;
use crate::arch::instructions::BREAKPOINT;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Changes that lie no further apart than this are written together.
const NEARBY: u64 = 1024;

/// A change to code. It begins where an instruction begins, or is a single byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Where.
    pub at: TargetAddr,
    /// What is there.
    pub old: Vec<u8>,
    /// What shall be there; as long as the former.
    pub new: Vec<u8>,
}

impl Edit {
    /// The address after the last byte.
    pub fn end(&self) -> TargetAddr {
        self.at + self.old.len() as u64
    }

    /// This change, with what it would find if others, in the order of their addresses, were not made
    /// before it.
    pub fn before(&self, others: &[Self]) -> Self {
        let mut edit = self.clone();
        let first = others.partition_point(|other| other.end() <= self.at);
        for other in others[first..].iter().take_while(|other| other.at < self.end()) {
            for (offset, &byte) in other.old.iter().enumerate() {
                let at = (other.at.0 + offset as u64).checked_sub(self.at.0);
                if let Some(found) = at.and_then(|at| edit.old.get_mut(at as usize)) {
                    *found = byte;
                }
            }
        }
        edit
    }

    /// The change that undoes this one.
    pub fn reversed(self) -> Self {
        Self { at: self.at, old: self.new, new: self.old }
    }
}

/// A run of memory that holds some of the changes.
#[derive(Debug)]
struct Span {
    start: TargetAddr,
    bytes: Vec<u8>,
    edits: std::ops::Range<usize>,
}

/// The spans of changes that are in the order of their addresses.
fn spans(edits: &[Edit]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut end = TargetAddr(0);
    for (index, edit) in edits.iter().enumerate() {
        match spans.last_mut() {
            Some(span) if edit.at.0.saturating_sub(end.0) <= NEARBY => span.edits.end = index + 1,
            _ => spans.push(Span { start: edit.at, bytes: Vec::new(), edits: index..index + 1 }),
        }
        end = end.max(edit.end());
        if let Some(span) = spans.last_mut() {
            span.bytes.resize((end - span.start) as usize, 0);
        }
    }
    spans
}

/// The memory of a process, for writing to code. It stays that of the program that the process runs
/// now, whatever it runs later.
#[derive(Debug)]
pub struct CodeWriter {
    pid: Tid,
    file: File,
}

impl CodeWriter {
    /// Opens the memory of a process.
    pub fn open(pid: Tid) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(|e| proc::unreadable(pid, "mem", &e))?;
        Ok(Self { pid, file })
    }

    pub(crate) fn write(&self, at: TargetAddr, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at.0).map_err(|e| {
            // The memory of one that is ending goes before it does.
            if e.kind() == std::io::ErrorKind::WriteZero {
                return Error::new(ErrorKind::TargetGone, format!("process {} ended", self.pid))
                    .why("its memory was gone when weft wanted to change its code");
            }
            Error::new(
                ErrorKind::SystemCall,
                format!("the code of process {} at {at} cannot be changed", self.pid),
            )
            .why(e.to_string())
            .advice("is the kernel locked down (proc_mem.force_override)?")
        })
    }
}

/// The code that changes are to be made to, as it is.
#[derive(Debug)]
pub struct Found {
    spans: Vec<Span>,
    /// The indexes of the changes that cannot be made because something else stands there.
    pub outdated: Vec<usize>,
}

/// Looks at the code of a process that changes, in the order of their addresses, are to be made to.
pub fn look(pid: Tid, edits: &[Edit]) -> Result<Found> {
    let mut spans = spans(edits);
    let pieces: Vec<_> = spans.iter().map(|s| (s.start, s.bytes.len())).collect();
    let mut outdated = Vec::new();
    for (span, read) in spans.iter_mut().zip(memory::read_many(pid, &pieces)?) {
        let is_whole = read.is_some();
        span.bytes = read.unwrap_or_default();
        for index in span.edits.clone() {
            let edit = &edits[index];
            let offset = (edit.at - span.start) as usize;
            let there = span.bytes.get(offset..).is_some_and(|b| b.starts_with(&edit.old));
            // A span is read as a whole; what is left of an unmapped one may still be there.
            if !there
                && (is_whole
                    || memory::read(pid, edit.at, edit.old.len()).ok().as_deref()
                        != Some(&edit.old[..]))
            {
                outdated.push(index);
            }
        }
    }
    Ok(Found { spans, outdated })
}

/// Which of the changes cannot be made because something else stands there now: their indexes.
pub fn outdated(pid: Tid, edits: &[Edit]) -> Result<Vec<usize>> {
    Ok(look(pid, edits)?.outdated)
}

/// Makes changes to the code of a held process that are not outdated. They must be in the order of
/// their addresses and must not overlap.
pub fn apply(stopped: &mut Stopped, edits: &[Edit]) -> Result<()> {
    let found = look(stopped.pid(), edits)?;
    if found.outdated.is_empty() {
        return write(stopped, edits, found);
    }
    let outdated: BTreeSet<usize> = found.outdated.into_iter().collect();
    let right = edits.iter().enumerate().filter(|(index, _)| !outdated.contains(index));
    let right: Vec<Edit> = right.map(|(_, edit)| edit.clone()).collect();
    let found = look(stopped.pid(), &right)?;
    write(stopped, &right, found)
}

/// Makes changes, none of which is outdated, to the code of a held process that was looked at.
pub fn write(stopped: &mut Stopped, edits: &[Edit], found: Found) -> Result<()> {
    if edits.is_empty() {
        return Ok(());
    }
    let pid = stopped.pid();
    let writer = CodeWriter::open(pid)?;
    let mut spans = found.spans;
    let mut pass = |change: fn(&Edit, &mut [u8]), all: bool| -> Result<()> {
        for span in &mut spans {
            let mut first = usize::MAX;
            let mut last = 0;
            for edit in &edits[span.edits.clone()] {
                if all || edit.old.len() > 1 {
                    let offset = (edit.at - span.start) as usize;
                    change(edit, &mut span.bytes[offset..offset + edit.new.len()]);
                    first = first.min(offset);
                    last = last.max(offset + edit.new.len());
                }
            }
            if first < last {
                writer.write(span.start + first as u64, &span.bytes[first..last])?;
            }
        }
        Ok(())
    };
    let outcome = if stopped.guard()? {
        let is_ours = |at: TargetAddr| edits.binary_search_by_key(&at, |edit| edit.at).is_ok();
        pass(|_, bytes| bytes[0] = BREAKPOINT, false)?;
        // From here on every thread either is stopped, or sleeps and will run into a breakpoint. Where
        // one cannot be stopped, the breakpoints must go all the same.
        let outcome = stopped.stop_awake(is_ours);
        pass(|edit, bytes| bytes[1..].copy_from_slice(&edit.new[1..]), false)?;
        pass(|edit, bytes| bytes[0] = edit.new[0], true)?;
        outcome.and_then(|()| stopped.stop_awake(is_ours))
    } else {
        pass(|edit, bytes| bytes.copy_from_slice(&edit.new), true)
    };
    for &child in stopped.newborn() {
        // It has a copy of code that was not changed yet, or half.
        let changed = CodeWriter::open(child)
            .and_then(|writer| edits.iter().try_for_each(|edit| writer.write(edit.at, &edit.new)));
        if proc::is_alive(child) {
            changed?;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(at: u64, old: &[u8], new: &[u8]) -> Edit {
        Edit { at: TargetAddr(at), old: old.to_vec(), new: new.to_vec() }
    }

    #[test]
    fn neighbours_share_a_span() {
        let edits = [
            edit(100, &[1; 5], &[2; 5]),
            edit(105, &[1], &[2]),
            edit(1000, &[1; 5], &[2; 5]),
            edit(9000, &[1; 5], &[2; 5]),
        ];
        let spans: Vec<_> = spans(&edits)
            .into_iter()
            .map(|span| (span.start.0, span.bytes.len(), span.edits))
            .collect();
        assert_eq!(spans, [(100, 905, 0..3), (9000, 5, 3..4)]);
    }

    #[test]
    fn what_others_will_undo_is_expected() {
        let undo = [edit(98, &[7, 8, 9], &[1, 1, 1]), edit(104, &[5; 5], &[1; 5])];
        let make = edit(100, &[1; 5], &[2; 5]);
        assert_eq!(make.before(&undo), edit(100, &[9, 1, 1, 1, 5], &[2; 5]));
    }

    #[test]
    fn what_is_no_longer_there_is_found() {
        let code = [1u8, 2, 3, 4, 5, 6];
        let at = code.as_ptr() as u64;
        let edits =
            [edit(at, &[1, 2], &[0, 0]), edit(at + 2, &[9], &[0]), edit(at + 4, &[5], &[0])];
        assert_eq!(outdated(std::process::id() as Tid, &edits).unwrap(), [1]);
    }
}
