//! Where a thread is that runs, as the kernel sees it when its clock interrupts it: without stopping the thread.
//!
//! A stop would end a system call that is at work for long, such as `getrandom`, before it is done. The clock needs no
//! performance counter of the processor's, but the right to sample the kernel: a clock that leaves the kernel out
//! would find a thread that works there wherever it comes out.

use super::TOP;
use crate::arch::{SAMPLED_ABI, SAMPLED_COUNT, SAMPLED_REGISTERS, Sampled};
use crate::base::page::PAGE;
use crate::process::proc::{self, Tid};
use memmap2::{MmapOptions, MmapRaw};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For how long a thread runs until it is seen: the least that the kernel takes.
const PERIOD: u64 = 10_000;
/// How much is kept of what the kernel reports: more than one sample has, in pages a power of two.
const RING: usize = 2 * TOP as usize;

/// How many threads have one at most: each takes a descriptor and some locked memory.
const MOST: usize = 256;
/// How often it is looked whether a thread still runs that is waited for.
const ROUND: Duration = Duration::from_millis(1);

const TYPE_SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const SAMPLE_REGISTERS: u64 = 1 << 12;
const SAMPLE_STACK: u64 = 1 << 13;
const DISABLED: u64 = 1;
const CLOSE_ON_EXEC: u32 = 8;
const DISABLE: u64 = 0x2401;
const REFRESH: u64 = 0x2402;
const RECORD_SAMPLE: u32 = 9;
/// Where in the first page the kernel keeps how far it has written, and is told how far that was read.
const HEAD: usize = 0x400;
const TAIL: usize = 0x408;

/// What perf_event_open(2) takes: the fifth version of its `perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wake_up_events: u32,
    breakpoint: u32,
    more_config: [u64; 2],
    branches: u64,
    registers: u64,
    stack: u32,
    clock: i32,
    kernel_registers: u64,
    auxiliary: u32,
    deepest: u16,
    reserved: u16,
}

/// What a clock has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Whether the thread was in the kernel: in a call, or because of a fault or an interrupt.
    pub is_in_kernel: bool,
    /// As it has them when it comes out of there; nothing of one that does not run 64-bit code.
    pub registers: Option<Sampled>,
    /// The top of its stack.
    pub stack: Vec<u8>,
}

/// A clock of one thread, which interrupts it once when it is asked to.
pub struct Clock {
    file: OwnedFd,
    /// A page that says how far it is written, and what is written.
    ring: MmapRaw,
}

impl Clock {
    pub fn of(tid: Tid) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CPU_CLOCK,
            period: PERIOD,
            sample: SAMPLE_REGISTERS | SAMPLE_STACK,
            flags: DISABLED,
            wake_up_events: 1,
            registers: SAMPLED_REGISTERS,
            stack: TOP as u32,
            ..Attributes::default()
        };
        // SAFETY: it reads the attributes, whose size they have themselves.
        let file = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new, and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file as i32) };
        let ring = MmapOptions::new().len(PAGE as usize + RING).map_raw(&file)?;
        Ok(Self { file, ring })
    }

    /// Asks for one look, as soon as the thread runs.
    pub fn ask(&self) {
        self.control(REFRESH, 1);
    }

    /// Asks for none any more.
    pub fn withdraw(&self) {
        self.control(DISABLE, 0);
    }

    fn control(&self, what: u64, value: u64) {
        // It can only fail where the thread has ended, and then nothing is seen.
        // SAFETY: it takes numbers.
        unsafe { libc::ioctl(self.file.as_raw_fd(), what as _, value) };
    }

    /// What it has seen since this was last taken: the latest.
    pub fn take(&self) -> Option<Interrupted> {
        // SAFETY: the words are in the first page, aligned, and both sides use them atomically.
        let (head, tail) = unsafe {
            let word = |offset| AtomicU64::from_ptr(self.ring.as_mut_ptr().add(offset).cast());
            (word(HEAD), word(TAIL))
        };
        let (from, to) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
        let length = to.wrapping_sub(from) as usize;
        if length == 0 || length > RING {
            return None;
        }
        let mut bytes = vec![0; length];
        let start = from as usize % RING;
        let first = length.min(RING - start);
        // SAFETY: both parts are inside the ring, and the kernel writes there again when it is told that they were read.
        unsafe {
            let ring = self.ring.as_ptr().add(PAGE as usize);
            ring.add(start).copy_to_nonoverlapping(bytes.as_mut_ptr(), first);
            ring.copy_to_nonoverlapping(bytes.as_mut_ptr().add(first), length - first);
        }
        tail.store(to, Ordering::Release);
        parse(&bytes)
    }
}

