//! Looks after the connection while the program runs: `Ctrl-C` in the debugger, or its end.
//!
//! The thread that traces waits for the program then, and can look at nothing else. So there is another
//! one. A debugger that comes to a breakpoint a thousand times has the program run two thousand times, a
//! moment each: to wake the other thread each time would cost more than the breakpoint. So it is not
//! woken, but looks by itself a little later; only after a while without anything to do it sleeps
//! until it is.

use crate::debuggee::Interrupter;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How much later it looks.
const NAP: Duration = Duration::from_millis(5);
/// After how many looks it sleeps.
const NAPS: u32 = 40;

#[derive(Default)]
struct State {
    /// What stops the program, while it runs.
    running: Option<Interrupter>,
    /// Whether the thread sleeps until it is woken.
    is_asleep: bool,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that looks after a connection.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts a thread that watches a socket, which must be shut down before this is dropped.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = std::thread::Builder::new()
            .name("weft-debugger".into())
            .spawn(move || look_after(&socket, &its))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The program runs from now on.
    pub fn begin(&self, interrupter: Interrupter) {
        let mut state = self.shared.lock();
        state.running = Some(interrupter);
        if state.is_asleep {
            self.shared.wake.notify_one();
        }
    }

    /// The program stands still again.
    pub fn end(&self) {
        self.shared.lock().running = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look_after(socket: &OwnedFd, shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let mut naps = 0;
        while state.running.is_none() && !state.is_over {
            state.is_asleep = naps == NAPS;
            state = if state.is_asleep {
                shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                naps += 1;
                let waited = shared.wake.wait_timeout(state, NAP);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            state.is_asleep = false;
        }
        if state.is_over {
            return;
        }
        drop(state);
        wait_for_input(socket);
        let mut state = shared.lock();
        // What came when the program had stopped is for the other thread.
        if let Some(interrupter) = &state.running
            && is_there_more(socket)
        {
            interrupter.interrupt();
            state.running = None;
        }
    }
}

/// Blocks until there is something to read, or nobody any more who would write it.
fn wait_for_input(socket: &OwnedFd) {
    let mut poll =
        libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: one structure, which the kernel writes to.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
}

/// Whether the debugger wants something, or has gone. What it has to say of packets of before is taken off.
fn is_there_more(socket: &OwnedFd) -> bool {
    loop {
        let mut byte = 0u8;
        let receive = |flags, byte: &mut u8| {
            // SAFETY: the kernel writes one byte.
            unsafe { libc::recv(socket.as_raw_fd(), std::ptr::from_mut(byte).cast(), 1, flags) }
        };
        match receive(libc::MSG_PEEK | libc::MSG_DONTWAIT, &mut byte) {
            1 if matches!(byte, b'+' | b'-') => {
                receive(libc::MSG_DONTWAIT, &mut byte);
            }
            0 | 1 => return true,
            _ => {
                let error = io::Error::last_os_error().kind();
                return !matches!(error, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    #[test]
    fn a_program_that_runs_is_stopped_and_one_that_stands_is_not() {
        let (mut debugger, server) = UnixStream::pair().unwrap();
        let watch = Watch::new(server.try_clone().unwrap().into()).unwrap();
        let (tell, told) = mpsc::channel();
        let interrupter = Interrupter::new(move || {
            let _ = tell.send(());
        });
        let soon = Duration::from_millis(300);

        debugger.write_all(&[3]).unwrap();
        assert!(told.recv_timeout(soon).is_err(), "it stands still");
        watch.begin(interrupter.clone());
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(told.recv_timeout(soon).is_err(), "once is enough");
        watch.end();

        // The byte is still there for who reads packets. After a time of sleep it works as well.
        let mut byte = [0];
        std::io::Read::read_exact(&mut &server, &mut byte).unwrap();
        watch.begin(interrupter.clone());
        debugger.write_all(b"+").unwrap();
        assert!(told.recv_timeout(soon).is_err(), "an acknowledgement is no wish");
        drop(debugger);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        watch.end();
        server.shutdown(std::net::Shutdown::Both).unwrap();
    }
}
