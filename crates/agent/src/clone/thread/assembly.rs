//! What a thread does with its own registers: the program's system calls, returns from handlers, going on natively,
//! and the trap by which it stands still.

use crate::clone::base::system;
use crate::clone::thread::record::{Thread, at};
use core::arch::naked_asm;
use core::cell::Cell;
use core::mem::offset_of;
use weft_abi::halt::HaltOf;

const GENERAL: usize = offset_of!(Thread, general);
const VECTORS: usize = offset_of!(Thread, vectors);

unsafe extern "C" {
    /// The first instruction of [`call`] from where it can be abandoned, its `syscall`, and where it goes then.
    static weft_call_begin: u8;
    static weft_call_instruction: u8;
    static weft_call_abandoned: u8;
    /// The same for [`return_from_signal`].
    static weft_return_begin: u8;
    static weft_return_instruction: u8;
    static weft_return_abandoned: u8;
    /// Behind the one instruction of [`halt`].
    static weft_halted: u8;
}

/// Where something can be abandoned: from its first instruction to its `syscall`, which both count, and where a
/// thread goes on that does.
#[derive(Clone, Copy, Debug)]
pub struct Abandonable {
    pub begin: u64,
    pub instruction: u64,
    pub abandoned: u64,
}

impl Abandonable {
    pub fn contains(&self, pc: u64) -> bool {
        (self.begin..=self.instruction).contains(&pc)
    }
}

fn place(label: &u8) -> u64 {
    core::ptr::from_ref(label) as u64
}

/// Where [`call`] can be abandoned.
pub fn abandonable_call() -> Abandonable {
    // SAFETY: labels, whose addresses alone count.
    unsafe {
        Abandonable {
            begin: place(&weft_call_begin),
            instruction: place(&weft_call_instruction),
            abandoned: place(&weft_call_abandoned),
        }
    }
}

/// Where [`return_from_signal`] can be abandoned.
pub fn abandonable_return() -> Abandonable {
    // SAFETY: labels, whose addresses alone count.
    unsafe {
        Abandonable {
            begin: place(&weft_return_begin),
            instruction: place(&weft_return_instruction),
            abandoned: place(&weft_return_abandoned),
        }
    }
}

/// Where a thread is that stands still for a debugger.
pub fn halted() -> u64 {
    // SAFETY: a label, whose address alone counts.
    place(unsafe { &weft_halted })
}

/// Makes the program's system call with its own registers, unless a signal has come: then it returns
/// [`ABANDONED`] in place of a result, and nothing has happened.
#[unsafe(naked)]
pub extern "C" fn call(thread: &Thread) -> isize {
    naked_asm!(
        ".globl weft_call_begin",
        ".hidden weft_call_begin",
        "weft_call_begin:",
        "cmp dword ptr gs:[{pending}], 0",
        "jne weft_call_abandoned",
        "mov rax, gs:[{g} + 0x00]",
        "mov rdx, gs:[{g} + 0x10]",
        "mov rsi, gs:[{g} + 0x30]",
        "mov rdi, gs:[{g} + 0x38]",
        "mov r8, gs:[{g} + 0x40]",
        "mov r9, gs:[{g} + 0x48]",
        "mov r10, gs:[{g} + 0x50]",
        ".globl weft_call_instruction",
        ".hidden weft_call_instruction",
        "weft_call_instruction:",
        "syscall",
        "ret",
        ".globl weft_call_abandoned",
        ".hidden weft_call_abandoned",
        "weft_call_abandoned:",
        "mov rax, {abandoned}",
        "ret",
        g = const GENERAL,
        pending = const at!(is_pending),
        abandoned = const ABANDONED,
    )
}

/// What no system call returns.
pub const ABANDONED: isize = -0x10000;

/// Ends a thread: marks its record as free, and uses no memory after that. All signals must be blocked.
#[unsafe(naked)]
pub extern "C" fn end_thread(thread: &Thread, status: usize) -> ! {
    naked_asm!(
        "lea rdx, [rdi + {used}]",
        "mov rdi, rsi",
        "mov eax, {exit}",
        "mov dword ptr [rdx], 0",
        "syscall",
        "ud2",
        used = const at!(is_used),
        exit = const system::EXIT,
    )
}

