//! Making the program's system calls, with its own registers.

use crate::clone::base::registers::{R11, RAX, RCX};
use crate::clone::base::system::{EFAULT, PAGE};
use crate::clone::base::{program, system};
use crate::clone::engine::lock::engine;
use crate::clone::thread::assembly;
use crate::clone::thread::record::Thread;

const RECVFROM: usize = 45;
const RECVMSG: usize = 47;
const GETDENTS: usize = 78;
const GETCWD: usize = 79;
const GETDENTS64: usize = 217;
const READLINKAT: usize = 267;
const GETRANDOM: usize = 318;
const PREADV2: usize = 327;
/// How many buffers the kernel takes (`IOV_MAX`).
const MOST_BUFFERS: u64 = 1024;

/// How many pages of a buffer are released before a call; what is beyond that makes the call fail, and it is
/// repeated.
const AHEAD: u64 = 256;

/// Makes the call as it is; `None` if a signal came first.
pub fn pass(thread: &Thread) -> Option<isize> {
    let guarded = engine().cache.pages.has_guarded();
    if guarded {
        free_buffers(thread);
    }
    let result = make(thread)?;
    if result != EFAULT {
        return Some(result);
    }
    // Where the kernel itself writes to a guarded page, there is no signal: the call fails.
    if !engine().cache.release_all() {
        return Some(result);
    }
    make(thread)
}

/// Releases guarded pages that the kernel is to write to: the call would fail half-way.
fn free_buffers(thread: &Thread) {
    let [number, _, rdx, _, _, _, rsi, rdi, r8, r9, r10, ..] = thread.general();
    let mut engine = engine();
    let mut free = |address: u64, length: u64| {
        let region = engine.cache.regions.at(address);
        if region.is_some_and(|region| region.is_code() && region.is_writable()) {
            let count = length.div_ceil(PAGE).clamp(1, AHEAD) + 1;
            for page in engine.cache.pages.guarded_after(address, count) {
                engine.cache.release(page);
            }
        }
    };
    // Any argument may point to something short that the call writes, or be no address at all.
    [rdi, rsi, rdx, r10, r8, r9].into_iter().for_each(|address| free(address, PAGE));
    // Some calls fill the buffer that they are given, and some take a list of buffers.
    let (list, count) = match number as usize {
        system::READ | system::PREAD | RECVFROM | GETDENTS | GETDENTS64 | system::READLINK => {
            return free(rsi, rdx);
        }
        GETRANDOM | GETCWD => return free(rdi, rsi),
        READLINKAT => return free(rdx, r10),
        system::READV | system::PREADV | PREADV2 | system::PROCESS_VM_READV => (rsi, rdx),
        RECVMSG => match program::read::<[u64; 4]>(rsi) {
            Some([name, _, list, count]) => {
                free(name, PAGE);
                (list, count)
            }
            None => return,
        },
        _ => return,
    };
    for index in 0..count.min(MOST_BUFFERS) {
        if let Some([address, length]) = program::read::<[u64; 2]>(list + 16 * index) {
            free(address, length);
        }
    }
}

/// Makes the call as it is, whatever comes of it; `None` if a signal came first.
pub fn make(thread: &Thread) -> Option<isize> {
    // Once the call is made it must not be repeated: the program cannot continue natively until its result is in
    // place.
    let native_pc = thread.native_pc.take();
    let result = assembly::call(thread);
    if result == assembly::ABANDONED {
        thread.native_pc.set(native_pc);
        return None;
    }
    Some(result)
}

/// Continues a thread behind a call with the result of the call.
pub fn answer(thread: &Thread, next: u64, result: isize) {
    thread.general[RAX].set(result as u64);
    thread.general[RCX].set(next);
    thread.general[R11].set(thread.flags.get());
    thread.native_pc.set(next);
}
