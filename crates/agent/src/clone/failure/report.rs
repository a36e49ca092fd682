//! What is written down when the engine cannot go on: for its developers, in a file of its own.
//!
//! Nothing here allocates, and as little as possible is taken from the engine's own data: it may be the
//! engine itself that is broken.

use crate::clone::base::context::Fault;
use crate::clone::base::image::image;
use crate::clone::base::{program, system};
use crate::clone::cache::program_state;
use crate::clone::engine::Engine;
use crate::clone::thread::record::Thread;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use weft_abi::{CloneControl, FOLDER_SIZE, REPORTS_SIZE};

const O_WRONLY: usize = 1;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
const FOR_ITS_OWNER: usize = 0o600;
/// Where reports go that the folder for them does not take.
const ANYWHERE: &[u8] = b"/tmp";
/// How many reports of a process there can be in a folder.
const MOST: u32 = 100;
/// How much is shown of code that is not a block.
const GLIMPSE: u64 = 64;
const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// What went wrong.
pub struct Failure<'a> {
    pub what: fmt::Arguments<'a>,
    /// What is to become of the process.
    pub fate: &'static str,
    /// Whether the thread's record has the program's state.
    pub is_exact: bool,
    /// Where the thread was in the clone; 0 if it was not.
    pub place: u64,
    /// The fault that it was, if it was one.
    pub fault: Option<Fault<'a>>,
}

/// The name of a report.
pub struct Name {
    bytes: [u8; FOLDER_SIZE + 64],
    length: usize,
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes());
        Ok(())
    }
}