/// The clocks of a process' threads.
pub struct Clocks {
    of: BTreeMap<Tid, Clock>,
    /// How many there may be.
    most: usize,
    /// Whether weft may not have any.
    is_refused: bool,
}

impl Clocks {
    /// None yet, and never more than there are descriptors for.
    pub fn new(descriptors: usize) -> Self {
        Self { of: BTreeMap::new(), most: descriptors.min(MOST), is_refused: false }
    }

    /// Those of these threads that can be seen so.
    pub fn reach(&mut self, tids: &[Tid]) -> Vec<Tid> {
        if self.of.len() + tids.len() > self.most {
            self.of.retain(|tid, _| tids.contains(tid));
        }
        for &tid in tids {
            if self.is_refused || self.of.len() >= self.most {
                break;
            }
            if self.of.contains_key(&tid) {
                continue;
            }
            match Clock::of(tid) {
                Ok(clock) => drop(self.of.insert(tid, clock)),
                // It has ended, or has no room for one more: the next may have.
                Err(error) if may_pass(&error) => {}
                Err(_) => self.is_refused = true,
            }
        }
        tids.iter().copied().filter(|tid| self.of.contains_key(tid)).collect()
    }

    /// Where threads are that run. One that does not run in time, or has gone to sleep, is not among them.
    pub fn see(&self, tids: &[Tid], patience: Duration) -> BTreeMap<Tid, Interrupted> {
        let mut waiting: Vec<(Tid, &Clock)> =
            tids.iter().filter_map(|&tid| Some((tid, self.of.get(&tid)?))).collect();
        for (_, clock) in &waiting {
            // What came too late for the look before.
            clock.take();
            clock.ask();
        }
        let mut found = BTreeMap::new();
        let deadline = Instant::now() + patience;
        loop {
            wait(waiting.iter().map(|&(_, clock)| clock), ROUND);
            waiting.retain(|&(tid, clock)| {
                let seen = clock.take();
                let is_waited_for = seen.is_none() && runs(tid);
                found.extend(seen.map(|seen| (tid, seen)));
                if !is_waited_for {
                    clock.withdraw();
                }
                is_waited_for
            });
            if waiting.is_empty() || Instant::now() > deadline {
                break;
            }
        }
        for (_, clock) in waiting {
            clock.withdraw();
        }
        found
    }

    /// Forgets those of threads that have ended.
    pub fn keep(&mut self, is_there: impl Fn(Tid) -> bool) {
        self.of.retain(|&tid, _| is_there(tid));
    }
}

