//! Serves a debugger, in the thread that traces the program.

use crate::beyond::{self, Aside, Received, Request};
use crate::debuggee::{Stop, WatchKind};
use crate::program::{Number, Program, number_of};
use crate::signals;
use crate::watch::Watch;
use crate::wire::{self, Input, PACKET_SIZE, Wire};
use gdbstub::common::Signal;
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::{GdbStubStateMachine, GdbStubStateMachineInner, state};
use gdbstub::stub::{DisconnectReason, GdbStub, MultiThreadStopReason};
use gdbstub::target::ext::breakpoints;
use gdbstub::target::ext::catch_syscalls::CatchSyscallPosition;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Result};

/// How the service has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program has ended, with this code.
    Exited(i32),
    /// This signal has ended the program.
    Killed(u8),
    /// The debugger has ended the program.
    KilledByDebugger,
    /// The debugger has let the program go.
    Detached,
    /// The connection is gone; the program stands still.
    HungUp,
}

/// What `gdbstub` writes.
#[derive(Debug, Default)]
struct Outbox(Vec<u8>);

impl Connection for Outbox {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> std::result::Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::result::Result<(), Infallible> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> std::result::Result<(), Infallible> {
        Ok(())
    }
}

type Machine<'a> = GdbStubStateMachine<'static, Program<'a>, Outbox>;
type Running<'a> = GdbStubStateMachineInner<'static, state::Running, Program<'a>, Outbox>;

/// What is said where something cannot be done.
const FAILED: &[u8] = b"E01";

/// Serves one connection, until it is over.
pub fn serve(socket: OwnedFd, program: &mut Program<'_>) -> Result<Ending> {
    let wire = Wire::new(socket);
    let watched = wire.socket().map_err(|error| broken(&error))?;
    let watch = Watch::new(watched).map_err(|error| broken(&error))?;
    let mut service = Service { wire, watch, program, features: Vec::new() };
    let ending = service.run();
    service.program.forget_wishes();
    // The other thread waits for the connection to say something.
    service.wire.close();
    ending
}

fn broken(error: &io::Error) -> Error {
    Error::new(ErrorKind::SystemCall, "the connection to the debugger failed")
        .why(error.to_string())
}

struct Service<'s, 'a> {
    wire: Wire,
    watch: Watch,
    program: &'s mut Program<'a>,
    /// What the debugger has said that it can do.
    features: Vec<u8>,
}

