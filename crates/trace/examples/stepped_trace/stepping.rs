//! A program that is executed one instruction at a time, all threads of it, and what it touches: once as a trace has it,
//! and once the plain way, from the processor's registers.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use weft_code::accesses::Captured;
use weft_code::iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as Name,
};
use weft_trace::record::{event, event_word};
use weft_trace::{Module, Writer};

/// An access, computed from the registers before the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Which thread.
    pub thread: u32,
    /// The instruction.
    pub instruction: u64,
    /// 1 reads, 2 writes, 3 both.
    pub kind: u8,
    /// How many bytes; 0 if that is not known.
    pub size: u64,
    /// Where, if that is known.
    pub address: Option<u64>,
    /// The first eight bytes that are there: before it is read, behind it is written.
    pub value: Option<u64>,
}

/// The most instructions of a block, so that some end without a branch.
const LONGEST: usize = 40;

/// Where a thread is.
#[derive(Default)]
struct Thread {
    /// What it has written and the writer does not have.
    words: Vec<u64>,
    /// The block that it is in: its number, and how many of its instructions it has executed.
    block: Option<(u32, usize)>,
    /// Where the captures of that begin among the words.
    captures: usize,
    /// The registers before the instruction that is being executed.
    before: Option<libc::user_regs_struct>,
    bases: [u64; 2],
    /// The accesses of repeated instructions that are under way: where in the list.
    repeated: Option<(u64, usize, usize)>,
    /// Where in the list those of the instruction that is being executed are.
    pending: std::ops::Range<usize>,
}

/// Everything that a stepped program has done.
pub struct Stepped<'a> {
    writer: &'a mut Writer,
    threads: HashMap<i32, Thread>,
    blocks: HashMap<u64, u32>,
    code: HashMap<u64, Instruction>,
    factory: InstructionInfoFactory,
    pid: i32,
    clock: u64,
    limit: u64,
    /// All accesses, of all threads.
    pub plain: Vec<Plain>,
    /// How many instructions there were.
    pub steps: u64,
}

impl<'a> Stepped<'a> {
    /// Steps through a program, to its end or so many instructions far.
    pub fn run(command: &[OsString], writer: &'a mut Writer, limit: u64) -> io::Result<Self> {
        let pid = start(command)?;
        writer.program().expect("the first program");
        let mut stepped = Self {
            writer,
            threads: HashMap::new(),
            blocks: HashMap::new(),
            code: HashMap::new(),
            factory: InstructionInfoFactory::new(),
            pid,
            clock: 1_000_000,
            limit,
            plain: Vec::new(),
            steps: 0,
        };
        stepped.arrive(pid)?;
        step(pid, 0)?;
        while let Some((thread, status)) = wait()? {
            stepped.stopped(thread, status)?;
        }
        Ok(stepped)
    }

