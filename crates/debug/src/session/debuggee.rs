//! The program as the server of a debugger sees it.

use super::context::{Context, normalise};
use super::in_call::forks;
use super::kernel::{CALL_LENGTH, R11, RAX, RCX, from_native};
use super::signal::{Info, ask};
use super::state::Session;
use super::thread::{Place, Thread, no_thread, write_halt};
use crate::debuggee::{
    Breakpoint, Debuggee, Interrupter, Motion, Registers, Resumption, Stop, Watchpoint,
};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::halt::{Halt, catches, reason};
use weft_host::proc::{self, Tid};
use weft_host::{Error, ErrorKind, Result, Stopped, TargetAddr, memory, ptrace};

/// What the kernel says of a signal that is its own.
const SI_KERNEL: i32 = 0x80;

impl Debuggee for Session {
    fn pid(&self) -> Tid {
        self.hold.pid()
    }

    fn threads(&self) -> Vec<Tid> {
        let pid = self.hold.pid();
        let first = self.threads.contains_key(&pid).then_some(pid);
        first.into_iter().chain(self.threads.keys().copied().filter(|&tid| tid != pid)).collect()
    }

    fn thread_name(&self, tid: Tid) -> String {
        let path = format!("/proc/{}/task/{tid}/comm", self.hold.pid());
        std::fs::read_to_string(path).map(|name| name.trim_end().into()).unwrap_or_default()
    }

    fn registers(&mut self, tid: Tid) -> Result<Registers> {
        let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
        let thread = self.thread(tid)?;
        match thread.place {
            Place::Running => Err(runs(tid)),
            Place::InCall(native) => self.registers_in_call(tid, &native),
            Place::Halted(halt) => {
                let native = ptrace::registers(tid).map_err(failed)?;
                let context = Context::read(tid, halt.context)?;
                let mut registers = from_native(&native);
                registers.general = context.general();
                (registers.rip, registers.rflags) = (context.rip(), context.rflags());
                registers.gs_base = halt.gs_base;
                registers.orig_rax = thread.call;
                if halt.reason == reason::CALL {
                    // As the kernel shows it: behind the instruction, with a result that says that there is none.
                    registers.rip += CALL_LENGTH;
                    registers.general[RAX] = -i64::from(libc::ENOSYS) as u64;
                    registers.general[RCX] = registers.rip;
                    registers.general[R11] = registers.rflags;
                }
                registers.vectors = normalise(&context.vectors()?);
                Ok(registers)
            }
        }
    }

    fn set_registers(&mut self, tid: Tid, registers: &Registers) -> Result<()> {
        let failed = |e: std::io::Error| ptrace::failed("write", tid, &e);
        if let Place::InCall(native) = self.thread(tid)?.place {
            if self.registers_in_call(tid, &native)? == *registers {
                return Ok(());
            }
            if self.thread(tid)?.is_in_fork() {
                return Err(forks(tid));
            }
            self.leave_call(tid, &native)?;
        }
        let halt_offset = self.hold.debug().halt.load(Relaxed);
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        let Place::Halted(halt) = &mut thread.place else { return Err(runs(tid)) };
        thread.call = registers.orig_rax;
        let mut context = Context::read(tid, halt.context)?;
        let (mut general, mut rip) = (registers.general, registers.rip);
        if halt.reason == reason::CALL {
            // It stands before the instruction.
            rip -= CALL_LENGTH;
            general[RAX] = registers.orig_rax;
            [general[RCX], general[R11]] = [RCX, R11].map(|index| context.general()[index]);
        }
        context.set(&general, rip, registers.rflags);
        context.write()?;
        context.set_vectors(&registers.vectors)?;
        let mut native = ptrace::registers(tid).map_err(failed)?;
        if native.0.fs_base != registers.fs_base {
            native.0.fs_base = registers.fs_base;
            ptrace::set_registers(tid, &native).map_err(failed)?;
        }
        if halt.gs_base != registers.gs_base {
            halt.gs_base = registers.gs_base;
            write_halt(tid, TargetAddr(native.0.gs_base + halt_offset), halt)?;
        }
        Ok(())
    }

    fn signal_info(&mut self, tid: Tid) -> Result<Info> {
        let thread = self.thread(tid)?;
        if let Some(info) = thread.signal() {
            return Ok(info);
        }
        match thread.place {
            Place::Halted(halt) if halt.reason == reason::SIGNAL => {
                let bytes = memory::read(tid, TargetAddr(halt.info), 128)?;
                bytes.try_into().map_err(|_| no_thread(tid))
            }
            // What a breakpoint and a step have natively.
            place => {
                let code = match place {
                    Place::Halted(Halt { reason: reason::STEPPED, .. }) => libc::TRAP_TRACE,
                    Place::Halted(Halt { reason: reason::WATCHED, .. }) => libc::TRAP_HWBKPT,
                    Place::Halted(Halt { reason: reason::BREAKPOINT, .. }) => SI_KERNEL,
                    _ => libc::SI_USER,
                };
                let mut info = [0; 128];
                info[..4].copy_from_slice(&libc::SIGTRAP.to_ne_bytes());
                info[8..12].copy_from_slice(&code.to_ne_bytes());
                Ok(info)
            }
        }
    }