/// Returns from a signal handler of the program's, through a frame of which the second word is at `frame`;
/// or to the caller, if a signal came first.
#[unsafe(naked)]
pub extern "C" fn return_from_signal(frame: u64) {
    naked_asm!(
        "mov rcx, rsp",
        ".globl weft_return_begin",
        ".hidden weft_return_begin",
        "weft_return_begin:",
        "cmp dword ptr gs:[{pending}], 0",
        "jne weft_return_abandoned",
        "mov rsp, rdi",
        "mov eax, {sigreturn}",
        ".globl weft_return_instruction",
        ".hidden weft_return_instruction",
        "weft_return_instruction:",
        "syscall",
        ".globl weft_return_abandoned",
        ".hidden weft_return_abandoned",
        "weft_return_abandoned:",
        "mov rsp, rcx",
        "ret",
        pending = const at!(is_pending),
        sigreturn = const system::RT_SIGRETURN,
    )
}

/// Continues with the registers of a frame, of which the second word is at `frame`; `gs` need not be the engine's
/// any more.
#[unsafe(naked)]
pub extern "C" fn go_natively(frame: u64) -> ! {
    naked_asm!("mov rsp, rdi", "jmp {restorer}", restorer = sym restorer)
}

/// Continues with the program's registers in a thread's record, without `gs`. Not by a frame: the kernel would let
/// an interrupted system call fail instead of restarting it.
#[unsafe(naked)]
pub extern "C" fn stay_native(thread: &Thread) -> ! {
    naked_asm!(
        "mov eax, ss",
        "push rax",
        "push qword ptr [rdi + {g} + 0x20]",
        "push qword ptr [rdi + {flags}]",
        "mov eax, cs",
        "push rax",
        "push qword ptr [rdi + {pc}]",
        "movups xmm0, [rdi + {v} + 0x00]",
        "movups xmm1, [rdi + {v} + 0x10]",
        "movups xmm2, [rdi + {v} + 0x20]",
        "movups xmm3, [rdi + {v} + 0x30]",
        "movups xmm4, [rdi + {v} + 0x40]",
        "movups xmm5, [rdi + {v} + 0x50]",
        "movups xmm6, [rdi + {v} + 0x60]",
        "movups xmm7, [rdi + {v} + 0x70]",
        "movups xmm8, [rdi + {v} + 0x80]",
        "movups xmm9, [rdi + {v} + 0x90]",
        "movups xmm10, [rdi + {v} + 0xa0]",
        "movups xmm11, [rdi + {v} + 0xb0]",
        "movups xmm12, [rdi + {v} + 0xc0]",
        "movups xmm13, [rdi + {v} + 0xd0]",
        "movups xmm14, [rdi + {v} + 0xe0]",
        "movups xmm15, [rdi + {v} + 0xf0]",
        "mov rax, [rdi + {g} + 0x00]",
        "mov rcx, [rdi + {g} + 0x08]",
        "mov rdx, [rdi + {g} + 0x10]",
        "mov rbx, [rdi + {g} + 0x18]",
        "mov rbp, [rdi + {g} + 0x28]",
        "mov rsi, [rdi + {g} + 0x30]",
        "mov r8, [rdi + {g} + 0x40]",
        "mov r9, [rdi + {g} + 0x48]",
        "mov r10, [rdi + {g} + 0x50]",
        "mov r11, [rdi + {g} + 0x58]",
        "mov r12, [rdi + {g} + 0x60]",
        "mov r13, [rdi + {g} + 0x68]",
        "mov r14, [rdi + {g} + 0x70]",
        "mov r15, [rdi + {g} + 0x78]",
        "mov rdi, [rdi + {g} + 0x38]",
        // The one instruction that gets stack, flags and place from memory that no register points to.
        "iretq",
        g = const GENERAL,
        v = const VECTORS,
        flags = const at!(flags),
        pc = const at!(pc),
    )
}

/// Stops the thread for the debugger that traces it, which reads and writes the argument.
#[unsafe(naked)]
pub extern "C" fn halt(halt: &HaltOf<Cell<u64>>) {
    naked_asm!("int3", ".globl weft_halted", ".hidden weft_halted", "weft_halted:", "ret",)
}

/// What a handler returns to. The engine's handler does not return, but a thread that continues from a frame does.
#[unsafe(naked)]
pub extern "C" fn restorer() {
    naked_asm!("mov eax, {sigreturn}", "syscall", "ud2", sigreturn = const system::RT_SIGRETURN)
}
