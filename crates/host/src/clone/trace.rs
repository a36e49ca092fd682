//! Takes traces out of the memory that programs write them to, and puts them into a file.

use super::attend::Family;
use super::flow::{Mapped, What};
use super::recording::Recording;
use super::{Records, attend};
use crate::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_abi::recording::{
    STRIPE_COUNT, STRIPE_SIZE, STRIPES_OFFSET, TRACE_BUFFER_SIZE, TRACE_BUFFERS, lost, trace_buffer,
};
use weft_trace::{Module, Writer};

/// How long to wait when nothing was filled.
const PAUSE: Duration = Duration::from_micros(300);
/// How long somebody may take to write down that there is a block.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file that a trace is being written to.
#[derive(Debug)]
pub struct Tracer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl Tracer {
    pub(super) fn begin(
        family: Arc<Family>,
        path: &Path,
        notes: &[(String, String)],
    ) -> Result<Self> {
        let shown = path.display().to_string();
        let failed = move |error: weft_trace::Error| {
            Error::new(ErrorKind::BadFile, format!("cannot write the trace {shown}"))
                .why(error.what)
        };
        let mut writer = Writer::create(path).map_err(&failed)?;
        for (key, value) in notes {
            writer.note(key, value).map_err(&failed)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let work = move || {
            let mut drain = Drain { writer, read: 0, has_modules: false, failure: None };
            while !over.load(Acquire) {
                if !drain.all(&family, false) {
                    std::thread::sleep(PAUSE);
                }
            }
            drain.all(&family, true);
            let lost = drain.lost(&family);
            drain
                .failure
                .map_or(Ok(()), Err)
                .and_then(|()| drain.writer.finish())
                .map_err(&failed)?;
            Ok(lost)
        };
        let thread = std::thread::Builder::new().name("weft-trace".into()).spawn(work);
        let thread = thread.map_err(|error| failed_to_start(&error))?;
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Takes what is left and ends the file. Says what could not be kept: bits of [`weft_abi::recording::lost`].
    pub fn finish(mut self) -> Result<u64> {
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
            let _ = thread.join();
        }
    }
}

fn failed_to_start(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::SystemCall, "cannot start a thread").why(error.to_string())
}

struct Drain {
    writer: Writer,
    /// How many words of the log were read.
    read: u64,
    has_modules: bool,
    /// Why nothing is written any more. The program goes on.
    failure: Option<weft_trace::Error>,
}

impl Drain {
    /// Takes what was filled, and in the end what was not; says whether there was anything.
    fn all(&mut self, family: &Family, is_end: bool) -> bool {
        // A program that becomes another one is traced as long as it is the first.
        let presences = family.presences();
        let traced = presences.iter().find_map(|presence| {
            presence.recording().clone().filter(|it| it.records() == Records::Trace)
        });
        traced.is_some_and(|recording| self.recording(&recording, is_end))
    }

    fn lost(&self, family: &Family) -> u64 {
        let presences = family.presences();
        let recordings = presences.iter().filter_map(|presence| presence.recording().clone());
        recordings.fold(0, |bits, recording| bits | recording.lost()) & !lost::STRIPES
    }

    fn keep(&mut self, work: impl FnOnce(&mut Writer) -> weft_trace::Result<()>) {
        if self.failure.is_none() {
            self.failure = work(&mut self.writer).err();
        }
    }

    fn recording(&mut self, recording: &Recording, is_end: bool) -> bool {
        let head = recording.head();
        head.beat.fetch_add(1, Relaxed);
        if !std::mem::replace(&mut self.has_modules, true) {
            self.modules(recording);
        }
        let mut is_busy = false;
        for stripe in 0..head.stripes.load(Acquire).min(STRIPE_COUNT) {
            let trace = recording.trace_head(stripe);
            let base = STRIPES_OFFSET + stripe * STRIPE_SIZE;
            loop {
                let drained = trace.drained.load(Relaxed);
                if drained == trace.filled.load(Acquire) {
                    break;
                }
                let length = trace.lengths[drained as usize % TRACE_BUFFERS].load(Relaxed);
                self.take(recording, stripe, (base + trace_buffer(drained), length));
                trace.drained.store(drained.wrapping_add(1), Release);
                attend::wake(&trace.drained);
                is_busy = true;
            }
            let start = trace.base.load(Relaxed);
            if is_end && start != 0 {
                let from = trace_buffer(trace.filled.load(Relaxed));
                let length = trace.cursor.load(Relaxed).wrapping_sub(start + from);
                self.take(recording, stripe, (base + from, length));
                // Not once more, if somebody goes on.
                trace.base.store(0, Relaxed);
            }
        }
        is_busy
    }

    /// Takes what was written to a buffer.
    fn take(&mut self, recording: &Recording, stripe: u64, (at, length): (u64, u64)) {
        self.log(recording);
        let words = recording.words(at, length.min(TRACE_BUFFER_SIZE));
        self.keep(|writer| writer.push(stripe as u32, words));
    }

    fn modules(&mut self, recording: &Recording) {
        for map in recording.code() {
            let module = Module {
                time: 0,
                start: map.start.0,
                end: map.end.0,
                offset: map.offset,
                path: map.path.clone(),
            };
            self.keep(|writer| writer.module(&module));
        }
    }

    /// Learns of blocks and modules that have come.
    fn log(&mut self, recording: &Recording) {
        let taken = recording.taken();
        let began = Instant::now();
        while self.read < taken {
            match recording.entry(self.read, taken) {
                Some((Some(entry), next)) => {
                    self.entry(entry.what);
                    self.read = next;
                }
                // Somebody is about to write it.
                _ if began.elapsed() < PATIENCE => std::thread::yield_now(),
                Some((None, next)) => self.read = next,
                None => return,
            }
        }
    }

    fn entry(&mut self, what: What) {
        match what {
            What::Run(run) if run.own != 0 => {
                self.keep(|writer| writer.block(run.own, run.start, &run.bytes));
            }
            What::Mapped(Mapped { start, end, offset, path, .. }) => {
                let module = Module { time: 0, start, end, offset, path };
                self.keep(|writer| writer.module(&module));
            }
            _ => {}
        }
    }
}
