//! The ways between the clone and the agent.
//!
//! A thread that leaves the clone saves everything the program can see, and takes the agent's stack.
//! The crate is compiled for baseline SSE2, so of the vector registers only xmm0-15 are its business.

use crate::clone::record::{Thread, at, left};
use crate::way_in::way_in;
use core::arch::naked_asm;
use core::cell::Cell;
use core::mem::offset_of;
use weft_abi::halt::HaltOf;

const GENERAL: usize = offset_of!(Thread, general);
const VECTORS: usize = offset_of!(Thread, vectors);

/// A way out of the clone by which `rcx` points to what is to be known of it.
macro_rules! gate {
    ($(#[$text:meta])* $name:ident, $kind:expr) => {
        $(#[$text])*
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            naked_asm!(
                "mov gs:[{exit}], rcx",
                "mov rcx, gs:[{rcx}]",
                "mov dword ptr gs:[{left}], {kind}",
                "jmp {save}",
                exit = const at!(exit),
                rcx = const at!(rcx),
                left = const at!(left),
                kind = const $kind,
                save = sym save,
            )
        }
    };
}

gate!(
    /// From a stub, which `rcx` points into.
    gate_exit,
    left::EXIT
);
gate!(
    /// From a system call: `rcx` points to where the program goes on.
    gate_system_call,
    left::SYSTEM_CALL
);
gate!(
    /// From the start of a block that has to be checked: `rcx` points to its address.
    gate_check,
    left::CHECK
);
gate!(
    /// From the start of a restartable sequence: `rcx` points to its address.
    gate_sequence,
    left::SEQUENCE
);
gate!(
    /// From a restartable sequence, by the kernel: `rcx` points to where the program goes on.
    gate_abort,
    left::ABORT
);
gate!(
    /// From behind an instruction that has saved the state of the x87: `rcx` points to its address.
    gate_saved,
    left::SAVED
);
gate!(
    /// From an instruction that cannot be translated: `rcx` points to its address.
    gate_refused,
    left::REFUSED
);
gate!(
    /// From a breakpoint: `rcx` points to its address.
    gate_halt,
    left::HALT
);
gate!(
    /// From a store to memory that may be watched: `rcx` points to the instruction's address.
    gate_watch,
    left::WATCH
);

/// From an indirect branch that the first table does not know: `rcx` is where it goes. The second one may;
/// without it the thread leaves the clone.
#[unsafe(naked)]
pub extern "C" fn gate_missing() {
    naked_asm!(
        "mov gs:[{far}], rdx",
        // The flags, where `rax` was.
        "lahf",
        "seto al",
        "imul edx, ecx, {factor}",
        "shr edx, {shift}",
        "shl edx, 4",
        "add rdx, gs:[{second}]",
        "cmp rcx, [rdx]",
        "jne 2f",
        "mov rdx, [rdx + 8]",
        "mov gs:[{target}], rdx",
        // A signal that has come waits for the agent; one that comes from here on changes the target.
        "cmp dword ptr gs:[{pending}], 0",
        "jne 2f",
        "add al, 127",
        "sahf",
        "mov rdx, gs:[{far}]",
        "jmp qword ptr gs:[{target}]",
        "2:",
        "add al, 127",
        "sahf",
        "mov rdx, gs:[{far}]",
        ".globl weft_missing_out",
        ".hidden weft_missing_out",
        "weft_missing_out:",
        "mov gs:[{next}], rcx",
        "mov rcx, gs:[{rcx}]",
        "mov rax, gs:[{rax}]",
        "mov dword ptr gs:[{left}], {kind}",
        "jmp {save}",
        far = const at!(far),
        second = const at!(second),
        target = const at!(target),
        pending = const at!(is_pending),
        factor = const crate::clone::tables::FACTOR,
        shift = const 32 - crate::clone::tables::SECOND_BITS,
        next = const at!(next),
        rcx = const at!(rcx),
        rax = const at!(rax),
        left = const at!(left),
        kind = const left::INDIRECT,
        save = sym save,
    )
}

/// From an indirect branch that is not to find its way without the agent: `rcx` is where it goes.
#[unsafe(naked)]
pub extern "C" fn gate_unknown() {
    naked_asm!("jmp weft_missing_out")
}

/// From the entry of a block that is not the one: `rcx - rax` is where the branch goes.
#[unsafe(naked)]
pub extern "C" fn gate_wrong() {
    naked_asm!(
        "not rax",
        "lea rcx, [rcx + rax + 1]",
        "jmp {missing}",
        missing = sym gate_missing,
    )
}

#[unsafe(naked)]
extern "C" fn save() {
    naked_asm!(
        "mov gs:[{g} + 0x00], rax",
        "mov gs:[{g} + 0x08], rcx",
        "mov gs:[{g} + 0x10], rdx",
        "mov gs:[{g} + 0x18], rbx",
        "mov gs:[{g} + 0x20], rsp",
        "mov gs:[{g} + 0x28], rbp",
        "mov gs:[{g} + 0x30], rsi",
        "mov gs:[{g} + 0x38], rdi",
        "mov gs:[{g} + 0x40], r8",
        "mov gs:[{g} + 0x48], r9",
        "mov gs:[{g} + 0x50], r10",
        "mov gs:[{g} + 0x58], r11",
        "mov gs:[{g} + 0x60], r12",
        "mov gs:[{g} + 0x68], r13",
        "mov gs:[{g} + 0x70], r14",
        "mov gs:[{g} + 0x78], r15",
        "mov rsp, gs:[{stack}]",
        "pushfq",
        "pop qword ptr gs:[{flags}]",
        "cld",
        // A program that wants unaligned accesses to fault, or to be stepped through, wants its own.
        "test dword ptr gs:[{flags}], 0x40100",
        "jz 2f",
        "push 2",
        "popfq",
        "2:",
        "movups gs:[{v} + 0x00], xmm0",
        "movups gs:[{v} + 0x10], xmm1",
        "movups gs:[{v} + 0x20], xmm2",
        "movups gs:[{v} + 0x30], xmm3",
        "movups gs:[{v} + 0x40], xmm4",
        "movups gs:[{v} + 0x50], xmm5",
        "movups gs:[{v} + 0x60], xmm6",
        "movups gs:[{v} + 0x70], xmm7",
        "movups gs:[{v} + 0x80], xmm8",
        "movups gs:[{v} + 0x90], xmm9",
        "movups gs:[{v} + 0xa0], xmm10",
        "movups gs:[{v} + 0xb0], xmm11",
        "movups gs:[{v} + 0xc0], xmm12",
        "movups gs:[{v} + 0xd0], xmm13",
        "movups gs:[{v} + 0xe0], xmm14",
        "movups gs:[{v} + 0xf0], xmm15",
        "mov rdi, gs:[0]",
        "call {dispatch}",
        "jmp {resume}",
        g = const GENERAL,
        v = const VECTORS,
        flags = const at!(flags),
        stack = const at!(stack),
        dispatch = sym crate::clone::dispatch,
        resume = sym resume,
    )
}

unsafe extern "C" {
    /// Where [`gate_missing`] leaves the clone.
    pub static weft_missing_out: u8;
    /// The last instruction of [`resume`], and what is behind it.
    pub static weft_resume_jump: u8;
    pub static weft_resume_end: u8;
    /// The first instruction of [`call`] from where it can be abandoned, and its `syscall`.
    pub static weft_call_begin: u8;
    pub static weft_call_instruction: u8;
    /// Where it goes then.
    pub static weft_call_abandoned: u8;
    /// The same for [`return_from_signal`].
    pub static weft_return_begin: u8;
    pub static weft_return_instruction: u8;
    pub static weft_return_abandoned: u8;
    /// The one instruction of [`copy`] that may fault, and where it goes then.
    pub static weft_copy_instruction: u8;
    pub static weft_copy_failed: u8;
    /// From where on [`handle`] looks for nothing any more, and its `syscall`.
    pub static weft_handled: u8;
    pub static weft_handled_instruction: u8;
    /// Behind the one instruction of [`halt`].
    pub static weft_halted: u8;
}

/// Back to the clone, with all that the program had. A thread that is interrupted in here starts it
/// again: it changes nothing that it needs.
#[unsafe(naked)]
pub extern "C" fn resume() {
    naked_asm!(
        "mov rsp, gs:[{stack}]",
        "cmp dword ptr gs:[{pending}], 0",
        "je 2f",
        "mov rdi, gs:[0]",
        "call {deliver}",
        "jmp {resume}",
        "2:",
        "movups xmm0, gs:[{v} + 0x00]",
        "movups xmm1, gs:[{v} + 0x10]",
        "movups xmm2, gs:[{v} + 0x20]",
        "movups xmm3, gs:[{v} + 0x30]",
        "movups xmm4, gs:[{v} + 0x40]",
        "movups xmm5, gs:[{v} + 0x50]",
        "movups xmm6, gs:[{v} + 0x60]",
        "movups xmm7, gs:[{v} + 0x70]",
        "movups xmm8, gs:[{v} + 0x80]",
        "movups xmm9, gs:[{v} + 0x90]",
        "movups xmm10, gs:[{v} + 0xa0]",
        "movups xmm11, gs:[{v} + 0xb0]",
        "movups xmm12, gs:[{v} + 0xc0]",
        "movups xmm13, gs:[{v} + 0xd0]",
        "movups xmm14, gs:[{v} + 0xe0]",
        "movups xmm15, gs:[{v} + 0xf0]",
        "push qword ptr gs:[{flags}]",
        "popfq",
        "mov rax, gs:[{g} + 0x00]",
        "mov rcx, gs:[{g} + 0x08]",
        "mov rdx, gs:[{g} + 0x10]",
        "mov rbx, gs:[{g} + 0x18]",
        "mov rbp, gs:[{g} + 0x28]",
        "mov rsi, gs:[{g} + 0x30]",
        "mov rdi, gs:[{g} + 0x38]",
        "mov r8, gs:[{g} + 0x40]",
        "mov r9, gs:[{g} + 0x48]",
        "mov r10, gs:[{g} + 0x50]",
        "mov r11, gs:[{g} + 0x58]",
        "mov r12, gs:[{g} + 0x60]",
        "mov r13, gs:[{g} + 0x68]",
        "mov r14, gs:[{g} + 0x70]",
        "mov r15, gs:[{g} + 0x78]",
        "mov rsp, gs:[{g} + 0x20]",
        ".globl weft_resume_jump",
        ".hidden weft_resume_jump",
        "weft_resume_jump:",
        "jmp qword ptr gs:[{target}]",
        ".globl weft_resume_end",
        ".hidden weft_resume_end",
        "weft_resume_end:",
        "ud2",
        g = const GENERAL,
        v = const VECTORS,
        flags = const at!(flags),
        stack = const at!(stack),
        pending = const at!(is_pending),
        target = const at!(target),
        deliver = sym crate::clone::signals::deliver_pending,
        resume = sym resume,
    )
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

/// Starts a thread that shares this one's memory: makes the system call in the registers of `child`,
/// which is where the new thread begins. Returns to the caller what the kernel returns.
///
/// All signals must be blocked: the new thread has its parent's `gs` for a moment.
#[unsafe(naked)]
pub extern "C" fn start_thread(child: &Thread, number: usize, args: &[usize; 6]) -> isize {
    naked_asm!(
        "push r12",
        "mov r12, rdi",
        "mov rax, rsi",
        "mov r11, rdx",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r12",
        "ret",
        "2:",
        // The new thread.
        "mov rsp, [r12 + {stack}]",
        "mov rdi, r12",
        "call {begin}",
        "jmp {resume}",
        stack = const at!(stack),
        begin = sym crate::clone::processes::begin_thread,
        resume = sym resume,
    )
}

/// Ends a thread: says that nobody uses its memory any more, and then uses none. All signals must be
/// blocked.
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
        exit = const crate::clone::system::EXIT,
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
        sigreturn = const crate::clone::system::RT_SIGRETURN,
    )
}

