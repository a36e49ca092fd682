//! Bringing the engine into a program that has not executed an instruction yet.
//!
//! There is one thread, held by weft, and nothing to be careful of but what the kernel has set up. The
//! thread makes the few system calls that are needed through a `syscall` instruction that is there anyway.

use super::{CloneOptions, failed};
use crate::agent_image::Freestanding;
use crate::arch::Registers;
use crate::proc::{self, Tid};
use crate::ptrace::{self, Event};
use crate::room::PAGE;
use crate::{Error, ErrorKind, Result, TargetAddr, memory};
use memmap2::{MmapMut, MmapOptions};
use std::fs::OpenOptions;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::{CLONE_MAGIC, CLONE_NAME, CloneControl, CloneRegisters, CloneStart, option};

static FILE: &[u8] = include_bytes!(env!("WEFT_CLONE"));

const SYSCALL: [u8; 2] = [0x0f, 0x05];

fn image() -> Result<&'static Freestanding> {
    static IMAGE: LazyLock<Result<Freestanding, String>> =
        LazyLock::new(|| Freestanding::parse(FILE, "weft_clone_start"));
    IMAGE.as_ref().map_err(|why| failed("the engine that is built into weft is broken", why))
}

/// The memory that weft shares with the engine.
#[derive(Debug)]
pub struct Control(MmapMut);

impl Control {
    /// What is in it.
    pub fn get(&self) -> &CloneControl {
        // SAFETY: it is at least that large, and all that both sides write is atomic.
        unsafe { &*self.0.as_ptr().cast() }
    }
}

/// Brings the engine into the only thread of a process, which stands before its first instruction and
/// will go on in the engine.
pub fn inject(pid: Tid, options: &CloneOptions) -> Result<Control> {
    let image = image()?;
    let home = ptrace::registers(pid).map_err(|e| ptrace::failed("read", pid, &e))?;
    if !home.is_64_bit() {
        return Err(Error::new(ErrorKind::UnsupportedTarget, "the program is not a 64-bit one"));
    }
    let remote = Remote { pid, home, instruction: find_instruction(pid)? };
    let length = (image.bytes.len() as u64).next_multiple_of(PAGE) + PAGE;
    let start_at = length - PAGE;
    let base = remote.call(
        libc::SYS_mmap,
        [
            0,
            length,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
            u64::MAX,
            0,
        ],
    )?;
    let mut bytes = image.bytes.clone();
    for &(at, value) in &image.relative {
        bytes[at as usize..at as usize + 8].copy_from_slice(&(base + value).to_ne_bytes());
    }
    memory::write(pid, TargetAddr(base), &bytes)?;
    let control = share(&remote, base + start_at)?;
    let start = CloneStart {
        registers: registers(&home),
        control: control.0,
        image: [base, base + length],
        cache_size: options.cache_size,
        options: if options.sees_changes { 0 } else { option::BLIND }
            | if options.follows { 0 } else { option::STAY },
    };
    // SAFETY: plain numbers.
    let start_bytes = unsafe {
        std::slice::from_raw_parts((&raw const start).cast::<u8>(), size_of::<CloneStart>())
    };
    memory::write(pid, TargetAddr(base + start_at), start_bytes)?;
    let executable = image.data_start.unwrap_or(start_at);
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    remote.call(libc::SYS_mprotect, [base, executable, protection, 0, 0, 0])?;
    let mut there = home;
    there.0.rip = base + image.entry;
    there.0.rdi = base + start_at;
    there.0.orig_rax = u64::MAX;
    ptrace::set_registers(pid, &there).map_err(|e| ptrace::failed("start", pid, &e))?;
    Ok(control.1)
}

/// Has the process make the memory that it shares with weft; `text` is where it can be told a name. Returns
/// where it has it, and weft's view.
fn share(remote: &Remote, text: u64) -> Result<(u64, Control)> {
    let length = (size_of::<CloneControl>() as u64).next_multiple_of(PAGE);
    let name: Vec<u8> = CLONE_NAME.bytes().chain([0]).collect();
    memory::write(remote.pid, TargetAddr(text), &name)?;
    let file = remote.call(libc::SYS_memfd_create, [text, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0])?;
    remote.call(libc::SYS_ftruncate, [file, length, 0, 0, 0, 0])?;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let at =
        remote.call(libc::SYS_mmap, [0, length, protection, libc::MAP_SHARED as u64, file, 0])?;
    let path = format!("/proc/{}/fd/{file}", remote.pid);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let shared = opened.map_err(|e| failed("weft cannot open the engine's memory", e))?;
    // SAFETY: memory that nobody but the two sides knows of.
    let view = unsafe { MmapOptions::new().len(length as usize).map_mut(&shared) }
        .map_err(|e| failed("weft cannot map the engine's memory", e))?;
    remote.call(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
    let control = Control(view);
    control.get().processes.store(1, Relaxed);
    control.get().magic.store(CLONE_MAGIC, Release);
    Ok((at, control))
}

fn registers(home: &Registers) -> CloneRegisters {
    let g = &home.0;
    CloneRegisters {
        general: [
            g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11,
            g.r12, g.r13, g.r14, g.r15,
        ],
        rip: g.rip,
        rflags: g.eflags,
    }
}

/// A thread that makes system calls for weft.
struct Remote {
    pid: Tid,
    home: Registers,
    instruction: TargetAddr,
}

impl Remote {
    fn call(&self, number: i64, args: [u64; 6]) -> Result<u64> {
        let failure = |e: std::io::Error| ptrace::failed("prepare", self.pid, &e);
        let mut registers = self.home;
        let g = &mut registers.0;
        g.rip = self.instruction.0;
        g.rax = number as u64;
        g.orig_rax = u64::MAX;
        [g.rdi, g.rsi, g.rdx, g.r10, g.r8, g.r9] = args;
        ptrace::set_registers(self.pid, &registers).map_err(failure)?;
        ptrace::step(self.pid).map_err(failure)?;
        loop {
            match ptrace::wait(self.pid).map_err(failure)? {
                Event::Signal(libc::SIGTRAP) => break,
                Event::Gone => {
                    return Err(Error::new(ErrorKind::TargetGone, "the program was killed"));
                }
                _ => ptrace::step(self.pid).map_err(failure)?,
            }
        }
        let result = ptrace::registers(self.pid).map_err(failure)?.0.rax as i64;
        if result < 0 {
            let error = std::io::Error::from_raw_os_error(-result as i32);
            return Err(failed("the program has no room for the engine", error));
        }
        Ok(result as u64)
    }
}

/// A `syscall` instruction of the program's: the kernel maps one into every process.
fn find_instruction(pid: Tid) -> Result<TargetAddr> {
    let maps = proc::maps(pid)?;
    let (vdso, others): (Vec<_>, Vec<_>) =
        maps.iter().filter(|m| m.execute && m.read).partition(|m| m.path == "[vdso]");
    for mapping in vdso.into_iter().chain(others) {
        let length = (mapping.end.0 - mapping.start.0).min(16 << 20) as usize;
        let Ok(bytes) = memory::read(pid, mapping.start, length) else { continue };
        if let Some(offset) = bytes.windows(2).position(|pair| pair == SYSCALL) {
            return Ok(mapping.start + offset as u64);
        }
    }
    Err(Error::new(ErrorKind::UnsupportedTarget, "the program has no system call instruction"))
}
