//! Takes traces out of the memory that programs write them to, and puts them into a file.

use super::attend::{self, Family};
use super::flow::{Mapped, What};
use super::recording::Recording;
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
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
        let details = family.presences().into_iter().filter_map(|presence| {
            presence.recording().as_ref().and_then(|it| it.records().trace_detail())
        });
        let detail = details.last().unwrap_or_default();
        let mut writer = Writer::create(path, detail).map_err(&failed)?;
        for (key, value) in notes {
            writer.note(key, value).map_err(&failed)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let work = move || {
            let mut drain = Drain { writer, traced: BTreeMap::new(), lost: 0, failure: None };
            while !over.load(Acquire) {
                if !drain.all(&family, false) {
                    std::thread::sleep(PAUSE);
                }
            }
            drain.all(&family, true);
            let lost = drain.lost & !lost::STRIPES;
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
    /// By their places among the programs of the family, which only grow more.
    traced: BTreeMap<usize, Traced>,
    /// What could not be kept of programs that have ended.
    lost: u64,
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
    /// Takes what was filled, and of what has ended what was not; says whether there was anything.
    fn all(&mut self, family: &Family, is_end: bool) -> bool {
        let mut is_busy = false;
        for (place, presence) in family.presences().into_iter().enumerate() {
            let recording = presence.recording().clone();
            let Some(recording) = recording.filter(|it| it.records().trace_detail().is_some())
            else {
                continue;
            };
            let Some(mut traced) = self.traced(place, &recording) else { continue };
            let is_over = is_end || presence.is_over();
            is_busy |= self.recording(&mut traced, &recording, is_over);
            self.traced.insert(place, traced);
            if is_over {
                self.keep(|writer| writer.end(traced.program));
                self.lost |= recording.lost();
                presence.recording().take();
            }
        }
        is_busy
    }

    /// What is known of the program at a place; a new one tells what is mapped. Nothing if there are too many.
    fn traced(&mut self, place: usize, recording: &Recording) -> Option<Traced> {
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
            loop {
                let drained = trace.drained.load(Relaxed);
                if drained == trace.filled.load(Acquire) {
                    break;
                }
                let length = trace.lengths[drained as usize % TRACE_BUFFERS].load(Relaxed);
                self.take(traced, recording, stripe, (base + trace_buffer(drained), length));
                trace.drained.store(drained.wrapping_add(1), Release);
                attend::wake(&trace.drained);
                is_busy = true;
            }
            let start = trace.base.load(Relaxed);
            if is_over && start != 0 {
                let from = trace_buffer(trace.filled.load(Relaxed));
                let length = trace.cursor.load(Relaxed).wrapping_sub(start + from);
                self.take(traced, recording, stripe, (base + from, length));
                // Not once more, if somebody goes on.
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
        let words = recording.words(at, length.min(TRACE_BUFFER_SIZE));
        self.keep(|writer| writer.push(program, stripe as u32, words));
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
                // Somebody is about to write it.
                _ if began.elapsed() < PATIENCE => std::thread::yield_now(),
                Some((None, next)) => traced.read = next,
                None => return,
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