/// Goes on as a frame says, of which the second word is at `frame`; `gs` need not be the engine's any more.
#[unsafe(naked)]
pub extern "C" fn go_natively(frame: u64) -> ! {
    naked_asm!("mov rsp, rdi", "jmp {restorer}", restorer = sym restorer)
}

/// Goes on with what the thread's record has of the program, without `gs`. Not by a frame: the kernel would have a
/// system call that was interrupted fail, instead of going on with it.
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

/// Copies to or from the program's memory; says whether all of that is there.
///
/// Unlike a transfer by the kernel, this makes stacks grow.
///
/// # Safety
/// The agent's side must be there, and the program's must be the program's.
#[unsafe(naked)]
pub unsafe extern "C" fn copy(to: u64, from: u64, length: usize) -> bool {
    naked_asm!(
        "mov rcx, rdx",
        ".globl weft_copy_instruction",
        ".hidden weft_copy_instruction",
        "weft_copy_instruction:",
        "rep movsb",
        "mov eax, 1",
        "ret",
        ".globl weft_copy_failed",
        ".hidden weft_copy_failed",
        "weft_copy_failed:",
        "xor eax, eax",
        "ret",
    )
}

/// Stops the thread for the debugger that traces it, and that reads and writes what it is given.
#[unsafe(naked)]
pub extern "C" fn halt(halt: &HaltOf<Cell<u64>>) {
    naked_asm!("int3", ".globl weft_halted", ".hidden weft_halted", "weft_halted:", "ret",)
}

