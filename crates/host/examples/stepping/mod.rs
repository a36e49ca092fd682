//! Programs that are executed one instruction at a time.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Everything at the same addresses, on one processor, which says which one it is.
pub fn prepare() {
    // SAFETY: plain numbers, and a set that outlives the call.
    unsafe {
        libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Starts a program that stands before its first instruction; what it prints is not wanted.
pub fn start(command: &[OsString]) -> io::Result<Child> {
    let null = || File::options().read(true).write(true).open("/dev/null");
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(null()?).stdout(null()?).stderr(Stdio::inherit());
    // SAFETY: plain system calls.
    unsafe {
        program.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            ptrace(libc::PTRACE_TRACEME, 0, 0).map(drop)
        });
    }
    let child = program.spawn()?;
    let pid = child.id() as i32;
    wait(pid)?;
    ptrace(libc::PTRACE_SETOPTIONS, pid, libc::PTRACE_O_EXITKILL as usize)?;
    Ok(child)
}

/// Has a program execute one instruction, and says how it is then, as `waitpid` does.
pub fn step(pid: i32) -> io::Result<i32> {
    ptrace(libc::PTRACE_SINGLESTEP, pid, 0)?;
    wait(pid)
}

/// What a stopped program has in its registers.
pub fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: plain numbers, which the kernel writes.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let place = (&raw mut registers) as usize;
        ptrace(libc::PTRACE_GETREGS, pid, place).expect("registers");
        registers
    }
}

/// The general registers, as instructions number them.
pub fn general_of(registers: &mut libc::user_regs_struct) -> [&mut u64; 16] {
    [
        &mut registers.rax,
        &mut registers.rcx,
        &mut registers.rdx,
        &mut registers.rbx,
        &mut registers.rsp,
        &mut registers.rbp,
        &mut registers.rsi,
        &mut registers.rdi,
        &mut registers.r8,
        &mut registers.r9,
        &mut registers.r10,
        &mut registers.r11,
        &mut registers.r12,
        &mut registers.r13,
        &mut registers.r14,
        &mut registers.r15,
    ]
}

/// Asks the kernel for something about a traced program.
pub fn ptrace(request: libc::c_uint, pid: i32, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: the callers give addresses of what outlives the call, where the request takes one.
    let result = unsafe { libc::ptrace(request, pid, 0_usize, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until a traced program has stopped or ended.
pub fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let waited = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    if waited == -1 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// Reads memory of a process; says whether all of it was there.
pub fn read(pid: i32, address: u64, bytes: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: the kernel writes to the bytes.
    unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) == bytes.len() as isize }
}

/// Writes memory of a process, as far as it is there.
pub fn write(pid: i32, address: u64, bytes: &[u8]) {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: the kernel reads the bytes. What cannot be written shows when it is compared.
    unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
}

/// What the kernel has told a program of itself.
pub fn auxiliary(pid: i32, kind: u64) -> io::Result<u64> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut pairs = vector.chunks_exact(16);
    Ok(pairs.find(|pair| word(&pair[..8]) == kind).map_or(0, |pair| word(&pair[8..])))
}
