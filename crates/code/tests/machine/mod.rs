//! Runs code from a chosen state until it traps, and says what the state was then.
//!
//! The way in and the way out are signals: the handler swaps the whole context, so that nothing of the machine is lost
//! on the way and anything may be run. Only for processes with one thread.
#![allow(dead_code)]

pub mod instructions;

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// More than the kernel saves of vector state anywhere, without tiles.
const VECTOR_STATE: usize = 4096;
/// Where the processor says which parts are not in their initial state.
const PRESENT: usize = 512;

/// The parts of vector state that are set and compared, each with its number, place and size: x87, SSE, AVX, masks,
/// and the two halves of AVX-512, as far as this processor has them and wherever it puts them.
fn parts() -> &'static [(u32, usize, usize)] {
    static FOUND: OnceLock<Vec<(u32, usize, usize)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let enabled = layout_of(0).eax;
        let others = [2, 5, 6, 7].into_iter().filter(|part| enabled >> part & 1 == 1).map(|part| {
            let found = layout_of(part);
            (part, found.ebx as usize, found.eax as usize)
        });
        [(0, 0, 160), (1, 160, 256)].into_iter().chain(others).collect()
    })
}

/// What the processor says of a part of its state.
#[allow(unused_unsafe)] // Newer compilers know that asking is safe.
fn layout_of(part: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every 64-bit processor that has AVX can be asked, and the others say nothing.
    unsafe { std::arch::x86_64::__cpuid_count(0xd, part) }
}

#[derive(Clone)]
pub struct State {
    /// In the order in which the processor counts them.
    pub registers: [u64; 16],
    pub flags: u64,
    pub rip: u64,
    pub vectors: Vec<u8>,
    /// The signal that ended the run.
    pub signal: i32,
    pub fault: Fault,
}

/// What the kernel says of a signal beyond its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub code: i32,
    /// The address that the signal is about.
    pub address: u64,
    /// Which exception it was, and what the processor said of it.
    pub exception: u64,
    pub error: u64,
    /// The address that could not be reached, if that was it.
    pub unreached: u64,
}

/// The exception that memory causes.
const PAGE_FAULT: u64 = 14;

impl State {
    pub fn new() -> Self {
        let mut vectors = vec![0; VECTOR_STATE];
        vectors[0..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        vectors[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        Self {
            registers: [0; 16],
            flags: 0x202,
            rip: 0,
            vectors,
            signal: 0,
            fault: Fault::default(),
        }
    }

    /// Sets all vector registers, eight bytes at a time.
    pub fn fill_vectors(&mut self, mut word: impl FnMut() -> u64) {
        for &(part, start, size) in parts() {
            // Of x87 only the registers, not the control words.
            let start = if part == 0 { 32 } else { start };
            let size = if part == 0 { 128 } else { size };
            for place in self.vectors[start..start + size].chunks_mut(8) {
                place.copy_from_slice(&word().to_le_bytes());
            }
        }
        // Eight registers of ten bytes each, with nothing behind them, and all in use.
        for index in 0..8 {
            self.vectors[32 + index * 16 + 10..48 + index * 16].fill(0);
        }
        self.vectors[4] = 0xff;
    }

    /// Where the vector state differs.
    pub fn vector_difference(&self, other: &Self) -> Option<usize> {
        // The address of the last x87 instruction is that of the copy.
        [0..8, 16..VECTOR_STATE]
            .into_iter()
            .find(|range| self.vectors[range.clone()] != other.vectors[range.clone()])
            .and_then(|mut range| range.find(|index| self.vectors[*index] != other.vectors[*index]))
    }
}

/// The kernel's order of general registers in a context.
const ORDER: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

struct Shared(UnsafeCell<Option<(State, State)>>);

// SAFETY: the process has one thread, and its handler runs only where that thread has left the cell alone.
unsafe impl Sync for Shared {}

/// What runs next, or ran last, and what was interrupted for it.
static RUN: Shared = Shared(UnsafeCell::new(None));
static RUNNING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST_TICK: AtomicU64 = AtomicU64::new(0);
/// How many ticks have passed in this run.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// How often a run is looked at, in microseconds of its own time.
const TICK: i64 = 20_000;
/// How many ticks a run may take before it is taken for endless. A lock over two cache lines alone can take two: the kernel slows it down.
const ENDLESS: u64 = 8;

/// Maps memory for code, at an address where nothing is.
pub fn map_code(address: u64, size: usize) -> &'static mut [u8] {
    map(address, size, libc::PROT_EXEC)
}

/// Maps memory for data likewise: who jumps there by chance faults, and does not do whatever the numbers there say.
pub fn map_data(address: u64, size: usize) -> &'static mut [u8] {
    map(address, size, 0)
}