/// What the kernel calls for a signal: our handler, with flags that it can work with. At its end it looks whether
/// others have come that wait; one that comes after that look finds out by where it has come.
#[unsafe(naked)]
pub extern "C" fn handle() {
    naked_asm!(
        "push 2",
        "popfq",
        "sub rsp, 8",
        "call {handler}",
        // Behind the address of the restorer there is what the kernel wants `rsp` to point to.
        "add rsp, 16",
        ".globl weft_handled",
        ".hidden weft_handled",
        "weft_handled:",
        "cmp dword ptr gs:[{later}], 0",
        "jne 3f",
        "2:",
        "mov eax, {sigreturn}",
        ".globl weft_handled_instruction",
        ".hidden weft_handled_instruction",
        "weft_handled_instruction:",
        "syscall",
        "ud2",
        "3:",
        "mov rdi, rsp",
        "call {send}",
        "jmp 2b",
        handler = sym crate::clone::signals::handler,
        send = sym crate::clone::signals::later::send_after,
        later = const at!(later),
        sigreturn = const crate::clone::system::RT_SIGRETURN,
    )
}

/// What the kernel calls a handler's end by. Ours do not come here, but whoever goes on by a frame.
#[unsafe(naked)]
pub extern "C" fn restorer() {
    naked_asm!("mov eax, {sigreturn}", "syscall", "ud2", sigreturn = const crate::clone::system::RT_SIGRETURN)
}

/// Where the host sends a thread that is taken over: with its [`Thread`] in `rdi`, and all signals blocked.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn weft_clone_join() {
    naked_asm!(
        "mov rsp, [rdi + {stack}]",
        "push 2",
        "popfq",
        "call {join}",
        "jmp {resume}",
        stack = const at!(stack),
        join = sym crate::clone::processes::join,
        resume = sym resume,
    )
}

// What the host has a stopped thread do, with a [`weft_abi::CloneVisit`].
way_in!(weft_clone_start, crate::clone::start);
way_in!(weft_clone_leave, crate::clone::leave::leave);
way_in!(weft_clone_forget, crate::clone::leave::forget);
way_in!(weft_clone_weave, crate::clone::weaving::weave);
