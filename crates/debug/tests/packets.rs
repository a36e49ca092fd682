//! Packets that no debugger would send: the server answers each, and the program is none the worse.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;
use weft_debug::debuggee::Debuggee;
use weft_debug::session::Session;
use weft_debug::{Monitored, Owner, Program, Start, serve};
use weft_host::clone::CloneOptions;
use weft_host::{Error, ErrorKind, Launch, Result};

/// How many are sent.
const PACKETS: usize = 4000;
/// What is asked after each, and how its answer begins: so that it is known when all else was answered.
const QUESTION: &[u8] = b"qXfer:features:read:target.xml:0,5";
const ANSWER: &[u8] = b"$m<?xml";

/// What debuggers do send.
const SEEDS: [&str; 57] = [
    "qSupported:multiprocess+;swbreak+;hwbreak+;vContSupported+;xmlRegisters=i386",
    "vMustReplyEmpty",
    "Hgp0.0",
    "Hg0",
    "Hgp1.-1",
    "Hc-1",
    "?",
    "g",
    "G0000000000000000",
    "p10",
    "p3a",
    "P0=0100000000000000",
    "P10=1122334455667788",
    "m7ffff7fe4b70,40",
    "m0,8",
    "mffffffffffffffff,100",
    "m7ffff7fe4b70,7fff",
    "M7ffff7fe4b70,1:90",
    "X7ffff7fe4b70,0:",
    "vCont?",
    "vCont;c",
    "vCont;s:p1.1;c:p1.-1",
    "vCont;r7ffff7fe4b70,7ffff7fe4b80:1",
    "vCont;C0b:p1.1",
    "vCont;t",
    "c",
    "s",
    "Z0,7ffff7fe4b73,1",
    "z0,7ffff7fe4b73,1",
    "Z0,7ffff7fe4b73,1;X3,220127X2,2227",
    "Z1,7ffff7fe4b73,1",
    "Z2,7ffff7ffd000,8",
    "z2,7ffff7ffd000,8",
    "qfThreadInfo",
    "qsThreadInfo",
    "qXfer:threads:read::0,1000",
    "qXfer:siginfo:read::0,80",
    "qXfer:siginfo:write::0:abc",
    "qXfer:auxv:read::0,1000",
    "qXfer:libraries-svr4:read::0,1000",
    "qXfer:exec-file:read::0,1000",
    "qThreadExtraInfo,p1.1",
    "QPassSignals:e;10;14;17;1a;1b;1c;21;24;25;2c;4c;97;",
    "QProgramSignals:0;1;3;4;6;7;8;9;a;b;97;",
    "QEnvironmentReset",
    "QEnvironmentHexEncoded:413d42",
    "QEnvironmentUnset:41",
    "QSetWorkingDir:2f746d70",
    "QCatchSyscalls:1;1;2",
    "qSymbol::",
    "qSymbol:7ffff7fe4b70:5f",
    "qGetTLSAddr:p1.1,0,0",
    "qRcmd,68656c70",
    "vFile:setfs:0",
    "vFile:open:2f70726f632f73656c662f6d617073,0,0",
    "vFile:pread:1,47ff,0",
    "qProcessInfo",
];

struct Nobody;

impl Owner for Nobody {
    fn start_again(&mut self, _: &Start) -> Result<Box<dyn Debuggee>> {
        Err(Error::new(ErrorKind::LaunchFailed, "once is enough"))
    }

    fn monitor(&mut self, words: &str, _: Option<&mut dyn Debuggee>) -> Monitored {
        Monitored { text: words.into(), detaches: false }
    }
}

/// A server with a program of its own, and the connection to it.
fn start() -> (UnixStream, JoinHandle<()>) {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let thread = std::thread::spawn(move || {
        // One that is let go ends by itself, and nobody waits for what it could still write.
        let command = vec!["sleep".into(), "100".into()];
        let nowhere =
            || Some(File::options().read(true).write(true).open("/dev/null").unwrap().into());
        let streams = [nowhere(), nowhere(), nowhere()];
        let launch = Launch { command, is_fixed: true, streams, ..Launch::default() };
        let options = CloneOptions { follows: false, ..CloneOptions::default() };
        let debuggee = Session::launch(launch, options).unwrap();
        let mut owner = Nobody;
        let mut program = Program::new(Box::new(debuggee), false, &mut owner);
        // A program that was led astray may have ended; that is no failure of the server's.
        let _ = serve(server.into(), &mut program);
        program.kill();
    });
    (client, thread)
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn packet(&mut self) -> Vec<u8> {
        let mut packet = SEEDS[self.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(packet.len() + 1).min(packet.len());
            match self.below(7) {
                0 => packet.truncate(at),
                1 => packet.insert(at, self.below(256) as u8),
                2 if at < packet.len() => packet[at] = self.below(256) as u8,
                3 if at < packet.len() => {
                    packet.remove(at);
                }
                4 => {
                    let other = SEEDS[self.below(SEEDS.len())].as_bytes();
                    packet.splice(at.., other.iter().copied());
                }
                5 => {
                    let numbers: [&[u8]; 4] =
                        [b"ffffffffffffffff", b"0", b"-1", b"8000000000000000"];
                    packet.splice(at..at, numbers[self.below(4)].iter().copied());
                }
                _ => {
                    let piece = packet[at..].repeat(self.below(50));
                    packet.extend(piece);
                }
            }
        }
        packet
    }

    fn bytes(&mut self) -> Vec<u8> {
        let packet = self.packet();
        let mut bytes = framed(&packet);
        if self.below(20) == 0 {
            let at = self.below(bytes.len());
            bytes[at] = self.below(256) as u8;
        }
        bytes
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
    [b"$", body, format!("#{sum:02x}").as_bytes()].concat()
}

/// Whether the server answers a question that comes after what was sent; not if it has gone.
fn answers(connection: &mut UnixStream, bytes: &[u8], before: &[Vec<u8>]) -> bool {
    let failed = |error| {
        let all = before.iter().map(|bytes| bytes.escape_ascii().to_string());
        let all: Vec<_> = all.collect();
        panic!("no answer ({error}) after {}", all.join("\n"))
    };
    // What may run is stopped; and what may wait for the end of a packet has it.
    let sent = [bytes, b"\x03#00\x03", &framed(QUESTION)].concat();
    if connection.write_all(&sent).is_err() {
        return false;
    }
    let mut heard = Vec::new();
    let mut room = [0; 65536];
    loop {
        let count = connection.read(&mut room);
        match count.unwrap_or_else(failed) {
            0 => return false,
            count => heard.extend_from_slice(&room[..count]),
        }
        if heard.windows(ANSWER.len()).any(|window| window == ANSWER) {
            return true;
        }
    }
}

#[test]
fn nonsense_is_answered() {
    let mut chance = Chance(0x1234_5678_9abc_def1);
    let (mut connection, mut server) = start();
    let (mut servers, mut before) = (1, Vec::new());
    for number in 0..PACKETS {
        let bytes = chance.bytes();
        // What the question is for must not be what is sent.
        if bytes.windows(ANSWER.len() - 1).any(|window| window == &ANSWER[1..]) {
            continue;
        }
        before.push(bytes.clone());
        if !answers(&mut connection, &bytes, &before) {
            before.clear();
            let packet = String::from_utf8_lossy(&bytes);
            server.join().unwrap_or_else(|_| panic!("packet {number} ended the server: {packet}"));
            (connection, server) = start();
            servers += 1;
        }
    }
    drop(connection);
    server.join().unwrap();
    assert!(servers < PACKETS / 20, "most of them do not end the program: {servers}");
}