    fn set_signal_info(&mut self, tid: Tid, info: &Info) -> Result<()> {
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        thread.described = Some(*info);
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let read =
            memory::read_while_there(self.hold.pid(), TargetAddr(address), bytes.len() as u64);
        bytes[..read.len()].copy_from_slice(&read);
        read.len()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let pid = self.hold.pid();
        memory::force_write(pid, pid, TargetAddr(address), bytes)?;
        self.points.has_written(address, address + bytes.len() as u64);
        Ok(())
    }

    fn hidden(&self) -> Vec<u64> {
        let maps = proc::maps(self.hold.pid()).unwrap_or_default();
        let own = maps.iter().filter(|mapping| self.hold.is_own(&maps, mapping));
        own.map(|mapping| mapping.start.0).collect()
    }

    fn set_breakpoints(&mut self, all: Vec<Breakpoint>) {
        self.points.set_breakpoints(all);
    }

    fn set_watchpoints(&mut self, all: Vec<Watchpoint>) {
        self.points.wanted.watches = all;
    }

    fn catch_system_calls(&mut self, which: Option<Vec<u64>>, on: bool) {
        let debug = self.hold.debug();
        let mut set = [0u64; 8];
        for number in which.iter().flatten().filter(|&&number| number < 512) {
            set[*number as usize / 64] |= 1 << (number % 64);
        }
        for (place, value) in debug.calls.iter().zip(set) {
            place.store(value, Relaxed);
        }
        let catches = match (on, which) {
            (false, _) => catches::NONE,
            (true, Some(_)) => catches::SOME,
            (true, None) => catches::ALL,
        };
        debug.catches.store(catches, Relaxed);
    }

    fn pass_signals(&mut self, numbers: &[u8]) {
        // Any of these may be what has come of a breakpoint, such as the one that a called function returns to.
        let breakpoints = [libc::SIGILL, libc::SIGTRAP, libc::SIGSEGV].map(|signal| signal as u8);
        let may_pass =
            |&&number: &&u8| (1..=64).contains(&number) && !breakpoints.contains(&number);
        let set = numbers.iter().filter(may_pass);
        let set = set.fold(0, |set, number| set | 1 << (number - 1));
        self.hold.debug().passed.store(set, Relaxed);
    }

    fn resume(&mut self, threads: &[Resumption]) -> Result<()> {
        for thread in threads {
            self.report_unreported(thread);
        }
        self.let_children_go(self.known_children());
        if self.end.is_some() || !self.pending.is_empty() {
            return Ok(());
        }
        // A debugger that steps over a breakpoint has taken it out for that; a step does not come to any.
        let is_more = threads.iter().any(|thread| !matches!(thread.motion, Motion::Step));
        if is_more || self.points.is_step_concerned() {
            self.points.settle(self.hold.debug());
        }
        for thread in threads {
            self.let_run(thread)?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Stop> {
        let stop = loop {
            if let Some(stop) = self.pending.pop_front().or(self.end) {
                break stop;
            }
            if let Some((tid, status)) = self.wait_for_any(0)?
                && let Some(stop) = self.look(tid, status)?
            {
                break stop;
            }
        };
        self.stop_all()?;
        self.is_interrupted.store(false, Release);
        Ok(stop)
    }

    fn interrupter(&self) -> Interrupter {
        let (pid, first) = (self.hold.pid(), self.first.clone());
        let is_interrupted = self.is_interrupted.clone();
        Interrupter::new(move || {
            if !is_interrupted.swap(true, Acquire) {
                ask(pid, first.load(Relaxed));
            }
        })
    }

    fn detach(&mut self, signals: &[u8]) -> Result<()> {
        let debug = self.hold.debug();
        debug.pid.store(0, Relaxed);
        debug.count.store(0, Relaxed);
        debug.version.fetch_add(1, Release);
        self.forget_forks();
        for tid in self.threads() {
            let signal = self.undelivered(tid).filter(|it| signals.contains(it));
            self.part_from_thread(&Resumption { tid, motion: Motion::Continue, signal })?;
        }
        Ok(())
    }

    fn held(&mut self) -> Result<Stopped> {
        let is_halted = |thread: &Thread| matches!(thread.place, Place::Halted(_));
        if !self.threads.values().any(is_halted) {
            self.have_one_leave_call()?;
        }
        let halted = self.threads.iter().filter(|(_, thread)| is_halted(thread));
        let registers = halted.map(|(&tid, _)| {
            let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
            Ok((tid, ptrace::registers(tid).map_err(failed)?))
        });
        Ok(Stopped::adopt_all(self.hold.pid(), registers.collect::<Result<_>>()?))
    }

    fn report_forks(&mut self, is_wanted: bool) {
        match is_wanted {
            true => self.forks.are_reported = true,
            false => self.forget_forks(),
        }
    }

    fn children(&self) -> Vec<Tid> {
        self.known_children()
    }

    fn part_from_child(&mut self, child: Tid, ends: bool) {
        Self::part_from_child(self, child, ends);
    }

    fn go_with(&mut self, child: Tid) -> Result<()> {
        Self::go_with(self, child)
    }

    fn kill(&mut self) {
        self.forget_forks();
        // SAFETY: plain numbers.
        unsafe { libc::kill(self.hold.pid(), libc::SIGKILL) };
        while self.end.is_none() {
            match self.wait_for_any(0) {
                Ok(Some((tid, status))) => drop(self.look(tid, status)),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}

fn runs(tid: Tid) -> Error {
    Error::new(ErrorKind::Timeout, format!("thread {tid} does not stand still"))
        .why("the kernel keeps it where nothing can be known of it")
        .advice("let the program go on and stop it again")
}