    fn stopped(&mut self, thread: i32, status: i32) -> io::Result<()> {
        if !libc::WIFSTOPPED(status) {
            self.gone(thread);
            return Ok(());
        }
        if self.steps >= self.limit {
            modules(self.pid, self.writer);
            // SAFETY: plain numbers.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            return Ok(());
        }
        let signal = match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, _) => 0,
            (libc::SIGSTOP, _) if !self.threads.contains_key(&thread) => 0,
            (signal, _) => signal,
        };
        self.arrive(thread)?;
        step(thread, signal)
    }

    /// A thread stands before an instruction.
    fn arrive(&mut self, id: i32) -> io::Result<()> {
        let Ok(now) = registers(id) else { return Ok(()) };
        self.clock += 1;
        if !self.threads.contains_key(&id) {
            self.begin(id, &now);
        }
        let mut thread = self.threads.remove(&id).unwrap_or_default();
        let before = thread.before.take();
        if let Some(before) = &before {
            self.executed(id, &mut thread, before, &now);
        }
        self.ahead(id, &mut thread, &now, before.as_ref());
        thread.before = Some(now);
        self.threads.insert(id, thread);
        Ok(())
    }

    fn begin(&mut self, id: i32, now: &libc::user_regs_struct) {
        let mut thread = Thread { bases: [now.fs_base, now.gs_base], ..Thread::default() };
        thread.words.push(event_word(event::THREAD, 5));
        // Whose threads they are is of no interest here.
        thread.words.extend([id as u64, 0, now.fs_base, now.gs_base, self.clock]);
        self.threads.insert(id, thread);
    }

    fn gone(&mut self, id: i32) {
        let Some(mut thread) = self.threads.remove(&id) else { return };
        if let (Some((number, done)), Some(before)) = (thread.block.take(), thread.before) {
            // It has ended in the middle of a block, in a system call for instance.
            let count =
                self.writer.blocks(0).get(number).map_or(0, |b| b.plan.instructions as usize);
            if done < count {
                interrupted(&mut thread.words, &before);
            }
        }
        thread.words.push(event_word(event::END, 1));
        thread.words.push(self.clock);
        self.writer.push(0, id as u32, &thread.words).expect("whole records");
    }

    fn decode(&mut self, address: u64) -> Instruction {
        if let Some(known) = self.code.get(&address) {
            return *known;
        }
        let mut bytes = [0; 15];
        let count = peek(self.pid, address, &mut bytes);
        let mut decoder = Decoder::with_ip(64, &bytes[..count], address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        self.code.insert(address, instruction);
        instruction
    }

    /// What an instruction has done, now that it is through.
    fn executed(
        &mut self,
        id: i32,
        thread: &mut Thread,
        before: &libc::user_regs_struct,
        now: &libc::user_regs_struct,
    ) {
        let instruction = self.decode(before.rip);
        self.steps += 1;
        for access in &mut self.plain[std::mem::take(&mut thread.pending)] {
            if access.kind != 1 {
                access.value = access.found(self.pid);
            }
        }
        let is_repeated = is_repeated(&instruction);
        if instruction.mnemonic() == Mnemonic::Syscall {
            thread.words.push(event_word(event::SYSTEM_CALL, 8));
            let arguments =
                [before.rdi, before.rsi, before.rdx, before.r10, before.r8, before.r9, self.clock];
            thread.words.push(before.rax);
            thread.words.extend(arguments);
            thread.words.push(event_word(event::RESULT, 2));
            thread.words.extend([now.rax, self.clock]);
        }
        if is_repeated {
            self.repeated(id, thread, &instruction, before, now);
        }
        if [now.fs_base, now.gs_base] != thread.bases {
            thread.bases = [now.fs_base, now.gs_base];
            if !matches!(instruction.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase) {
                thread.words.push(event_word(event::BASES, 2));
                thread.words.extend(thread.bases);
            }
        }
    }

    /// A round of an instruction that repeats itself has been executed: one more, or the first.
    fn repeated(
        &mut self,
        id: i32,
        thread: &mut Thread,
        instruction: &Instruction,
        before: &libc::user_regs_struct,
        now: &libc::user_regs_struct,
    ) {
        if before.rcx == now.rcx {
            thread.repeated = None;
            return;
        }
        let round = plain(id, instruction, before, &mut self.factory);
        match thread.repeated {
            Some((address, first, _)) if address == before.rip => {
                for (whole, part) in
                    self.plain[first..].iter_mut().filter(|a| a.thread == id as u32).zip(&round)
                {
                    whole.size += part.size;
                    whole.address = whole.address.min(part.address);
                }
            }
            _ => {
                thread.repeated = Some((before.rip, self.plain.len(), round.len()));
                self.plain.extend(round);
            }
        }
        if now.rip != before.rip {
            thread.repeated = None;
        }
    }

    /// A thread is about to execute an instruction: captures what a trace would.
    fn ahead(
        &mut self,
        id: i32,
        thread: &mut Thread,
        now: &libc::user_regs_struct,
        before: Option<&libc::user_regs_struct>,
    ) {
        let instruction = self.decode(now.rip);
        let is_another_round =
            before.is_some_and(|before| before.rip == now.rip) && is_repeated(&instruction);
        let operand = before.map(|before| {
            let previous = self.decode(before.rip);
            let address = previous
                .virtual_address(operand_of(&previous), 0, |name, _, _| Some(value(name, before)));
            word(self.pid, address.unwrap_or(0), 8).unwrap_or(0)
        });
        if !is_another_round {
            if let Some((number, done)) = &mut thread.block {
                *done += 1;
                let block = self.writer.blocks(0).get(*number).expect("a block that was made");
                let words = &mut thread.words[thread.captures..];
                capture(block, *done, (now, operand.unwrap_or(0)), words);
                let is_where_it_should = block.instructions.get(*done) == Some(&now.rip);
                if *done == block.plan.instructions as usize {
                    thread.block = None;
                } else if !is_where_it_should {
                    // A signal, or something else that leads away.
                    thread.block = None;
                    interrupted(&mut thread.words, thread.before.as_ref().unwrap_or(now));
                }
            }
            if thread.block.is_none() {
                self.enter(id, thread, now);
            }
        }
        if instruction.mnemonic() == Mnemonic::Syscall && now.rax == libc::SYS_exit_group as u64 {
            modules(self.pid, self.writer);
        }
        if !is_repeated(&instruction) {
            let mut found = plain(id, &instruction, now, &mut self.factory);
            for access in found.iter_mut().filter(|access| access.kind == 1) {
                access.value = access.found(self.pid);
            }
            thread.pending = self.plain.len()..self.plain.len() + found.len();
            self.plain.extend(found);
        }
    }

    /// A block begins.
    fn enter(&mut self, id: i32, thread: &mut Thread, now: &libc::user_regs_struct) {
        if thread.words.len() > 1 << 16 {
            self.writer.push(0, id as u32, &thread.words).expect("whole records");
            thread.words.clear();
        }
        let number = match self.blocks.get(&now.rip) {
            Some(&number) => number,
            None => self.make(now.rip),
        };
        let block = self.writer.blocks(0).get(number).expect("a block that was made");
        thread.words.push(number.into());
        thread.captures = thread.words.len();
        thread.words.resize(thread.captures + block.plan.captures.len(), 0x5a5a_5a5a);
        capture(block, 0, (now, 0), &mut thread.words[thread.captures..]);
        thread.block = Some((number, 0));
    }

    fn make(&mut self, address: u64) -> u32 {
        let mut end = address;
        for _ in 0..LONGEST {
            let instruction = self.decode(end);
            if instruction.is_invalid() {
                break;
            }
            end = instruction.next_ip();
            if instruction.flow_control() != FlowControl::Next {
                break;
            }
        }
        let mut bytes = vec![0; (end - address) as usize];
        peek(self.pid, address, &mut bytes);
        let number = self.blocks.len() as u32;
        self.blocks.insert(address, number);
        self.writer.block(0, number, address, &bytes).expect("a new number");
        number
    }
}