impl<'a> Service<'_, 'a> {
    fn run(&mut self) -> Result<Ending> {
        self.program.lay_out();
        let mut machine = self.new_machine()?;
        let mut ending = Ending::KilledByDebugger;
        loop {
            let packet = match self.wire.receive().map_err(|error| broken(&error))? {
                None if self.program.pid().is_some() => return Ok(Ending::HungUp),
                None => return Ok(ending),
                Some(Input::Packet(packet)) => packet,
                // The program stands still already, and a damaged packet comes again.
                Some(_) => continue,
            };
            if let Some(answer) = self.program.answer_for_children(&packet) {
                self.send(&answer)?;
                continue;
            }
            let packet = beyond::in_full(packet, self.program.thread);
            match beyond::hear(packet, PACKET_SIZE) {
                Received::Nonsense => self.send(FAILED)?,
                Received::Ours(request) => {
                    let is_last_acknowledged = request == Request::NoAcknowledgements;
                    let answer = self.program.answer(request);
                    self.send(answer.as_deref().unwrap_or(FAILED))?;
                    if is_last_acknowledged {
                        self.wire.stop_acknowledging();
                    }
                }
                Received::Theirs(packet, aside) => {
                    let is_first = aside == Aside::Features;
                    if is_first {
                        self.features.clone_from(&packet);
                        self.program.report_forks(beyond::hears_of_forks(&packet));
                    }
                    self.program.note(aside);
                    let end;
                    (machine, end) = match feed(machine, self.program, &packet) {
                        Some(machine) => self.answer(machine, is_first)?,
                        None => {
                            self.send(FAILED)?;
                            (self.new_machine()?, None)
                        }
                    };
                    if let Some(end) = end {
                        ending = end;
                        if !self.program.is_extended {
                            return Ok(ending);
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self, body: &[u8]) -> Result<()> {
        self.send_framed(&wire::frame(body))
    }

    fn send_framed(&mut self, framed: &[u8]) -> Result<()> {
        self.wire.send(framed).map_err(|error| broken(&error))
    }

    /// A new machine that knows what the last one knew: one that has met something that it does not
    /// understand is gone.
    fn new_machine(&mut self) -> Result<Machine<'a>> {
        let builder = GdbStub::builder(Outbox::default()).packet_buffer_size(PACKET_SIZE);
        let stub = builder.build().map_err(|error| failed_inside(&error.to_string()))?;
        let mut machine = stub
            .run_state_machine(self.program)
            .map_err(|error| failed_inside(&error.to_string()))?;
        let thread = format!("Hg{:x}", self.program.thread);
        for packet in [b"QStartNoAckMode", &self.features[..], thread.as_bytes()] {
            if packet.is_empty() {
                continue;
            }
            machine = feed(machine, self.program, packet)
                .ok_or_else(|| failed_inside("it does not understand what it has understood"))?;
        }
        if let GdbStubStateMachine::Idle(idle) = &mut machine {
            idle.borrow_conn().0.clear();
        }
        Ok(machine)
    }

    /// Sends the answer to a packet, for which the program may have to run first. Says how the service
    /// has ended, if it has.
    fn answer(
        &mut self,
        mut machine: Machine<'a>,
        is_first: bool,
    ) -> Result<(Machine<'a>, Option<Ending>)> {
        let mut more = if is_first { self.program.features() } else { String::new() };
        let mut end = None;
        loop {
            machine = match machine {
                GdbStubStateMachine::Idle(mut idle) => {
                    let answer = std::mem::take(&mut idle.borrow_conn().0);
                    self.send_with(&answer, &more)?;
                    return Ok((idle.into(), end));
                }
                GdbStubStateMachine::Running(running) => {
                    (machine, more, end) = self.let_run(running)?;
                    machine
                }
                GdbStubStateMachine::CtrlCInterrupt(interrupted) => interrupted
                    .interrupt_handled(self.program, None::<MultiThreadStopReason<u64>>)
                    .map_err(|error| failed_inside(&error.to_string()))?,
                GdbStubStateMachine::Disconnected(over) => {
                    match over.get_reason() {
                        DisconnectReason::Disconnect => {
                            self.program.detach()?;
                            self.program.lose();
                            end = Some(Ending::Detached);
                        }
                        DisconnectReason::Kill => end = Some(Ending::KilledByDebugger),
                        _ => self.program.lose(),
                    }
                    over.return_to_idle()
                }
            }
        }
    }

    /// Sends what `gdbstub` has answered, and what is to be said beyond that.
    fn send_with(&mut self, answer: &[u8], more: &str) -> Result<()> {
        match wire::unframe(answer) {
            Some(body) if !more.is_empty() => self.send(&[body, more.as_bytes()].concat()),
            _ => self.send_framed(answer),
        }
    }

    /// Lets the program run until it stops: with what is to be said beyond what `gdbstub` says of it.
    fn let_run(&mut self, running: Running<'a>) -> Result<(Machine<'a>, String, Option<Ending>)> {
        let Some(debuggee) = self.program.debuggee() else {
            return Err(failed_inside("nothing runs"));
        };
        // A request to stop that was received with the request to go on is nowhere to be seen any more.
        if self.wire.has_more() {
            debuggee.interrupter().interrupt();
        }
        self.watch.begin(debuggee.interrupter());
        let stop = debuggee.wait();
        self.watch.end();
        self.program.tell_owner(false);
        let stop = stop?;
        let pid = self.program.pid().unwrap_or(0);
        let (mut more, mut end) = (String::new(), None);
        match stop {
            Stop::Exec(_) => {
                self.program.become_another();
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                more = format!("exec:{};", weft_symbols::hex(program.as_os_str().as_bytes()));
            }
            Stop::Fork { child, is_vfork, .. } => {
                let kind = if is_vfork { "vfork" } else { "fork" };
                more = format!("{kind}:p{child:x}.{child:x};");
            }
            Stop::VforkDone(_) => more = "vforkdone:;".into(),
            Stop::Exited(code) => end = Some(Ending::Exited(code)),
            Stop::Killed(signal) => end = Some(Ending::Killed(signal)),
            _ => {}
        }
        if end.is_some() {
            more = format!(";process:{pid:x}");
        }
        let (tid, reason) = self.reason(stop);
        if let Some(tid) = tid {
            self.program.thread = tid;
        }
        let registers = tid.map_or(Vec::new(), |tid| self.program.at_every_stop(tid));
        let mut registers =
            registers.iter().map(|(number, value)| (Number(*number), value.as_slice()));
        let machine = running
            .report_stop_with_regs(self.program, reason, &mut registers)
            .map_err(|error| failed_inside(&error.to_string()))?;
        Ok((machine, more, end))
    }

    /// Why the program has stopped, as `gdbstub` calls it, and in which thread.
    fn reason(&self, stop: Stop) -> (Option<Tid>, MultiThreadStopReason<u64>) {
        let trap = Signal::SIGTRAP;
        let signalled = |tid, signal| {
            let reason = |tid| MultiThreadStopReason::SignalWithThread { tid, signal };
            (Some(tid), number_of(tid).map_or(MultiThreadStopReason::Signal(signal), reason))
        };
        match stop {
            Stop::Breakpoint(tid) => match number_of(tid) {
                Some(number) => (Some(tid), MultiThreadStopReason::SwBreak(number)),
                None => signalled(tid, trap),
            },
            Stop::Stepped(tid)
            | Stop::Exec(tid)
            | Stop::Fork { tid, .. }
            | Stop::VforkDone(tid) => signalled(tid, trap),
            Stop::Signal(tid, signal) => signalled(tid, Signal(signals::to_gdb(signal))),
            Stop::Interrupted(tid) => signalled(tid, Signal::SIGINT),
            Stop::Watch { tid, address, kind } => match number_of(tid) {
                Some(number) => {
                    let kind = match kind {
                        WatchKind::Write => breakpoints::WatchKind::Write,
                        WatchKind::Read => breakpoints::WatchKind::Read,
                        WatchKind::Access => breakpoints::WatchKind::ReadWrite,
                    };
                    let reason = MultiThreadStopReason::Watch { tid: number, kind, addr: address };
                    (Some(tid), reason)
                }
                None => signalled(tid, trap),
            },
            Stop::SystemCall { tid, number, is_return } => {
                let position = if is_return {
                    CatchSyscallPosition::Return
                } else {
                    CatchSyscallPosition::Entry
                };
                let thread = number_of(tid);
                let reason = MultiThreadStopReason::CatchSyscall { tid: thread, number, position };
                (Some(tid), reason)
            }
            Stop::Exited(code) => (None, MultiThreadStopReason::Exited(code as u8)),
            Stop::Killed(signal) => {
                (None, MultiThreadStopReason::Terminated(Signal(signals::to_gdb(signal))))
            }
        }
    }
}

fn failed_inside(why: &str) -> Error {
    Error::new(ErrorKind::Internal, "the GDB server failed").why(why)
}

/// Feeds a packet to a machine; `None` if it does not understand it, and is gone.
fn feed<'a>(
    mut machine: Machine<'a>,
    program: &mut Program<'a>,
    packet: &[u8],
) -> Option<Machine<'a>> {
    for byte in wire::frame(packet) {
        let GdbStubStateMachine::Idle(idle) = machine else { return None };
        machine = idle.incoming_data(program, byte).ok()?;
    }
    Some(machine)
}
