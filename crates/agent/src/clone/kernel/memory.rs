//! System calls that change what is mapped.

use crate::clone::base::fail::fail;
use crate::clone::base::image::image;
use crate::clone::base::registers::{R8, R9};
use crate::clone::base::system::{EFAULT, PAGE};
use crate::clone::base::{files, host, system};
use crate::clone::cache::branch_tables;
use crate::clone::cache::regions::Region;
use crate::clone::engine::lock::engine;
use crate::clone::kernel::pass::make;
use crate::clone::thread::record::Thread;
use core::ops::Range;
use weft_abi::stored::PATH_SIZE;

/// The protection of code that nobody changes.
const CODE: usize = system::PROT_READ | system::PROT_EXEC;
const MAP_TYPE: usize = 0xf;
const MREMAP_DONTUNMAP: u64 = 4;
const SHM_REMAP: u64 = 0o40000;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_REMOVE: u64 = 9;

/// The ranges that a call changes, as far as the program chooses their addresses.
fn changed_by(thread: &Thread, number: usize) -> [Range<u64>; 2] {
    let [_, _, rdx, _, _, _, rsi, rdi, r8, _, r10, ..] = thread.general();
    let range = |start: u64, length: u64| start..start.saturating_add(length);
    match number {
        system::MMAP if r10 as usize & system::MAP_FIXED == 0 => [0..0, 0..0],
        system::MREMAP if r10 as usize & system::MREMAP_FIXED != 0 => {
            [range(rdi, rsi), range(r8, rdx)]
        }
        system::SHMAT if rdx & SHM_REMAP != 0 => {
            [range(rsi, system::segment_length(rdi as usize).unwrap_or_default()), 0..0]
        }
        system::SHMAT | system::SHMDT => [0..0, 0..0],
        _ => [range(rdi, rsi), 0..0],
    }
}

/// Why a program leaves its clone that would change it.
const CHANGES_CLONE: &str = "the program changes memory where the clone is";

/// Whether the engine itself is in memory that a program is about to change: because it does not ask what is there.
fn is_in_image(range: &Range<u64>) -> bool {
    let image = image();
    range.start < image.end && image.start < range.end
}

/// Calls that change what is mapped.
pub fn memory(thread: &Thread, number: usize) -> Option<isize> {
    let changed = changed_by(thread, number);
    if changed.iter().any(branch_tables::are_in) {
        fail("the program changes memory where the clone has its tables");
    }
    if changed.iter().any(is_in_image) {
        fail(CHANGES_CLONE);
    }
    let (result, is_unnamed) = change_memory(thread, number, &changed)?;
    // Not under the lock, which the host may need to answer.
    if is_unnamed
        && !host::request_name()
        && let Some(recorder) = &engine().recorder
    {
        recorder.leave_unnamed();
    }
    Some(result)
}

/// Makes the call under the lock. Returns its result, and whether a file was mapped whose name only the host can
/// find.
fn change_memory(thread: &Thread, number: usize, changed: &[Range<u64>]) -> Option<(isize, bool)> {
    let [_, _, rdx, _, _, _, rsi, rdi, _, _, r10, ..] = thread.general();
    let mut engine = engine();
    // Under the lock: nothing is translated to there between this and the call.
    if changed.iter().any(|range| !range.is_empty() && engine.cache.is_in(range)) {
        drop(engine);
        fail(CHANGES_CLONE);
    }
    let engine = &mut *engine;
    // Under the lock: no other thread maps, or guards what is mapped, between the call and its record.
    let mut result = make(thread)?;
    if result == EFAULT && engine.cache.release_all() {
        result = make(thread)?;
    }
    let mut is_unnamed = false;
    if result < 0 && result > -4096 {
        return Some((result, is_unnamed));
    }
    let whole = |length: u64| length.next_multiple_of(PAGE);
    match number {
        system::MMAP => {
            let start = result as u64;
            let end = start + whole(rsi);
            engine.cache.unmapped(start, end);
            let is_shared = r10 as usize & MAP_TYPE != system::MAP_PRIVATE;
            engine.cache.regions.insert(Region {
                start,
                end,
                protection: rdx as usize & 7,
                is_shared,
            });
            let is_file = r10 as usize & system::MAP_ANONYMOUS == 0;
            let is_private_code = is_file && !is_shared && rdx as usize & 7 == CODE;
            if is_private_code && engine.cache.store.is_on() {
                let mut room = [0; PATH_SIZE];
                let descriptor = thread.general[R8].get();
                let name = files::name_of(descriptor, &mut room).unwrap_or_default();
                let offset = thread.general[R9].get();
                engine.cache.mapped(&(start..end), descriptor as usize, offset, name);
                engine.count_files();
            }
            if let Some(recorder) = &engine.recorder
                && is_file
                && rdx as usize & system::PROT_EXEC != 0
            {
                let offset = thread.general[R9].get();
                is_unnamed = recorder.log_module(start..end, thread.general[R8].get(), offset);
            }
        }
        system::MUNMAP => {
            engine.cache.unmapped(rdi, rdi + whole(rsi));
        }
        system::MPROTECT | system::PKEY_MPROTECT => {
            engine.cache.forget(rdi, rdi + whole(rsi));
            engine.cache.regions.protect(rdi, rdi + whole(rsi), rdx as usize & 7);
            if number == system::PKEY_MPROTECT || rdx as usize & system::PROT_READ == 0 {
                // Whether it can be read is tried again.
                engine.cache.pages.remove(rdi, rdi + whole(rsi));
            }
        }
        system::MREMAP => {
            let old = engine.cache.regions.at(rdi).copied();
            engine.cache.forget(rdi, rdi + whole(rsi));
            // With no old length, or where the flag requests it, the old mapping stays.
            if rsi != 0 && r10 & MREMAP_DONTUNMAP == 0 {
                engine.cache.regions.remove(rdi, rdi + whole(rsi));
            }
            let (start, end) = (result as u64, result as u64 + whole(rdx));
            engine.cache.forget(start, end);
            if let Some(old) = old {
                engine.cache.regions.insert(Region { start, end, ..old });
            }
        }
        system::MADVISE if matches!(rdx, MADV_DONTNEED | MADV_FREE | MADV_REMOVE) => {
            // The pages have new contents, and are still guarded.
            let guarded = engine.cache.pages.all_guarded();
            let range = rdi / PAGE..(rdi + whole(rsi)) / PAGE;
            for page in guarded.into_iter().filter(|page| range.contains(page)) {
                engine.cache.release(page);
            }
            engine.cache.forget(rdi, rdi + whole(rsi));
        }
        system::SHMAT => {
            if let Some(length) = system::segment_length(rdi as usize) {
                let (start, end) = (result as u64, result as u64 + whole(length));
                engine.cache.unmapped(start, end);
                let protection = segment_protection(rdx);
                engine.cache.regions.insert(Region { start, end, protection, is_shared: true });
            }
        }
        system::SHMDT => {
            if let Some(&region) = engine.cache.regions.at(rdi) {
                engine.cache.unmapped(region.start, region.end);
            }
        }
        _ => {}
    }
    Some((result, is_unnamed))
}

/// With what protection `shmat` maps a segment, by its flags.
fn segment_protection(flags: u64) -> usize {
    const SHM_RDONLY: u64 = 0o10000;
    const SHM_EXEC: u64 = 0o100_000;
    let given = |flag: u64, bit: usize| if flags & flag != 0 { bit } else { 0 };
    system::PROT_READ
        | given(SHM_EXEC, system::PROT_EXEC)
        | (system::PROT_WRITE & !given(SHM_RDONLY, system::PROT_WRITE))
}