/// Notes which files are mapped as code.
fn modules(pid: i32, writer: &mut Writer) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        if let &[range, rights, offset, _, _, path] = fields.as_slice()
            && rights.contains('x')
            && let Some((start, end)) = range.split_once('-')
        {
            let [start, end, offset] = [start, end, offset].map(number);
            let module = Module { program: 0, time: 0, start, end, offset, path: path.into() };
            writer.module(&module).expect("a file that can be written");
        }
    }
}

/// Fills in what is captured before an instruction of a block: of registers, and of what the instruction before has as
/// its operand.
fn capture(
    block: &weft_trace::Block,
    before: usize,
    (now, operand): (&libc::user_regs_struct, u64),
    words: &mut [u64],
) {
    let general = general(now);
    for (capture, word) in block.plan.captures.iter().zip(words) {
        if usize::from(capture.before) == before {
            *word = match capture.place {
                Captured::Register(register) => general[register.0 as usize],
                Captured::Operand(_) => operand,
            };
        }
    }
}

/// Which operand of an instruction is in memory.
fn operand_of(instruction: &Instruction) -> u32 {
    (0..instruction.op_count())
        .find(|&operand| instruction.op_kind(operand) == OpKind::Memory)
        .unwrap_or(0)
}

fn interrupted(words: &mut Vec<u64>, at: &libc::user_regs_struct) {
    words.push(event_word(event::INTERRUPTED, 18));
    words.extend([at.rip, 1]);
    words.extend(general(at));
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// What an instruction touches with these registers, by the decoder's own reckoning.
fn plain(
    thread: i32,
    instruction: &Instruction,
    now: &libc::user_regs_struct,
    factory: &mut InstructionInfoFactory,
) -> Vec<Plain> {
    let info = factory.info(instruction);
    if is_hint(instruction.mnemonic()) || instruction.is_invalid() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for memory in info.used_memory() {
        let kind = match memory.access() {
            OpAccess::None | OpAccess::NoMemAccess => continue,
            OpAccess::Read | OpAccess::CondRead => 1,
            OpAccess::Write | OpAccess::CondWrite => 2,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => 3,
        };
        let is_by_bits = matches!(
            instruction.mnemonic(),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        ) && instruction.op0_kind() == OpKind::Memory
            && instruction.op1_kind() == OpKind::Register;
        let is_unknown =
            is_by_bits || memory.index().is_vector_register() || memory.index() == Name::AL;
        let address = memory.virtual_address(0, |name, _, _| Some(value(name, now)));
        found.push(Plain {
            thread: thread as u32,
            instruction: instruction.ip(),
            kind,
            size: match is_repeated(instruction) {
                true => instruction.memory_size().size() as u64,
                false => memory.memory_size().size() as u64,
            },
            address: address.filter(|_| !is_unknown),
            value: None,
        });
    }
    found.sort_by_key(|access| access.kind != 1);
    found
}

fn is_hint(mnemonic: Mnemonic) -> bool {
    let name = format!("{mnemonic:?}");
    ["Prefetch", "Clflush", "Clwb", "Cldemote"].iter().any(|hint| name.starts_with(hint))
}

fn value(name: Name, now: &libc::user_regs_struct) -> u64 {
    match name {
        Name::FS => now.fs_base,
        Name::GS => now.gs_base,
        Name::ES | Name::CS | Name::SS | Name::DS => 0,
        Name::RIP => now.rip,
        _ => {
            let full = name.full_register() as usize - Name::RAX as usize;
            let value = general(now)[full];
            if name.size() == 4 { value & u64::from(u32::MAX) } else { value }
        }
    }
}

fn general(now: &libc::user_regs_struct) -> [u64; 16] {
    [
        now.rax, now.rcx, now.rdx, now.rbx, now.rsp, now.rbp, now.rsi, now.rdi, now.r8, now.r9,
        now.r10, now.r11, now.r12, now.r13, now.r14, now.r15,
    ]
}

/// Starts a program that stands before its first instruction; what it prints is not wanted.
fn start(command: &[OsString]) -> io::Result<i32> {
    let null = || File::options().read(true).write(true).open("/dev/null");
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(null()?).stdout(null()?).stderr(Stdio::inherit());
    // SAFETY: plain system calls.
    unsafe {
        program.pre_exec(|| {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            ptrace(libc::PTRACE_TRACEME, 0, 0).map(drop)
        });
    }
    let pid = program.spawn()?.id() as i32;
    wait()?;
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
    ptrace(libc::PTRACE_SETOPTIONS, pid, options as usize)?;
    Ok(pid)
}

fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: plain numbers, which the kernel writes.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        ptrace(libc::PTRACE_GETREGS, pid, (&raw mut registers) as usize)?;
        Ok(registers)
    }
}

