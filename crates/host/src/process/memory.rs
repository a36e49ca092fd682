//! Reading and writing the target's memory.

use super::proc::Tid;
use crate::base::page::PAGE;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;

/// How many pieces one system call takes (the kernel's `IOV_MAX`).
const BATCH: usize = 1024;

/// Reads one piece of memory.
pub fn read(pid: Tid, address: TargetAddr, length: usize) -> Result<Vec<u8>> {
    read_many(pid, &[(address, length)])?
        .pop()
        .flatten()
        .ok_or_else(|| unmapped(pid, "read", address, length))
}

/// Reads many pieces with as few system calls as possible. A piece that is not (wholly) there comes
/// back as nothing.
pub fn read_many(pid: Tid, pieces: &[(TargetAddr, usize)]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut results: Vec<Option<Vec<u8>>> = Vec::with_capacity(pieces.len());
    while results.len() < pieces.len() {
        let batch = &pieces[results.len()..pieces.len().min(results.len() + BATCH)];
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|&(_, length)| vec![0; length]).collect();
        let mut transferred = transfer(pid, batch, &mut buffers, Direction::Read)?;
        // The kernel stops at the first piece that it cannot read: those before it are there, the one
        // that it stopped in is not, and the rest is asked for again.
        let before = results.len();
        for buffer in buffers {
            if transferred < buffer.len() {
                results.push(None);
                break;
            }
            transferred -= buffer.len();
            results.push(Some(buffer));
        }
        debug_assert!(results.len() > before, "every round must get somewhere");
    }
    Ok(results)
}

/// Reads one piece of memory, up to where it is there.
pub fn read_while_there(pid: Tid, address: TargetAddr, length: u64) -> Vec<u8> {
    let end = address.0.saturating_add(length);
    let (mut at, mut bytes) = (address.0, Vec::new());
    while at < end {
        let mut pieces = Vec::with_capacity(BATCH);
        while at < end && pieces.len() < BATCH {
            let next = (at / PAGE * PAGE).saturating_add(PAGE).min(end);
            pieces.push((TargetAddr(at), (next - at) as usize));
            at = next;
        }
        let mut buffers: Vec<Vec<u8>> = pieces.iter().map(|&(_, length)| vec![0; length]).collect();
        // Each further try would look for a page that is not there, while a thread stands still for it.
        let mut there = transfer(pid, &pieces, &mut buffers, Direction::Read).unwrap_or(0);
        for buffer in buffers {
            if there < buffer.len() {
                return bytes;
            }
            there -= buffer.len();
            bytes.extend(buffer);
        }
    }
    bytes
}

/// The words on a stack, as far as some pages are there.
pub fn words_above(pid: Tid, stack: TargetAddr, pages: u64) -> Vec<u64> {
    words(&read_while_there(pid, stack, pages * PAGE - stack.0 % PAGE))
}

/// A word, if it is there.
pub fn word(pid: Tid, at: TargetAddr) -> Option<u64> {
    words(&read(pid, at, 8).ok()?).first().copied()
}

/// Bytes as words.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
}

/// Writes to memory that the target itself could write to.
pub fn write(pid: Tid, address: TargetAddr, bytes: &[u8]) -> Result<()> {
    let mut buffers = [bytes.to_vec()];
    let written = transfer(pid, &[(address, bytes.len())], &mut buffers, Direction::Write)?;
    if written == bytes.len() { Ok(()) } else { Err(unmapped(pid, "write", address, bytes.len())) }
}

/// Writes to memory of a stopped target whatever its protection. The page becomes the target's own
/// copy, as when a debugger sets a breakpoint; the file behind it is never changed.
pub fn force_write(pid: Tid, stopped: Tid, address: TargetAddr, bytes: &[u8]) -> Result<()> {
    let through_proc = OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .and_then(|file| file.write_all_at(bytes, address.0));
    // Kernels can be told to refuse the former; a tracer's own call is always allowed.
    through_proc
        .or_else(|_| super::ptrace::force_write(stopped, address, bytes))
        .map_err(|e| unmapped(pid, "write", address, bytes.len()).why(e.to_string()))
}

enum Direction {
    Read,
    Write,
}

fn transfer(
    pid: Tid,
    pieces: &[(TargetAddr, usize)],
    buffers: &mut [Vec<u8>],
    direction: Direction,
) -> Result<usize> {
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|&(address, length)| libc::iovec { iov_base: address.0 as *mut _, iov_len: length })
        .collect();
    let local: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() })
        .collect();
    let call = match direction {
        Direction::Read => libc::process_vm_readv,
        Direction::Write => libc::process_vm_writev,
    };
    // SAFETY: `local` describes live buffers of exactly these lengths; `remote` is the target's.
    let moved = unsafe {
        call(pid, local.as_ptr(), local.len() as _, remote.as_ptr(), remote.len() as _, 0)
    };
    if moved >= 0 {
        return Ok(moved as usize);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT) => Ok(0),
        _ => Err(crate::proc::unreadable(pid, "mem", &error)),
    }
}

fn unmapped(pid: Tid, verb: &str, address: TargetAddr, length: usize) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("weft cannot {verb} {length} bytes at {address} of process {pid}"),
    )
    .why("not all of them are mapped with that permission")
    .advice(format!("`cat /proc/{pid}/maps` shows what is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Tid {
        std::process::id() as Tid
    }

    #[test]
    fn reads_more_pieces_than_one_call_takes_and_skips_what_is_not_there() {
        let numbers: Vec<u32> = (0..3000).collect();
        let address = |i: usize| TargetAddr(&raw const numbers[i] as u64);
        let mut pieces: Vec<_> = (0..3000).map(|i| (address(i), 4)).collect();
        pieces[1500].0 = TargetAddr(8);
        pieces[2999].0 = TargetAddr(8);
        let read = read_many(me(), &pieces).unwrap();
        for (i, piece) in read.iter().enumerate() {
            let expected = (i != 1500 && i != 2999).then(|| (i as u32).to_ne_bytes().to_vec());
            assert_eq!(*piece, expected);
        }
    }

    #[test]
    fn reads_up_to_where_nothing_is_mapped() {
        let (pages, page) = (2 * BATCH + 3, PAGE as usize);
        // SAFETY: a new mapping, of which the last page is taken away again.
        let start = unsafe {
            let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let start = libc::mmap(std::ptr::null_mut(), (pages + 1) * page, access, kind, -1, 0);
            libc::munmap(start.byte_add(pages * page), page);
            start as u64
        };
        let read = |skipped: usize, length: usize| {
            read_while_there(me(), TargetAddr(start) + skipped as u64, length as u64).len()
        };
        assert_eq!(read(100, 200), 200);
        assert_eq!(read(100, pages * page), pages * page - 100);
        assert_eq!(read(pages * page, page), 0);
    }

    #[test]
    fn writes() {
        let bytes = Box::new([0u8; 4]);
        write(me(), TargetAddr(bytes.as_ptr() as u64), &[1, 2, 3, 4]).unwrap();
        assert_eq!(std::hint::black_box(*bytes), [1, 2, 3, 4]);
        assert_eq!(write(me(), TargetAddr(8), &[1]).unwrap_err().kind, ErrorKind::InvalidArgument);
        assert!(read(me(), TargetAddr(8), 1).is_err());
    }
}