/// Whether a clock could not be had for a reason that is the thread's, or may pass.
fn may_pass(error: &io::Error) -> bool {
    let passing = [libc::ESRCH, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EBUSY, libc::EINTR];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

/// Whether a thread runs, or waits for its turn.
fn runs(tid: Tid) -> bool {
    proc::stat(tid).is_ok_and(|stat| stat.state == 'R')
}

/// Waits until one of some clocks has found something, but no longer than this.
pub fn wait<'a>(clocks: impl Iterator<Item = &'a Clock>, patience: Duration) {
    let poll = |clock: &Clock| libc::pollfd {
        fd: clock.file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = clocks.map(poll).collect();
    let patience = libc::timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    // SAFETY: the kernel writes what it has found into the list, and no signal is let through.
    unsafe {
        libc::ppoll(polls.as_mut_ptr(), polls.len() as _, &raw const patience, std::ptr::null())
    };
}

/// The last sample of some records.
fn parse(mut bytes: &[u8]) -> Option<Interrupted> {
    let mut last = None;
    while let Some(&[k0, k1, k2, k3, mode, _, s0, s1]) = bytes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([s0, s1]));
        let Some((record, rest)) = bytes.split_at_checked(length.max(8)) else { break };
        if u32::from_ne_bytes([k0, k1, k2, k3]) == RECORD_SAMPLE {
            last = parse_sample(record.get(8..)?, mode).or(last);
        }
        bytes = rest;
    }
    last
}

fn parse_sample(mut bytes: &[u8], mode: u8) -> Option<Interrupted> {
    const MODE: u8 = 7;
    const KERNEL: u8 = 1;
    const NONE: u64 = 0;
    let mut word = || {
        let (word, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        Some(u64::from_ne_bytes(*word))
    };
    let abi = word()?;
    let mut registers = [0; SAMPLED_COUNT];
    if abi != NONE {
        for register in &mut registers {
            *register = word()?;
        }
    }
    let size = word()? as usize;
    let (stack, rest) = bytes.split_at_checked(size)?;
    // How much of it could be read.
    let there = if size == 0 { 0 } else { u64::from_ne_bytes(*rest.first_chunk()?) as usize };
    Some(Interrupted {
        is_in_kernel: mode & MODE == KERNEL,
        registers: (abi == SAMPLED_ABI).then(|| registers.into()),
        stack: stack.get(..there)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    fn record(kind: u32, mode: u8, words: &[u64]) -> Vec<u8> {
        let length = 8 + 8 * words.len();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([mode, 0, length as u8, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn the_last_sample_counts() {
        let sample = [2, 3, 2, 1, 7, 0x7000, 0x1000, 5, 6, 4, 16, 11, 12, 8];
        let mut bytes = record(RECORD_SAMPLE, 2, &[0, 0]);
        bytes.extend(record(2, 0, &[1, 2]));
        bytes.extend(record(RECORD_SAMPLE, 1, &sample));
        let seen = parse(&bytes).unwrap();
        let arguments = [1, 2, 3, 4, 5, 6];
        assert_eq!(seen.registers, Some(Sampled { pc: 0x1000, sp: 0x7000, bp: 7, arguments }));
        assert!(seen.is_in_kernel);
        assert_eq!(seen.stack, 11u64.to_ne_bytes());
    }

    #[test]
    fn what_is_cut_is_no_sample() {
        let bytes = record(RECORD_SAMPLE, 1, &[2, 3, 2, 1, 7, 0x7000, 0x1000, 5, 6, 4, 16, 11]);
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None);
        }
        assert_eq!(parse(&record(RECORD_SAMPLE, 2, &[0, 0])).unwrap().registers, None);
    }

    #[test]
    fn a_running_thread_is_seen_once_each_time() {
        static GOES_ON: AtomicBool = AtomicBool::new(true);
        let (tell, told) = std::sync::mpsc::channel();
        let busy = thread::spawn(move || {
            // SAFETY: a plain question.
            tell.send(unsafe { libc::gettid() }).unwrap();
            while GOES_ON.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        // Where it is not permitted, there is nothing to test.
        if let Ok(clock) = Clock::of(told.recv().unwrap()) {
            for _ in 0..5 {
                assert_eq!(clock.take(), None);
                clock.ask();
                let seen = (0..10_000).find_map(|_| {
                    wait([&clock].into_iter(), Duration::from_millis(1));
                    clock.take()
                });
                assert!(
                    seen.is_some_and(|seen| seen.registers.is_some() && !seen.stack.is_empty())
                );
            }
        }
        GOES_ON.store(false, Ordering::Relaxed);
        busy.join().unwrap();
    }
}
