//! Takes traces out of the memory that programs write them to, and puts them into a file.

use super::family::{Family, MOMENT};
use super::futex;
use super::log::{Mapped, What};
use super::losses::Losses;
use super::recording::Recording;
use crate::{Error, ErrorKind, Maker, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_abi::recording::{
    STRIPE_COUNT, STRIPE_SIZE, STRIPES_OFFSET, TRACE_BUFFER_SIZE, TRACE_BUFFERS, trace_buffer,
};
use weft_trace::{Module, Writer};

/// How long to wait when nothing was filled.
const PAUSE: Duration = Duration::from_micros(300);
/// How long a thread may take between reserving an entry of the log and writing it.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file that a trace is being written to.
#[derive(Debug)]
pub struct Tracer {
    family: Arc<Family>,
    is_over: Arc<AtomicBool>,
    /// How many processes the first one has left behind.
    outlived: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Losses>>>,
    maker: Maker,
}

impl Tracer {
    pub(super) fn begin(
        family: Arc<Family>,
        file: File,
        path: &Path,
        notes: &[(String, String)],
    ) -> Result<Self> {
        let shown = path.display().to_string();
        let failed = move |error: weft_trace::Error| {
            Error::new(ErrorKind::BadFile, format!("cannot write the trace {shown}"))
                .why(error.what)
        };
        let details = family.presences().into_iter().filter_map(|presence| {
            presence.recording().as_ref().and_then(|it| it.records().trace_detail())
        });
        let detail = details.last().unwrap_or_default();
        let mut writer = Writer::new(file, detail).map_err(&failed)?;
        for (key, value) in notes {
            writer.note(key, value).map_err(&failed)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let outlived = Arc::new(AtomicU64::new(0));
        let left_behind = outlived.clone();
        let programs = family.clone();
        family.set_traced(true);
        let work = move || {
            let mut drain = Drain {
                writer,
                traced: BTreeMap::new(),
                words: Vec::new(),
                garbled: 0,
                failure: None,
            };
            while !over.load(Acquire) {
                if !drain.all(&family, false) {
                    std::thread::sleep(PAUSE);
                }
            }
            drain.all(&family, true);
            family.set_traced(false);
            let mut losses = Losses { outlived: left_behind.load(Acquire), ..family.losses() };
            losses.garbled = losses.garbled.saturating_add(drain.garbled);
            for (kind, count) in losses.named() {
                drain.keep(|writer| writer.note(&format!("lost {kind}"), &count.to_string()));
            }
            drain
                .failure
                .map_or(Ok(()), Err)
                .and_then(|()| drain.writer.finish())
                .map_err(&failed)?;
            Ok(losses)
        };
        let thread = std::thread::Builder::new().name("weft-trace".into()).spawn(work);
        let thread = thread.map_err(|error| failed_to_start(&error))?;
        Ok(Self { family: programs, is_over, outlived, thread: Some(thread), maker: Maker::this() })
    }

    /// Takes what is left and ends the file. Says what is missing from it, as the file does.
    pub fn finish(mut self) -> Result<Losses> {
        self.maker.check()?;
        // What they execute while they are waited for is part of the trace.
        self.outlived.store(self.family.survivors(MOMENT).len() as u64, Release);
        self.is_over.store(true, Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(Error::new(ErrorKind::Internal, "what writes a trace has failed")),
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.is_over.store(true, Release);
        if let Some(thread) = self.thread.take() {
            if !self.maker.is_here() {
                // A forked child has no such thread to wait for.
                return std::mem::forget(thread);
            }
            let _ = thread.join();
        }
    }
}

fn failed_to_start(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::SystemCall, "cannot start a thread").why(error.to_string())
}

struct Drain {
    writer: Writer,
    /// By the numbers of the programs.
    traced: BTreeMap<u64, Traced>,
    /// A buffer of a thread's, as it was when it was looked at.
    words: Vec<u64>,
    /// How often what a program says of its buffers made no sense.
    garbled: u64,
    /// Why nothing is written any more. The program goes on.
    failure: Option<weft_trace::Error>,
}

/// A program that is traced.
#[derive(Clone, Copy)]
struct Traced {
    /// Its number in the trace.
    program: u32,
    /// How many words of its log were read.
    read: u64,
}

impl Drain {
    /// Takes what was filled, and of what has ended what was not; returns whether there was anything.
    fn all(&mut self, family: &Family, is_end: bool) -> bool {
        let mut is_busy = false;
        for presence in family.presences() {
            let place = presence.number;
            let recording = presence.recording().clone();
            let Some(recording) = recording.filter(|it| it.records().trace_detail().is_some())
            else {
                continue;
            };
            // Asked before anything is taken: nothing comes after that.
            let has_ended = presence.is_over();
            if let Some(mut traced) = self.traced(place, &recording) {
                let is_over = is_end || has_ended;
                is_busy |= self.recording(&mut traced, &recording, is_over);
                self.traced.insert(place, traced);
                if is_over {
                    self.keep(|writer| writer.end(traced.program));
                }
            }
            if has_ended {
                family.become_past(&presence);
            }
        }
        is_busy
    }

    /// What is known of the program with a number; of a new one, what is mapped is written first. `None` if there are
    /// too many.
    fn traced(&mut self, place: u64, recording: &Recording) -> Option<Traced> {
        if let Some(&traced) = self.traced.get(&place) {
            return Some(traced);
        }
        let mut number = None;
        self.keep(|writer| writer.program().map(|program| number = Some(program)));
        let program = number?;
        for map in recording.code() {
            let (start, end) = (map.start.0, map.end.0);
            let (offset, path) = (map.offset, map.path.clone());
            let module = Module { program, time: 0, start, end, offset, path };
            self.keep(|writer| writer.module(&module));
        }
        Some(Traced { program, read: 0 })
    }

    fn keep(&mut self, work: impl FnOnce(&mut Writer) -> weft_trace::Result<()>) {
        if self.failure.is_none() {
            self.failure = work(&mut self.writer).err();
        }
    }

    fn recording(&mut self, traced: &mut Traced, recording: &Recording, is_over: bool) -> bool {
        let head = recording.head();
        head.beat.fetch_add(1, Relaxed);
        let mut is_busy = false;
        for stripe in 0..head.stripes.load(Acquire).min(STRIPE_COUNT) {
            let trace = recording.trace_head(stripe);
            let base = STRIPES_OFFSET + stripe * STRIPE_SIZE;
            let (drained, filled) = (trace.drained.load(Relaxed), trace.filled.load(Acquire));
            let count = filled.wrapping_sub(drained);
            if count > TRACE_BUFFERS as u32 {
                // There are not as many.
                self.garbled = self.garbled.saturating_add(1);
                trace.drained.store(filled, Release);
                continue;
            }
            for number in (0..count).map(|index| drained.wrapping_add(index)) {
                let length = trace.lengths[number as usize % TRACE_BUFFERS].load(Relaxed);
                self.take(traced, recording, stripe, (base + trace_buffer(number), length));
                trace.drained.store(number.wrapping_add(1), Release);
                futex::wake(&trace.drained);
                is_busy = true;
            }
            let start = trace.base.load(Relaxed);
            if is_over && start != 0 {
                let from = trace_buffer(trace.filled.load(Relaxed));
                let length = trace.cursor.load(Relaxed).wrapping_sub(start.wrapping_add(from));
                self.take(traced, recording, stripe, (base + from, length));
                // A thread that goes on begins another buffer.
                trace.base.store(0, Relaxed);
            }
        }
        is_busy
    }

    /// Takes what was written to a buffer.
    fn take(
        &mut self,
        traced: &mut Traced,
        recording: &Recording,
        stripe: u64,
        (at, length): (u64, u64),
    ) {
        self.log(traced, recording);
        let program = traced.program;
        let mut words = std::mem::take(&mut self.words);
        recording.copy(at, length.min(TRACE_BUFFER_SIZE) / 8, &mut words);
        self.keep(|writer| writer.push(program, stripe as u32, &words));
        self.words = words;
    }

    /// Learns of blocks and modules that have come.
    fn log(&mut self, traced: &mut Traced, recording: &Recording) {
        let taken = recording.taken();
        let began = Instant::now();
        while traced.read < taken {
            match recording.entry(traced.read, taken) {
                Some((Some(entry), next)) => {
                    self.entry(traced.program, entry.what);
                    traced.read = next;
                }
                // A thread has reserved it and is about to write it.
                _ if began.elapsed() < PATIENCE => std::thread::yield_now(),
                Some((None, next)) => traced.read = next,
                None => {
                    // Nothing behind it can be told from anything else.
                    self.garbled = self.garbled.saturating_add(1);
                    traced.read = u64::MAX;
                }
            }
        }
    }

    fn entry(&mut self, program: u32, what: What) {
        match what {
            What::Run(run) if run.own != 0 => {
                self.keep(|writer| writer.block(program, run.own, run.start, &run.bytes));
            }
            What::Mapped(Mapped { start, end, offset, path, .. }) => {
                let module = Module { program, time: 0, start, end, offset, path };
                self.keep(|writer| writer.module(&module));
            }
            _ => {}
        }
    }
}
