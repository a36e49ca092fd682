//! What the host has to know to find the program's registers of a thread from outside.

use crate::clone::base::image::image;
use crate::clone::cache::arena;
use crate::clone::cache::arena::HEAD;
use crate::clone::cache::blocks::BlockInfo;
use crate::clone::cache::stored::Stored;
use crate::clone::engine::lock::addresses;
use crate::clone::thread::assembly::abandonable_call;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::at;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::{offset_of, transmute_copy};
use weft_abi::outline::{BlockOutline, Outline, RecordOutline, StoredOutline};

/// An outline of the engine, which must be in place; 0 if it is not.
pub fn outline() -> u64 {
    let Some((lock, cache)) = addresses() else { return 0 };
    let address = |list: *const u8| list as u64;
    let (arena, half, piece) = arena::outline();
    let (image, call) = (image(), abandonable_call());
    let outline = Outline {
        lock,
        image: [image.start, image.end],
        resume: [Landmark::Resume, Landmark::ResumeJump, Landmark::ResumeEnd]
            .map(Landmark::address),
        missing: [Landmark::Missing, Landmark::MissingOut].map(Landmark::address),
        call: [call.begin, call.instruction],
        arenas: address((&raw const cache.arenas).cast()),
        blocks: address((&raw const cache.blocks).cast()),
        retired: address((&raw const cache.retired).cast()),
        stored: address((&raw const cache.store.all).cast()),
        list: list(),
        arena,
        half,
        piece,
        block: BlockOutline {
            size: size_of::<BlockInfo>() as u64,
            start: offset_of!(BlockInfo, start) as u64,
            code: offset_of!(BlockInfo, code) as u64,
            records: offset_of!(BlockInfo, records) as u64,
        },
        file: StoredOutline {
            size: size_of::<Stored>() as u64,
            header: offset_of!(Stored, header) as u64,
            head: HEAD,
        },
        record: RecordOutline {
            stack: at!(stack) as u64,
            general: at!(general) as u64,
            pc: at!(pc) as u64,
            native_pc: at!(native_pc) as u64,
            epoch: at!(epoch) as u64,
            aside: [at!(rax), at!(rcx), at!(far), at!(second_far), at!(kept), at!(kept_names)]
                .map(|offset| offset as u64),
        },
    };
    // It stays for as long as the engine does.
    Box::leak(Box::new(outline)) as *const Outline as u64
}

/// Where a [`Vec`] has the address of its elements, and their number: what is in which of its three words is not laid
/// down anywhere.
fn list() -> [u64; 2] {
    const COUNT: usize = 1;
    let mut probe: Vec<u64> = Vec::with_capacity(8);
    probe.push(0);
    const { assert!(size_of::<Vec<u64>>() == size_of::<[usize; 3]>()) };
    // SAFETY: a vector is three words, all of which are set.
    let words: [usize; 3] = unsafe { transmute_copy(&probe) };
    let place = |value: usize| words.iter().position(|&word| word == value).unwrap_or(0) as u64;
    [probe.as_ptr() as usize, COUNT].map(|value| 8 * place(value))
}
