//! General registers, and how Linux restarts a system call through them.

use super::calls::fails_when_stopped;
use crate::TargetAddr;

/// The general registers of a thread, as the kernel shows them to a tracer.
///
/// `orig_rax` is the number of the system call that the thread was interrupted in, or -1; with it, a
/// negative `rax` of the kernel's own (`ERESTARTSYS` and the like, which programs never see) says how
/// the call goes on. The kernel acts on the pair when it lets the thread go.
#[derive(Clone, Copy, Debug)]
pub struct Registers(pub libc::user_regs_struct);

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -(libc::EINTR as i64);

/// The length of the `syscall` instruction.
const SYSCALL_LENGTH: u64 = 2;
/// The code segment of 64-bit user programs.
const USER_CODE_64: u64 = 0x33;
const TRAP_FLAG: u64 = 1 << 8;

/// The names of the general registers, as instructions number them.
pub const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

impl Registers {
    /// The general registers, as instructions number them.
    pub fn general(&self) -> [u64; 16] {
        let g = &self.0;
        [
            g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11,
            g.r12, g.r13, g.r14, g.r15,
        ]
    }

    /// The general register of a name; `None` if there is none.
    pub fn named(&self, name: &str) -> Option<u64> {
        let number = GENERAL.iter().position(|general| *general == name)?;
        Some(self.general()[number])
    }

    /// Replaces the general registers.
    pub fn set_general(&mut self, general: [u64; 16]) {
        let g = &mut self.0;
        [
            g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11,
            g.r12, g.r13, g.r14, g.r15,
        ] = general;
    }

    /// Where the thread's stack ends.
    pub fn stack(&self) -> TargetAddr {
        TargetAddr(self.0.rsp)
    }

    /// The address by which the thread finds what is its own: the base of `fs`.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// Moves the thread elsewhere; a system call that it is in goes on as it would have.
    pub fn set_instruction(&mut self, at: u64) {
        self.0.rip = at;
    }

    /// The same registers before the breakpoint that the thread has just run into.
    pub fn before_breakpoint(&self) -> Self {
        let mut before = *self;
        before.0.rip -= 1;
        before
    }

    /// Sets what a function finds as its first argument.
    pub fn set_first_argument(&mut self, value: u64) {
        self.0.rdi = value;
    }

    /// Where the thread is.
    pub fn instruction(&self) -> TargetAddr {
        TargetAddr(self.0.rip)
    }

    /// Whether the thread runs 64-bit code.
    pub fn is_64_bit(&self) -> bool {
        self.0.cs == USER_CODE_64
    }

    /// The address of the `syscall` instruction of a thread that was stopped in a system call. If the
    /// kernel makes the call again, it goes back there from where the thread is.
    pub fn call(&self) -> Option<u64> {
        (self.0.orig_rax as i64 >= 0).then(|| self.0.rip.wrapping_sub(SYSCALL_LENGTH))
    }

    /// The same registers, in a system call that another instruction has made.
    pub fn called_from(&self, instruction: u64) -> Self {
        let mut moved = *self;
        moved.0.rip = instruction + SYSCALL_LENGTH;
        moved
    }

    /// The registers of a thread that is on its way into a system call, before the instruction that makes
    /// it. The kernel, which is asked for none now, leaves them as they are.
    pub fn before_call(&self, number: u64) -> Self {
        let mut moved = *self;
        moved.0.rip = self.0.rip.wrapping_sub(SYSCALL_LENGTH);
        moved.0.rax = number;
        moved.0.orig_rax = u64::MAX;
        moved
    }

    /// Makes a call that failed only because the thread was stopped go on as if it had not been.
    /// True when there was such a call.
    ///
    /// `ERESTARTNOHAND` asks the kernel for just that: "start again, unless a handler runs, in which
    /// case fail with EINTR". So a signal that comes in the meantime has its effect, too.
    pub fn spare_stopped_call(&mut self) -> bool {
        let stopped = self.0.rax as i64 == EINTR && fails_when_stopped(self.0.orig_rax as i64);
        if stopped {
            self.0.rax = ERESTARTNOHAND as u64;
        }
        stopped
    }

    /// Whether the kernel would have the thread go on with its call by `restart_syscall`.
    pub fn is_resumed_by_call(&self) -> bool {
        self.0.orig_rax as i64 >= 0 && self.0.rax as i64 == ERESTART_RESTARTBLOCK
    }

    /// Restarts a call from its beginning, with the same arguments, instead of by `restart_syscall`.
    pub fn begin_call_again(&mut self) {
        self.0.rax = ERESTARTNOHAND as u64;
    }

    /// The registers that the kernel would let the thread go on with if no signal came: for code that
    /// has to take a thread home without the kernel's (or weft's) help.
    pub fn settled(&self) -> Self {
        let mut settled = *self;
        if self.0.orig_rax as i64 >= 0 {
            let again = match self.0.rax as i64 {
                ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Some(self.0.orig_rax),
                ERESTART_RESTARTBLOCK => Some(libc::SYS_restart_syscall as u64),
                _ => None,
            };
            if let Some(number) = again {
                settled.0.rax = number;
                settled.0.rip = self.0.rip.wrapping_sub(SYSCALL_LENGTH);
            }
        }
        settled.0.orig_rax = u64::MAX;
        settled.0.eflags &= !TRAP_FLAG;
        settled
    }

    /// The same registers elsewhere, in no system call, and without a trap after each instruction.
    pub fn at(&self, instruction: TargetAddr) -> Self {
        let mut moved = *self;
        moved.0.rip = instruction.0;
        moved.0.orig_rax = u64::MAX;
        moved.0.eflags &= !TRAP_FLAG;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(orig_rax: i64, rax: i64) -> Registers {
        // SAFETY: plain integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.orig_rax = orig_rax as u64;
        registers.rax = rax as u64;
        registers.rip = 0x1002;
        Registers(registers)
    }

    #[test]
    fn restarts_are_the_kernels() {
        let settled = |orig, rax| {
            let settled = registers(orig, rax).settled().0;
            (settled.rax as i64, settled.rip)
        };
        assert_eq!(settled(libc::SYS_read, -512), (libc::SYS_read, 0x1000));
        assert_eq!(settled(libc::SYS_futex, -513), (libc::SYS_futex, 0x1000));
        assert_eq!(settled(libc::SYS_pause, -514), (libc::SYS_pause, 0x1000));
        assert_eq!(settled(libc::SYS_nanosleep, -516), (libc::SYS_restart_syscall, 0x1000));
        assert_eq!(settled(libc::SYS_read, -4), (-4, 0x1002));
        assert_eq!(settled(-1, -512), (-512, 0x1002));
    }

    #[test]
    fn only_calls_that_a_stop_breaks_are_spared() {
        let spared = |orig, rax| {
            let mut r = registers(orig, rax);
            r.spare_stopped_call().then_some(r.0.rax as i64)
        };
        assert_eq!(spared(libc::SYS_epoll_wait, -4), Some(-514));
        assert_eq!(spared(libc::SYS_epoll_wait, 1), None);
        assert_eq!(spared(libc::SYS_close, -4), None);
        assert_eq!(spared(-1, -4), None);
    }
}