impl Name {
    fn extend(&mut self, bytes: &[u8]) {
        for &byte in bytes.iter().take(self.bytes.len() - 1 - self.length) {
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    /// Of a folder, of as much of it as there is before a zero.
    fn in_folder(folder: impl Iterator<Item = u8>) -> Self {
        let mut name = Self { bytes: [0; FOLDER_SIZE + 64], length: 0 };
        folder.take_while(|&byte| byte != 0).for_each(|byte| name.extend(&[byte]));
        name
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A file that is written in pieces.
struct File {
    descriptor: usize,
    buffer: [u8; 1024],
    length: usize,
}

impl File {
    /// Makes the next report of this process in a folder, and completes its name.
    fn create(name: &mut Name) -> Option<Self> {
        let folder = name.length;
        for number in 1..=MOST {
            name.length = folder;
            let _ = write!(name, "/weft-{}-{number}.report", system::pid());
            name.bytes[name.length] = 0;
            let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
            // SAFETY: the name ends with a zero.
            let file = unsafe {
                system::call3(system::OPEN, name.bytes.as_ptr() as usize, flags, FOR_ITS_OWNER)
            };
            match usize::try_from(file) {
                Ok(descriptor) => return Some(Self { descriptor, buffer: [0; 1024], length: 0 }),
                Err(_) if file == system::EEXIST => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn flush(&mut self) {
        // SAFETY: the kernel reads what is in the buffer.
        unsafe {
            system::call3(
                system::WRITE,
                self.descriptor,
                self.buffer.as_ptr() as usize,
                self.length,
            );
        }
        self.length = 0;
    }

    /// The memory map, as the kernel writes it.
    fn memory_map(&mut self) {
        self.flush();
        // SAFETY: the path is a text that ends with a zero; the kernel writes to the buffer.
        unsafe {
            let path = c"/proc/self/maps".as_ptr() as usize;
            let file = system::call3(system::OPEN, path, O_CLOEXEC, 0);
            let Ok(file) = usize::try_from(file) else { return };
            loop {
                let buffer = self.buffer.as_mut_ptr() as usize;
                let got = system::call3(system::READ, file, buffer, self.buffer.len());
                let Ok(got @ 1..) = usize::try_from(got) else { break };
                self.length = got;
                self.flush();
            }
            system::call3(system::CLOSE, file, 0, 0);
        }
    }
}

impl Write for File {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.flush();
        // SAFETY: this one's own descriptor.
        unsafe { system::call3(system::CLOSE, self.descriptor, 0, 0) };
    }
}

/// Writes a report, and announces it to the host. Returns its name; `None` if it could not be written.
pub fn write(engine: &Engine, thread: &Thread, failure: &Failure<'_>) -> Option<Name> {
    let folder = engine.control.folder.iter().map(|byte| byte.load(Relaxed));
    let mut name = Name::in_folder(folder);
    let file = File::create(&mut name).or_else(|| {
        name = Name::in_folder(ANYWHERE.iter().copied());
        File::create(&mut name)
    });
    let _ = describe(&mut file?, engine, thread, failure);
    announce(engine.control, &name);
    Some(name)
}

/// Puts a name where the host finds it; its end comes last.
fn announce(control: &CloneControl, name: &Name) {
    let bytes = name.bytes();
    let length = bytes.len() as u32 + 1;
    let at = control.reports_length.fetch_add(length, AcqRel) as usize;
    if at + bytes.len() >= REPORTS_SIZE {
        return;
    }
    for (place, &byte) in control.reports[at..].iter().zip(bytes) {
        place.store(byte, Relaxed);
    }
    control.reports[at + bytes.len()].store(b'\n', Release);
}

fn describe(
    out: &mut File,
    engine: &Engine,
    thread: &Thread,
    failure: &Failure<'_>,
) -> fmt::Result {
    let process = system::pid();
    writeln!(out, "process {process} {}: {}", failure.fate, failure.what)?;
    writeln!(out, "weft {}, thread {}", env!("CARGO_PKG_VERSION"), thread.tid.get())?;
    if let Some(Fault { signal, info, context }) = &failure.fault {
        let (code, address) = (info[1] as i32, info[2]);
        writeln!(out, "signal {signal}, code {code}, address {address:#x}")?;
        writeln!(out, "\nregisters when it happened")?;
        registers(out, &context.general(), context.rip, context.rflags)?;
        let image = image();
        if image.contains(&context.rip) {
            writeln!(out, "rip is in the engine, at {:#x}", context.rip - image.start)?;
        }
    }
    let doubt = if failure.is_exact { "" } else { ", as far as they are known" };
    writeln!(out, "\nregisters of the program{doubt}")?;
    registers(out, &thread.general(), thread.pc.get(), thread.flags.get())?;
    for (number, value) in thread.vectors.get().iter().enumerate() {
        writeln!(out, "xmm{number:<3} {value:#034x}")?;
    }
    writeln!(out, "gs base {:#x}", thread.gs_base.get())?;
    code(out, engine, thread.pc.get(), failure.place)?;
    writeln!(out, "\nwhat the engine has counted, in all processes that share it")?;
    let stats = &engine.control.stats;
    for (name, counter) in [
        ("blocks", &stats.blocks),
        ("flushes", &stats.flushes),
        ("protection faults", &stats.protection_faults),
        ("signals", &stats.signals),
        ("system calls", &stats.system_calls),
        ("threads", &stats.threads),
        ("forks", &stats.forks),
    ] {
        writeln!(out, "{name} {}", counter.load(Relaxed))?;
    }
    writeln!(out, "\nmemory map")?;
    out.memory_map();
    Ok(())
}

fn registers(out: &mut File, general: &[u64; 16], rip: u64, flags: u64) -> fmt::Result {
    for (name, value) in NAMES.iter().zip(general).chain([(&"rip", &rip), (&"flags", &flags)]) {
        writeln!(out, "{name:<5} {value:#018x}")?;
    }
    Ok(())
}

/// The block that a thread was in, or else was to begin, and its original.
fn code(out: &mut File, engine: &Engine, pc: u64, place: u64) -> fmt::Result {
    let known = || {
        let place = engine.cache.find(pc)?;
        program_state::block_at(&engine.cache, place.body)
    };
    let Some(block) = program_state::block_at(&engine.cache, place).or_else(known) else {
        writeln!(out, "\noriginal code at {pc:#x}, of which there is no block")?;
        return bytes(out, pc, GLIMPSE);
    };
    let (original, copy) = program_state::lengths(block);
    let start = block.start;
    writeln!(out, "\noriginal code of the block, {start:#x} to {:#x}", start + original)?;
    bytes(out, start, original)?;
    writeln!(out, "\nthe block, {:#x} to {:#x}", block.code, block.code + copy)?;
    bytes(out, block.code, copy)?;
    writeln!(out, "\nwhat became of each instruction: its kind, length, and length in the block")?;
    for record in block.records.chunks_exact(2) {
        let (kind, length) = program_state::kind_and_length(record);
        writeln!(out, "{kind:?} {length} {}", record[1])?;
    }
    Ok(())
}

/// Memory in lines of sixteen bytes.
fn bytes(out: &mut File, start: u64, length: u64) -> fmt::Result {
    for at in start..start + length {
        if (at - start).is_multiple_of(16) {
            write!(out, "{}{at:#x} ", if at == start { "" } else { "\n" })?;
        }
        match program::read::<u8>(at) {
            Some(byte) => write!(out, " {byte:02x}")?,
            None => {
                write!(out, " cannot be read")?;
                break;
            }
        }
    }
    writeln!(out)
}
