//! A trace as tables: one row for each access, block, branch, call, system call or event.

use std::collections::HashMap;

use crate::record::event;
use crate::replay::{Accesses, BranchKind, Replay, Step, What};
use crate::{Detail, Result};

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Loads and stores.
    Accesses,
    /// Blocks that were executed.
    Blocks,
    /// What they ended by.
    Branches,
    /// Calls and returns.
    Calls,
    /// System calls.
    SystemCalls,
    /// Threads, signals, and what was lost.
    Events,
}

impl View {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("accesses", Self::Accesses),
        ("blocks", Self::Blocks),
        ("branches", Self::Branches),
        ("calls", Self::Calls),
        ("system_calls", Self::SystemCalls),
        ("events", Self::Events),
    ];
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Values {
    /// Of one byte.
    Bytes(Vec<u8>),
    /// Of four bytes.
    Words(Vec<u32>),
    /// Of eight bytes.
    Longs(Vec<u64>),
    /// Of eight bytes, with a sign.
    Signed(Vec<i64>),
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
    /// The rows whose value is not known.
    pub unknown: Vec<usize>,
}

impl Column {
    fn known(name: &'static str, values: Values) -> Self {
        Self { name, values, unknown: Vec::new() }
    }

    fn optional(name: &'static str, values: Vec<Option<u64>>) -> Self {
        let unknown = (0..).zip(&values).filter(|(_, value)| value.is_none());
        let unknown = unknown.map(|(row, _)| row).collect();
        let values = values.into_iter().map(Option::unwrap_or_default).collect();
        Self { name, values: Values::Longs(values), unknown }
    }
}

/// Goes through a trace by the rows of a table.
#[derive(Debug)]
pub struct Table {
    view: View,
    replay: Replay,
    /// System calls that are under way, and where each thread was last.
    open: HashMap<u32, SystemCall>,
    last: HashMap<u32, u64>,
    /// How many accesses each thread has made so far.
    counts: HashMap<u32, u64>,
    is_done: bool,
}

#[derive(Clone, Copy, Debug)]
struct SystemCall {
    thread: u32,
    instruction: u64,
    number: u64,
    arguments: [u64; 6],
    start: u64,
    result: Option<i64>,
    end: Option<u64>,
}

impl Table {
    /// From the beginning of a trace.
    pub fn new(view: View, replay: Replay) -> Self {
        let (open, last, counts) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { view, replay, open, last, counts, is_done: false }
    }

    /// The next rows, about so many: their number, and the columns.
    pub fn next(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        match self.view {
            View::Accesses => {
                let found = Accesses::next(&mut self.replay, rows)?;
                let count = found.thread.len();
                let mut sequence = Vec::with_capacity(count);
                for run in found.thread.chunk_by(|one, other| one == other) {
                    let next = self.counts.entry(run[0]).or_default();
                    sequence.extend(*next..*next + run.len() as u64);
                    *next += run.len() as u64;
                }
                let mut columns = vec![
                    Column::known("thread", Values::Words(found.thread)),
                    Column::known("sequence", Values::Longs(sequence)),
                    Column::known("block", Values::Words(found.block)),
                    Column::known("ip", Values::Longs(found.instruction)),
                    Column::known("kind", Values::Bytes(found.kind)),
                    Column::known("size", Values::Words(found.size)),
                    Column {
                        name: "address",
                        values: Values::Longs(found.address),
                        unknown: found.unknown,
                    },
                ];
                if self.replay.detail() == Detail::Values {
                    columns.push(Column::optional("value", found.value));
                }
                Ok((count, columns))
            }
            View::Blocks => self.blocks(rows),
            View::Branches => self.branches(rows),
            View::Calls => self.calls(rows),
            View::SystemCalls => self.system_calls(rows),
            View::Events => self.events(rows),
        }
    }

    fn blocks(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        let (mut thread, mut numbers) = (Vec::new(), Vec::new());
        let (mut address, mut executed, mut clock) = (Vec::new(), Vec::new(), Vec::new());
        self.replay.walk(|step| {
            if let What::Block { number, block, executed: count, .. } = step.what {
                thread.push(step.thread);
                numbers.push(number);
                address.push(block.address);
                executed.push(count as u32);
                clock.push(step.instructions);
            }
            thread.len() >= rows
        })?;
        let columns = vec![
            Column::known("thread", Values::Words(thread)),
            Column::known("block", Values::Words(numbers)),
            Column::known("address", Values::Longs(address)),
            Column::known("instructions", Values::Words(executed)),
            Column::known("clock", Values::Longs(clock)),
        ];
        Ok((count(&columns), columns))
    }