fn step(thread: i32, signal: i32) -> io::Result<()> {
    match ptrace(libc::PTRACE_SINGLESTEP, thread, signal as usize) {
        // Killed meanwhile: that is what comes next.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn ptrace(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: the callers give addresses of what outlives the call, where the request takes one.
    let result = unsafe { libc::ptrace(request, pid, 0_usize, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits for a thread; nothing if there is none any more.
fn wait() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // Other threads of the tests have programs of their own.
    let which = libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the status outlives the call.
    let thread = unsafe { libc::waitpid(-1, &mut status, which) };
    match thread {
        -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some((thread, status))),
    }
}

impl Plain {
    /// What is there now, its first eight bytes; nothing if it cannot be read or its size is not known.
    fn found(&self, pid: i32) -> Option<u64> {
        let size = self.size.min(8) as usize;
        word(pid, self.address?, size).filter(|_| size > 0)
    }
}

fn word(pid: i32, address: u64, size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    let count = peek(pid, address, &mut bytes[..size]);
    (count == size).then(|| u64::from_le_bytes(bytes))
}

/// Reads memory of a program, as far as it is there.
fn peek(pid: i32, address: u64, bytes: &mut [u8]) -> usize {
    let page_end = (4096 - (address % 4096) as usize).min(bytes.len());
    let read = |bytes: &mut [u8], address: u64| {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
        // SAFETY: the kernel writes to the bytes.
        let count = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        count.max(0) as usize
    };
    let count = read(&mut bytes[..page_end], address);
    if count < page_end {
        return count;
    }
    count + read(&mut bytes[page_end..], address + page_end as u64)
}
