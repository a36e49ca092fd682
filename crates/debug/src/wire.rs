//! The connection: bytes in, packets out, and back.
//!
//! `gdbstub` would be given every byte; here whole packets are found first, so that damaged ones and those
//! that it does not know never get there.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// How long a packet may be, checksum and all.
pub const PACKET_SIZE: usize = 64 << 10;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What is between a packet's `$` and its `#`.
    Packet(Vec<u8>),
    /// A packet that is damaged or too long.
    Damaged,
    /// The last answer was not understood.
    Again,
    /// The program is to be stopped.
    Interrupt,
}

/// A connection to a debugger.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    received: Vec<u8>,
    /// Whether packets are acknowledged, as they are until the debugger wants otherwise.
    acknowledges: bool,
    last: Vec<u8>,
}

impl Wire {
    /// A connection by a socket of any kind.
    pub fn new(socket: OwnedFd) -> Self {
        // The library's calls on the one kind of socket are the same as on any other.
        Self {
            stream: UnixStream::from(socket),
            received: Vec::new(),
            acknowledges: true,
            last: Vec::new(),
        }
    }

    /// The socket, for its watcher.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    /// Ends the connection, also for its watcher.
    pub fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// From now on packets are not acknowledged.
    pub fn stop_acknowledging(&mut self) {
        self.acknowledges = false;
    }

    /// Waits for what comes next; `None` when the other side has gone.
    pub fn receive(&mut self) -> io::Result<Option<Input>> {
        loop {
            if let Some(input) = take(&mut self.received) {
                match input {
                    Input::Packet(_) if self.acknowledges => self.write(b"+")?,
                    Input::Damaged if self.acknowledges => self.write(b"-")?,
                    Input::Again if self.acknowledges => {
                        self.write(&self.last.clone())?;
                        continue;
                    }
                    Input::Again => continue,
                    _ => {}
                }
                return Ok(Some(input));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_gone(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether something was received already that comes next.
    pub fn has_more(&self) -> bool {
        self.received.iter().any(|byte| !matches!(byte, b'+' | b'-'))
    }

    /// Sends packets, checksums and all. That nobody is there any more is found out when something is to be
    /// received.
    pub fn send(&mut self, framed: &[u8]) -> io::Result<()> {
        if self.acknowledges {
            self.last = framed.to_vec();
        }
        self.write(framed)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write_all(bytes) {
            Err(error) if is_gone(&error) => Ok(()),
            result => result,
        }
    }
}

/// Whether a failure means that the other side has gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// A packet with all that belongs to it.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(body.len() + 4);
    framed.push(b'$');
    framed.extend_from_slice(body);
    framed.extend_from_slice(format!("#{:02x}", checksum(body)).as_bytes());
    framed
}

/// What is in a packet, if it is one and no more.
pub fn unframe(framed: &[u8]) -> Option<&[u8]> {
    framed.strip_prefix(b"$").and_then(|rest| rest.get(..rest.len().checked_sub(3)?))
}

fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte))
}

/// Takes the first thing off what was received, if all of it is there.
fn take(received: &mut Vec<u8>) -> Option<Input> {
    // What is between packets means nothing, but for these.
    let start = received.iter().position(|byte| matches!(byte, b'$' | b'-' | 3));
    let Some(start) = start else {
        received.clear();
        return None;
    };
    received.drain(..start);
    match received[0] {
        b'-' => {
            received.remove(0);
            return Some(Input::Again);
        }
        3 => {
            received.remove(0);
            return Some(Input::Interrupt);
        }
        _ => {}
    }
    let Some(end) = received.iter().position(|&byte| byte == b'#') else {
        // It would be kept until the connection ends.
        if received.len() > PACKET_SIZE {
            received.clear();
            return Some(Input::Damaged);
        }
        return None;
    };
    let sum = received.get(end + 1..end + 3)?;
    let sum = std::str::from_utf8(sum).ok().and_then(|sum| u8::from_str_radix(sum, 16).ok());
    let body = received[1..end].to_vec();
    received.drain(..end + 3);
    if sum != Some(checksum(&body)) || body.len() > PACKET_SIZE - 4 {
        return Some(Input::Damaged);
    }
    Some(Input::Packet(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Input> {
        let mut bytes = bytes.to_vec();
        std::iter::from_fn(|| take(&mut bytes)).collect()
    }

    #[test]
    fn packets_are_found_among_other_things() {
        let packet = |body: &[u8]| Input::Packet(body.to_vec());
        assert_eq!(frame(b"OK"), b"$OK#9a");
        assert_eq!(unframe(b"$OK#9a"), Some(&b"OK"[..]));
        assert_eq!(all(b"++$OK#9ax\x03$g#67"), [packet(b"OK"), Input::Interrupt, packet(b"g")]);
        assert_eq!(all(b"-"), [Input::Again]);
        assert_eq!(all(b"$OK#9"), []);
        assert_eq!(all(b"$OK#9b$g#zz$#00"), [Input::Damaged, Input::Damaged, packet(b"")]);
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let mut bytes = vec![b'$'; 2 * PACKET_SIZE];
        assert_eq!(take(&mut bytes), Some(Input::Damaged));
        assert!(bytes.is_empty());
        let long = vec![b'x'; PACKET_SIZE];
        assert_eq!(all(&frame(&long)), [Input::Damaged]);
    }
}