    fn branches(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        let (mut thread, mut ip, mut target) = (Vec::new(), Vec::new(), Vec::new());
        let (mut blocks, mut kinds, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        self.replay.walk(|step| {
            if let Some((number, from, kind, to, is_taken)) = branch(step) {
                thread.push(step.thread);
                blocks.push(number);
                ip.push(from);
                kinds.push(kind as u8);
                target.push(to);
                taken.push(u8::from(is_taken));
            }
            thread.len() >= rows
        })?;
        let columns = vec![
            Column::known("thread", Values::Words(thread)),
            Column::known("block", Values::Words(blocks)),
            Column::known("ip", Values::Longs(ip)),
            Column::known("kind", Values::Bytes(kinds)),
            Column::optional("target", target),
            Column::known("taken", Values::Bytes(taken)),
        ];
        Ok((count(&columns), columns))
    }

    fn calls(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        let (mut thread, mut ip, mut target) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kinds, mut clock, mut time) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks = Vec::new();
        self.replay.walk(|step| {
            if let Some((number, from, kind, to, _)) = branch(step)
                && matches!(kind, BranchKind::Call | BranchKind::IndirectCall | BranchKind::Return)
            {
                thread.push(step.thread);
                blocks.push(number);
                ip.push(from);
                kinds.push(kind as u8);
                target.push(to);
                clock.push(step.instructions);
                time.push(step.time());
            }
            thread.len() >= rows
        })?;
        let columns = vec![
            Column::known("thread", Values::Words(thread)),
            Column::known("block", Values::Words(blocks)),
            Column::known("ip", Values::Longs(ip)),
            Column::known("kind", Values::Bytes(kinds)),
            Column::optional("target", target),
            Column::known("clock", Values::Longs(clock)),
            Column::known("time", Values::Longs(time)),
        ];
        Ok((count(&columns), columns))
    }

    fn system_calls(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        let mut found = Vec::new();
        let (open, last) = (&mut self.open, &mut self.last);
        let has_more = self.replay.walk(|step| {
            match step.what {
                What::Block { block, .. } => {
                    last.insert(step.thread, block.last());
                }
                What::Event {
                    kind: event::SYSTEM_CALL,
                    words: &[number, ref rest @ .., start],
                    ..
                } => {
                    let call = SystemCall {
                        thread: step.thread,
                        instruction: last.get(&step.thread).copied().unwrap_or(0),
                        number,
                        arguments: rest.try_into().unwrap_or_default(),
                        start,
                        result: None,
                        end: None,
                    };
                    // The one before has not come back.
                    found.extend(open.insert(step.thread, call));
                }
                What::Event { kind: event::RESULT, words: &[result, end], .. } => {
                    if let Some(call) = open.remove(&step.thread) {
                        found.push(SystemCall {
                            result: Some(result as i64),
                            end: Some(end),
                            ..call
                        });
                    }
                }
                What::Event { .. } => {}
            }
            found.len() >= rows
        })?;
        if !has_more && !self.is_done {
            self.is_done = true;
            let mut rest: Vec<SystemCall> = open.drain().map(|(_, call)| call).collect();
            rest.sort_by_key(|call| (call.start, call.thread));
            found.extend(rest);
        }
        const NAMES: [&str; 6] = ["a0", "a1", "a2", "a3", "a4", "a5"];
        let longs = |of: &dyn Fn(&SystemCall) -> u64| Values::Longs(found.iter().map(of).collect());
        let thread = found.iter().map(|call| call.thread).collect();
        let mut columns = vec![
            Column::known("thread", Values::Words(thread)),
            Column::known("ip", longs(&|call| call.instruction)),
            Column::known("number", longs(&|call| call.number)),
        ];
        for (argument, name) in NAMES.into_iter().enumerate() {
            columns.push(Column::known(name, longs(&|call| call.arguments[argument])));
        }
        let unknown: Vec<usize> =
            (0..found.len()).filter(|&row| found[row].result.is_none()).collect();
        let result = found.iter().map(|call| call.result.unwrap_or_default()).collect();
        let ends = longs(&|call| call.end.unwrap_or_default());
        columns.push(Column {
            name: "result",
            values: Values::Signed(result),
            unknown: unknown.clone(),
        });
        columns.push(Column::known("start", longs(&|call| call.start)));
        columns.push(Column { name: "end", values: ends, unknown });
        Ok((found.len(), columns))
    }

    fn events(&mut self, rows: usize) -> Result<(usize, Vec<Column>)> {
        let (mut thread, mut kinds) = (Vec::new(), Vec::new());
        let (mut time, mut value) = (Vec::new(), Vec::new());
        self.replay.walk(|step| {
            if let What::Event { kind, words, time: now } = step.what
                && matches!(
                    kind,
                    event::THREAD | event::END | event::SIGNAL | event::LOST | event::INTERRUPTED
                )
            {
                thread.push(step.thread);
                kinds.push(kind as u8);
                time.push(now);
                value.push(words.first().copied().unwrap_or(0));
            }
            thread.len() >= rows
        })?;
        let columns = vec![
            Column::known("thread", Values::Words(thread)),
            Column::known("kind", Values::Bytes(kinds)),
            Column::known("time", Values::Longs(time)),
            Column::known("value", Values::Longs(value)),
        ];
        Ok((count(&columns), columns))
    }
}

fn count(columns: &[Column]) -> usize {
    match columns.first().map(|column| &column.values) {
        Some(Values::Words(values)) => values.len(),
        _ => 0,
    }
}

/// The branch that a block has ended by: which block, from where, how, where to, and whether it was taken.
fn branch(step: &Step<'_>) -> Option<(u32, u64, BranchKind, Option<u64>, bool)> {
    let What::Block { number, block, executed, next, .. } = &step.what else { return None };
    if *executed < usize::from(block.plan.instructions) {
        return None;
    }
    let kind = BranchKind::of(block)?;
    let is_taken = kind != BranchKind::Conditional || next.is_some_and(|next| next != block.end());
    Some((*number, block.last(), kind, *next, is_taken))
}