fn map(address: u64, size: usize, more: libc::c_int) -> &'static mut [u8] {
    // SAFETY: nothing is replaced, and what is mapped is never taken back.
    unsafe {
        let place = libc::mmap(
            address as *mut _,
            size,
            libc::PROT_READ | libc::PROT_WRITE | more,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(place as u64, address, "cannot map {address:#x}");
        std::slice::from_raw_parts_mut(place.cast(), size)
    }
}

/// Takes over the signals that code can cause. The process must have one thread.
pub fn prepare() {
    assert!(parts().iter().all(|(_, start, size)| start + size <= VECTOR_STATE));
    let stack = Box::leak(vec![0_u8; 1 << 18].into_boxed_slice());
    // SAFETY: the stack lives for ever, and the handler is one.
    unsafe {
        let stack =
            libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        for signal in [
            libc::SIGTRAP,
            libc::SIGSEGV,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGBUS,
            libc::SIGVTALRM,
        ] {
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
        let tick = libc::timeval { tv_sec: 0, tv_usec: TICK };
        let timer = libc::itimerval { it_interval: tick, it_value: tick };
        assert_eq!(libc::setitimer(libc::ITIMER_VIRTUAL, &timer, std::ptr::null_mut()), 0);
    }
}

/// Runs from a state until something traps.
pub fn run(start: &State) -> State {
    COUNT.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the handler looks at the cell only after the trap, and is done with it when that returns.
    unsafe {
        *RUN.0.get() = Some((start.clone(), State::new()));
        std::arch::asm!("int3");
        (*RUN.0.get()).take().map_or_else(State::new, |run| run.0)
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let running = RUNNING.load(Ordering::SeqCst);
    if signal == libc::SIGVTALRM {
        let count = COUNT.load(Ordering::SeqCst);
        if LAST_TICK.swap(count, Ordering::SeqCst) != count {
            TICKS.store(0, Ordering::SeqCst);
        }
        if TICKS.fetch_add(1, Ordering::SeqCst) < ENDLESS || !running {
            return;
        }
    }
    // SAFETY: the context is the kernel's, and the cell is ours: see `run`.
    unsafe {
        let context = &mut *context;
        let Some((guest, host)) = (*RUN.0.get()).as_mut() else { libc::_exit(99) };
        if running {
            store(context, guest);
            guest.signal = signal;
            guest.fault = fault(&*info, context);
            load(context, host);
        } else {
            store(context, host);
            load(context, guest);
        }
    }
    RUNNING.store(!running, Ordering::SeqCst);
}

fn fault(info: &libc::siginfo_t, context: &libc::ucontext_t) -> Fault {
    let register = |number: i32| context.uc_mcontext.gregs[number as usize] as u64;
    let exception = register(libc::REG_TRAPNO);
    Fault {
        code: info.si_code,
        // SAFETY: every signal that comes here but the clock's has one.
        address: unsafe { info.si_addr() } as u64,
        exception,
        error: register(libc::REG_ERR),
        unreached: if exception == PAGE_FAULT { register(libc::REG_CR2) } else { 0 },
    }
}

/// Copies a context to a state. Parts that are in their initial state are written as such.
unsafe fn store(context: &libc::ucontext_t, state: &mut State) {
    for (index, &register) in ORDER.iter().enumerate() {
        state.registers[index] = context.uc_mcontext.gregs[register as usize] as u64;
    }
    state.flags = context.uc_mcontext.gregs[libc::REG_EFL as usize] as u64;
    state.rip = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    // SAFETY: the kernel's area has all parts that the processor has; the state's was checked in `prepare`.
    unsafe {
        let area = context.uc_mcontext.fpregs.cast::<u8>();
        let present = area.add(PRESENT).read();
        for &(part, start, size) in parts() {
            let place = &mut state.vectors[start..start + size];
            if present >> part & 1 == 1 {
                place.copy_from_slice(std::slice::from_raw_parts(area.add(start), size));
            } else {
                place.fill(0);
                if part == 0 {
                    place[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
                }
            }
        }
        // The control word of SSE is always there.
        state.vectors[24..28].copy_from_slice(std::slice::from_raw_parts(area.add(24), 4));
    }
}

unsafe fn load(context: &mut libc::ucontext_t, state: &State) {
    for (index, &register) in ORDER.iter().enumerate() {
        context.uc_mcontext.gregs[register as usize] = state.registers[index] as i64;
    }
    context.uc_mcontext.gregs[libc::REG_EFL as usize] = state.flags as i64;
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = state.rip as i64;
    // SAFETY: as in `store`.
    unsafe {
        let area = context.uc_mcontext.fpregs.cast::<u8>();
        for &(_, start, size) in parts() {
            std::slice::from_raw_parts_mut(area.add(start), size)
                .copy_from_slice(&state.vectors[start..start + size]);
        }
        // The header: everything that is set here is present.
        let mask = parts().iter().fold(0_u64, |mask, part| mask | 1 << part.0);
        let present = area.add(PRESENT).cast::<u64>();
        present.write(present.read() | mask);
    }
}
