//! Runs a program twice, in step: natively, one instruction at a time, and from a clone, one block at a time. After each
//! block the general registers, the flags and the memory that the block has written must be the same.
//!
//! ```text
//! lockstep [--steps MOST] COMMAND...
//! ```
//!
//! Only what the two cannot share is given to the native one: where memory is mapped, who it is, what time it is, and
//! what is random. Programs with one thread, that start no others, are what this is for.

mod stepping;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{Child, ExitCode};

use iced_x86::{
    Code, Decoder, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    UsedMemory,
};
use stepping::{auxiliary, general_of, prepare, ptrace, read, registers, start, step, write};
use weft_host::Launch;
use weft_host::clone::{Arrival, CloneOptions, Cloned};

/// Flags that belong to whoever steps, not to the program.
const STEPPING: u64 = 0x1_0100;
const TRAP: u64 = 0x100;

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut most = u64::MAX;
    if words.first().is_some_and(|word| word == "--steps") {
        most = words[1].to_string_lossy().parse().expect("a number of steps");
        words.drain(..2);
    }
    prepare();
    let mut pair = Pair::start(words).expect("both to start");
    let outcome = pair.run(most);
    pair.end();
    println!("{} blocks, {} instructions, {} calls", pair.blocks, pair.steps, pair.calls);
    match outcome {
        Ok(how) => {
            println!("the same: {how}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("DIFFERENT: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Both programs.
struct Pair {
    clone: Cloned,
    clone_child: Child,
    native: i32,
    native_child: Child,
    /// Where the kernel's own code for the program is.
    vdso: std::ops::Range<u64>,
    known: HashMap<u64, Instruction>,
    factory: InstructionInfoFactory,
    blocks: u64,
    steps: u64,
    calls: u64,
}

/// What the native program did to get to where the other one is.
#[derive(Default)]
struct Passed {
    /// Memory that was written: where, and how much.
    written: Vec<(u64, usize)>,
    /// Whether something was read that is never the same twice.
    is_unlike: bool,
    last: Option<Instruction>,
}

impl Pair {
    fn start(command: Vec<OsString>) -> io::Result<Self> {
        let null = || File::options().read(true).write(true).open("/dev/null");
        let launch = Launch {
            command: command.clone(),
            streams: [Some(null()?.into()), Some(null()?.into()), None],
            ..Launch::default()
        };
        let options = CloneOptions { in_step: true, follows: false, ..CloneOptions::default() };
        let (clone, clone_child) =
            Cloned::launch(launch, options).map_err(|error| io::Error::other(error.to_string()))?;
        let native_child = start(&command)?;
        let pid = native_child.id() as i32;
        let mut pair = Self {
            clone,
            clone_child,
            native: pid,
            native_child,
            vdso: 0..0,
            known: HashMap::new(),
            factory: InstructionInfoFactory::new(),
            blocks: 0,
            steps: 0,
            calls: 0,
        };
        pair.share_the_random()?;
        Ok(pair)
    }

    /// Gives the native program the other one's random bytes, and learns where the kernel's code is.
    fn share_the_random(&mut self) -> io::Result<()> {
        self.copy(auxiliary(self.native, libc::AT_RANDOM)?, 16);
        let start = auxiliary(self.native, libc::AT_SYSINFO_EHDR)?;
        self.vdso = start..start + 0x2000;
        Ok(())
    }

    /// Whatever is left of both is of no use.
    fn end(&mut self) {
        for child in [&mut self.clone_child, &mut self.native_child] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn clone_pid(&self) -> i32 {
        self.clone.pid()
    }

    /// Copies memory from the clone to the native program, as far as it is there.
    fn copy(&self, address: u64, length: usize) {
        let mut bytes = vec![0; length];
        if read(self.clone_pid(), address, &mut bytes) {
            write(self.native, address, &bytes);
        }
    }

    fn run(&mut self, most: u64) -> Result<String, String> {
        while let Some(arrival) = self.clone.arrival() {
            self.blocks += 1;
            let passed = self.follow(&arrival)?;
            self.compare(&arrival, &passed)?;
            if self.steps > most {
                return Ok("as far as it went".into());
            }
            self.clone.go_on();
        }
        let expected = self.clone_child.wait().map_err(|error| error.to_string())?;
        // The clone has ended in its last block; so must this one.
        ptrace(libc::PTRACE_CONT, self.native, 0).map_err(|error| error.to_string())?;
        let ended = self.native_child.wait().map_err(|error| error.to_string())?;
        if ended != expected {
            return Err(format!("natively it ends with {ended}, as a clone with {expected}"));
        }
        Ok(format!("{ended}"))
    }

    /// Steps the native program until it has branched to where the clone is.
    fn follow(&mut self, arrival: &Arrival) -> Result<Passed, String> {
        let target = arrival.registers.rip;
        let mut passed = Passed::default();
        let mut registers = self.registers();
        if self.vdso.contains(&registers.rip) {
            // Time. The clone's is everybody's.
            if !self.vdso.contains(&target) {
                self.copy(registers.rdi, 16);
                self.copy(registers.rsi, 16);
                self.take_over(arrival, registers);
            }
            return Ok(passed);
        }
        loop {
            let before = registers;
            let instruction = self.instruction(before.rip);
            self.note_writes(&instruction, &before, &mut passed);
            if instruction.code() == Code::Syscall {
                self.system_call(before, arrival)?;
            } else {
                self.step()?;
            }
            registers = self.registers();
            passed.is_unlike |= is_unlike(&instruction);
            passed.last = Some(instruction);
            if instruction.mnemonic() == Mnemonic::Pushfq {
                self.hide_stepping(registers.rsp);
            }
            let (next, at) = (instruction.next_ip(), registers.rip);
            let is_branch = instruction.flow_control() != FlowControl::Next;
            let is_taken = at != next && at != before.rip
                || is_branch
                    && !(instruction.is_jcc_short_or_near()
                        && instruction.near_branch_target() != next);
            if at == target && (is_taken || arrival.is_onward) {
                return Ok(passed);
            }
            if is_taken && at != next {
                return Err(format!(
                    "{:#x} leads to {at:#x} natively, to {target:#x} as a clone; {}",
                    before.rip,
                    self.place(before.rip)
                ));
            }
        }
    }

    /// What a step has left of itself in flags on the stack.
    fn hide_stepping(&self, at: u64) {
        let mut word = [0; 8];
        if read(self.native, at, &mut word) {
            let flags = u64::from_ne_bytes(word) & !TRAP;
            write(self.native, at, &flags.to_ne_bytes());
        }
    }

    /// Makes the native program's system call, with what only the clone knows.
    fn system_call(
        &mut self,
        before: libc::user_regs_struct,
        arrival: &Arrival,
    ) -> Result<(), String> {
        const FIXED: u64 = libc::MAP_FIXED as u64;
        self.calls += 1;
        let result = arrival.registers.general[0];
        let is_error = result > u64::MAX - 4096;
        let mut changed = before;
        match before.rax as i64 {
            libc::SYS_mmap if !is_error && before.r10 & FIXED == 0 => {
                changed.rdi = result;
                changed.r10 |= libc::MAP_FIXED_NOREPLACE as u64;
            }
            libc::SYS_mremap if !is_error && result != before.rdi => {
                changed.r10 |= (libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE) as u64;
                changed.r8 = result;
            }
            libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_execve => {
                return Err("it becomes more than one program, which cannot be followed".into());
            }
            // Who it is, what time it is, and what the engine refuses.
            libc::SYS_getpid
            | libc::SYS_gettid
            | libc::SYS_getppid
            | libc::SYS_set_tid_address
            | libc::SYS_rseq
            | libc::SYS_getrandom
            | libc::SYS_clock_gettime
            | libc::SYS_gettimeofday
            | libc::SYS_time
            | libc::SYS_getrusage
            | libc::SYS_sysinfo
            | libc::SYS_times
            | libc::SYS_getcpu => changed.rax = libc::SYS_getpid as u64,
            _ => {}
        }
        self.set_registers(&changed);
        self.step()?;
        let mut after = self.registers();
        if changed.rax != before.rax {
            after.rax = result;
            // What the kernel has written for the clone.
            let (address, length) = match before.rax as i64 {
                libc::SYS_getrandom => (before.rdi, before.rsi.min(256) as usize),
                libc::SYS_clock_gettime => (before.rsi, size_of::<libc::timespec>()),
                libc::SYS_getrusage => (before.rsi, size_of::<libc::rusage>()),
                libc::SYS_sysinfo => (before.rdi, size_of::<libc::sysinfo>()),
                libc::SYS_gettimeofday | libc::SYS_times | libc::SYS_getcpu => (before.rdi, 32),
                _ => (0, 0),
            };
            self.copy(address, length);
        }
        if before.rax == libc::SYS_read as u64 && !is_error && self.is_random(before.rdi) {
            self.copy(before.rsi, result as usize);
        }
        (after.rdi, after.r10, after.r8) = (before.rdi, before.r10, before.r8);
        after.r11 &= !TRAP;
        self.set_registers(&after);
        Ok(())
    }

    /// Whether a descriptor gives random bytes.
    fn is_random(&self, descriptor: u64) -> bool {
        let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", self.native));
        link.is_ok_and(|path| matches!(path.to_str(), Some("/dev/urandom" | "/dev/random")))
    }

    /// Gives the native program the registers of the clone.
    fn take_over(&self, arrival: &Arrival, mut registers: libc::user_regs_struct) {
        let general = &arrival.registers.general;
        for (place, value) in general_of(&mut registers).into_iter().zip(general) {
            *place = *value;
        }
        registers.rip = arrival.registers.rip;
        registers.eflags = arrival.registers.rflags;
        self.set_registers(&registers);
    }

    fn compare(&mut self, arrival: &Arrival, passed: &Passed) -> Result<(), String> {
        let mut registers = self.registers();
        if self.vdso.contains(&registers.rip) {
            return Ok(());
        }
        let Some(last) = passed.last else { return Ok(()) };
        let general = arrival.registers.general;
        // Below the stack pointer a return of the clone leaves what nobody may rely on; but some copy it.
        let garbage = if last.flow_control() == FlowControl::Return {
            registers.rsp.saturating_sub(8 + u64::from(popped(&last)))..registers.rsp
        } else {
            0..0
        };
        if !garbage.is_empty() {
            self.copy(garbage.start, 8);
        }
        if passed.is_unlike {
            for &(address, length) in &passed.written {
                self.copy(address, length);
            }
            self.take_over(arrival, registers);
            return Ok(());
        }
        let names =
            ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"].map(String::from).into_iter();
        let names = names.chain((8..16).map(|number| format!("r{number}")));
        let rip = registers.rip;
        let flags = registers.eflags;
        for ((name, native), cloned) in names.zip(general_of(&mut registers)).zip(general) {
            if *native != cloned {
                return Err(format!(
                    "{name} is {native:#x} natively, {cloned:#x} as a clone, at {rip:#x} after {:#x}; {}",
                    last.ip(),
                    self.place(last.ip())
                ));
            }
        }
        if (flags ^ arrival.registers.rflags) & !STEPPING != 0 {
            return Err(format!(
                "the flags are {flags:#x} natively, {:#x} as a clone, after {:#x}",
                arrival.registers.rflags,
                last.ip()
            ));
        }
        for &(address, length) in &passed.written {
            if garbage.contains(&address) {
                continue;
            }
            let (mut one, mut other) = (vec![0; length], vec![0; length]);
            let there = read(self.native, address, &mut one);
            if there != read(self.clone_pid(), address, &mut other) || one != other {
                return Err(format!(
                    "memory at {address:#x} is {one:02x?} natively, {other:02x?} as a clone, before {rip:#x}; {}",
                    self.place(last.ip())
                ));
            }
        }
        Ok(())
    }

    /// The instruction at an address; programs that change their code are not for this.
    fn instruction(&mut self, address: u64) -> Instruction {
        let native = self.native;
        *self.known.entry(address).or_insert_with(|| {
            let mut bytes = [0; 15];
            let mut length = 15;
            while length > 0 && !read(native, address, &mut bytes[..length]) {
                length -= 1;
            }
            Decoder::with_ip(64, &bytes[..length], address, 0).decode()
        })
    }

    /// Remembers what an instruction is about to write.
    fn note_writes(
        &mut self,
        instruction: &Instruction,
        registers: &libc::user_regs_struct,
        passed: &mut Passed,
    ) {
        let mut copy = *registers;
        let general: Vec<u64> = general_of(&mut copy).into_iter().map(|place| *place).collect();
        let value = |register: Register, _, _| match register {
            Register::FS => Some(registers.fs_base),
            Register::GS => Some(registers.gs_base),
            _ if register.is_segment_register() => Some(0),
            _ if register.is_gpr64() => Some(general[register.number()]),
            _ if register.is_gpr32() => Some(general[register.number()] & 0xffff_ffff),
            _ => None,
        };
        let info = self.factory.info(instruction);
        let is_written = |memory: &&UsedMemory| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(memory.access(), Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        for memory in info.used_memory().iter().filter(is_written) {
            let length = memory.memory_size().size();
            if let Some(address) = memory.try_virtual_address(0, value)
                && (1..=64).contains(&length)
            {
                passed.written.push((address, length));
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        match step(self.native) {
            Ok(status) if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP => {
                Ok(())
            }
            Ok(status) => Err(format!("natively it ends, or gets a signal: {status:#x}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn registers(&self) -> libc::user_regs_struct {
        registers(self.native)
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) {
        let place = std::ptr::from_ref(registers) as usize;
        ptrace(libc::PTRACE_SETREGS, self.native, place).expect("registers");
    }

    /// What an address belongs to.
    fn place(&self, address: u64) -> String {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.native));
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        maps.unwrap_or_default()
            .lines()
            .find(|line| {
                let (start, rest) = line.split_once('-').unwrap_or_default();
                let end = rest.split(' ').next().unwrap_or_default();
                (number(start)..number(end)).contains(&address)
            })
            .unwrap_or("nowhere")
            .to_owned()
    }
}

fn popped(instruction: &Instruction) -> u16 {
    if instruction.op_count() > 0 { instruction.immediate16() } else { 0 }
}

/// What is never the same twice.
fn is_unlike(instruction: &Instruction) -> bool {
    use Mnemonic::{Rdpid, Rdrand, Rdseed, Rdtsc, Rdtscp};
    matches!(instruction.mnemonic(), Rdtsc | Rdtscp | Rdrand | Rdseed | Rdpid)
}
