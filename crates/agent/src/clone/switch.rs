//! The assembly between the clone and the agent.
//!
//! A thread that leaves the clone saves everything the program can see, and takes the agent's stack.
//! The crate is compiled for baseline SSE2, so of the vector registers only xmm0-15 are its business.

use crate::clone::base::system;
use crate::clone::cache::arena::EXITS;
use crate::clone::cache::branch_tables;
use crate::clone::dispatch::dispatch;
use crate::clone::kernel::signals::handler::{deliver_pending, handler};
use crate::clone::thread::kept_signals::send_after;
use crate::clone::thread::landmarks::COUNT;
use crate::clone::thread::record::{Thread, at, left};
use core::arch::naked_asm;
use core::mem::offset_of;

const GENERAL: usize = offset_of!(Thread, general);
const VECTORS: usize = offset_of!(Thread, vectors);

/// An exit from the clone by which `rcx` points to its data.
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
    /// From a stub with a slot, whose target `rcx` points to.
    gate_slot,
    left::SLOT
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
        factor = const branch_tables::FACTOR,
        shift = const 32 - weft_abi::SECOND_BITS,
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

/// From the entry of a block that is not the one: `rax` is the complement of the block's address, and `rcx` where the
/// branch goes less that address.
#[unsafe(naked)]
pub extern "C" fn gate_wrong() {
    naked_asm!(
        "not rax",
        "lea rcx, [rcx + rax]",
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
        dispatch = sym dispatch,
        resume = sym resume,
    )
}

unsafe extern "C" {
    /// Where [`gate_missing`] leaves the clone.
    pub static weft_missing_out: u8;
    /// The last instruction of [`resume`], and what is behind it.
    pub static weft_resume_jump: u8;
    pub static weft_resume_end: u8;
    /// From where on [`handle`] looks for nothing any more, and its `syscall`.
    pub static weft_handled: u8;
    pub static weft_handled_instruction: u8;
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
        deliver = sym deliver_pending,
        resume = sym resume,
    )
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
        handler = sym handler,
        send = sym send_after,
        later = const at!(kept_signals),
        sigreturn = const system::RT_SIGRETURN,
    )
}

/// Where the exits from the clone are, in the order of [`Gates`].
///
/// [`Gates`]: crate::clone::cache::arena::Gates
pub fn exits() -> [u64; EXITS] {
    let exits: [extern "C" fn(); EXITS] = [
        gate_exit,
        gate_system_call,
        gate_wrong,
        gate_check,
        gate_sequence,
        gate_abort,
        gate_saved,
        gate_refused,
        gate_halt,
        gate_watch,
        gate_unknown,
        gate_slot,
    ];
    exits.map(|exit| exit as *const () as u64)
}

/// Where the places are that a handler of signals has to know, in the order of [`Landmark`].
///
/// [`Landmark`]: crate::clone::thread::landmarks::Landmark
pub fn landmarks() -> [u64; COUNT] {
    let function = |function: extern "C" fn()| function as *const () as u64;
    let label = |label: &u8| core::ptr::from_ref(label) as u64;
    // SAFETY: labels, whose addresses alone count.
    unsafe {
        [
            function(handle),
            label(&weft_handled),
            label(&weft_handled_instruction),
            function(resume),
            label(&weft_resume_jump),
            label(&weft_resume_end),
            function(gate_missing),
            label(&weft_missing_out),
        ]
    }
}
