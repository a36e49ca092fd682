//! The packets that GDB sends and `gdbstub` does not know, or not all of.
//!
//! Everything here is pure: a packet comes in, and what it asks for goes out.

use weft_host::proc::Tid;

/// What is said of them in the answer to `qSupported`, behind what `gdbstub` says.
pub const FEATURES: &str = ";QPassSignals+;QProgramSignals+;qXfer:siginfo:read+;\
    qXfer:siginfo:write+;qXfer:threads:read+;exec-events+;fork-events+;vfork-events+";
/// And if conditions of breakpoints can be looked at where the program is.
pub const CONDITIONS: &str = ";ConditionalBreakpoints+";

/// A part of something that is read piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    offset: usize,
    length: usize,
}

impl Part {
    /// The answer that has this part of something.
    pub fn of(self, all: &[u8]) -> Vec<u8> {
        let start = self.offset.min(all.len());
        let end = start.saturating_add(self.length).min(all.len());
        let mut answer = vec![if end == all.len() { b'l' } else { b'm' }];
        for &byte in &all[start..end] {
            if matches!(byte, b'#' | b'$' | b'}' | b'*') {
                answer.extend([b'}', byte ^ 0x20]);
            } else {
                answer.push(byte);
            }
        }
        answer
    }
}

/// What is answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Why does the program stand still?
    Why,
    /// Answers are not to be acknowledged any more.
    NoAcknowledgements,
    /// Signals, by GDB's numbers, that need not be told of.
    PassSignals(Vec<u8>),
    /// Signals, by GDB's numbers, that the program is to get if it stands at one when the debugger goes.
    ProgramSignals(Vec<u8>),
    /// Memory is to be watched for being read only: as by the processor, that cannot be, and GDB asks for less.
    WatchReads,
    /// The threads.
    Threads(Part),
    /// The signal that a thread has stopped for.
    SignalInfo(Part),
    /// Change it.
    SetSignalInfo(usize, Vec<u8>),
    /// Which process is it? `gdbstub` answers in decimal digits, which LLDB takes for others.
    Process,
    /// Is there a symbol that the server wants to know the address of?
    Symbols,
    /// Here is the one that it wanted to know, if it is known.
    Symbol(Option<u64>),
    /// Where does a thread have what is this far into the thread-local memory of a module?
    ThreadLocal { tid: Tid, offset: u64, map: u64 },
}

/// What is to be known of a packet that `gdbstub` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Nothing.
    Nothing,
    /// It is the first, and tells what the debugger can do.
    Features,
    /// It asks which libraries there are.
    Libraries,
    /// From now on, registers and memory are those of this thread; 0 for any.
    Thread(Tid),
    /// These are the conditions of the breakpoint that it sets.
    Conditions(u64, Vec<Vec<u8>>),
}

/// How a packet was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is answered here.
    Ours(Request),
    /// It is for `gdbstub`, perhaps without a part that it does not understand.
    Theirs(Vec<u8>, Aside),
    /// It is not as it should be.
    Nonsense,
}

/// A packet that has the program go on, as `gdbstub` understands it: the short ones, which LLDB sends, it takes for
/// one thread of its own choice.
pub fn in_full(packet: Vec<u8>, thread: Tid) -> Vec<u8> {
    match packet.as_slice() {
        b"c" => b"vCont;c".to_vec(),
        b"s" => format!("vCont;s:{thread:x};c").into_bytes(),
        [motion @ (b'C' | b'S'), signal @ ..] if signal.len() == 2 => {
            let signal = String::from_utf8_lossy(signal);
            format!("vCont;{}{signal}:{thread:x};c", *motion as char).into_bytes()
        }
        _ => packet,
    }
}

/// What is wanted of a process, which need not be the one that is debugged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It is to go on without a debugger.
    Detach(Tid),
    /// It is to end.
    Kill(Tid),
    /// It is to go on.
    Resume(Tid),
}

/// What a packet wants of a process that it names.
pub fn concern(packet: &[u8]) -> Option<Concern> {
    let pid = |text: &[u8]| number(text)?.try_into().ok();
    let after = |prefix: &str| packet.strip_prefix(prefix.as_bytes());
    if let Some(rest) = after("D;") {
        return pid(rest).map(Concern::Detach);
    }
    if let Some(rest) = after("vKill;") {
        return pid(rest).map(Concern::Kill);
    }
    let first = after("vCont;")?.split(|&byte| byte == b';').next()?;
    let thread = first.split(|&byte| byte == b':').nth(1)?.strip_prefix(b"p")?;
    pid(thread.split(|&byte| byte == b'.').next()?).map(Concern::Resume)
}

/// Whether a debugger wants to hear of processes that are made.
pub fn hears_of_forks(features: &[u8]) -> bool {
    let mut all = features.split(|byte| matches!(byte, b':' | b';'));
    all.any(|feature| feature == b"fork-events+")
}

/// Understands a packet. Answers may be as long as `room`.
pub fn hear(packet: Vec<u8>, room: usize) -> Received {
    let theirs = |aside: Option<Aside>, packet: Vec<u8>| match aside {
        Some(aside) => Received::Theirs(packet, aside),
        None => Received::Nonsense,
    };
    if let Some(ours) = ours(&packet) {
        return ours.map_or(Received::Nonsense, Received::Ours);
    }
    match packet.first() {
        Some(b'Z') => match conditions(&packet) {
            Some((packet, aside)) => Received::Theirs(packet, aside),
            None => Received::Nonsense,
        },
        Some(b'H') if packet.starts_with(b"Hg") => {
            let thread = thread(&packet[2..]).map(Aside::Thread);
            theirs(thread, packet)
        }
        // `gdbstub` would not come to the end of an answer that is longer than all memory.
        Some(b'm') => {
            let length = packet.split(|&byte| byte == b',').nth(1).and_then(number);
            let is_small = length.is_some_and(|length| length <= room as u64 / 2);
            theirs(is_small.then_some(Aside::Nothing), packet)
        }
        Some(b'q') if packet.starts_with(b"qSupported") => {
            Received::Theirs(packet, Aside::Features)
        }
        Some(b'q') if packet.starts_with(b"qXfer:libraries-svr4:") => {
            Received::Theirs(packet, Aside::Libraries)
        }
        _ => Received::Theirs(packet, Aside::Nothing),
    }
}

/// What is answered here: nothing if it is not, and then nothing if it makes no sense.
fn ours(packet: &[u8]) -> Option<Option<Request>> {
    let after = |prefix: &str| packet.strip_prefix(prefix.as_bytes());
    if packet == b"?" {
        return Some(Some(Request::Why));
    }
    if packet == b"QStartNoAckMode" {
        return Some(Some(Request::NoAcknowledgements));
    }
    if let Some(list) = after("QPassSignals:") {
        return Some(signals(list).map(Request::PassSignals));
    }
    if let Some(list) = after("QProgramSignals:") {
        return Some(signals(list).map(Request::ProgramSignals));
    }
    if after("Z3,").is_some() {
        return Some(Some(Request::WatchReads));
    }
    if let Some(rest) = after("qXfer:threads:read::") {
        return Some(part(rest).map(Request::Threads));
    }
    if let Some(rest) = after("qXfer:siginfo:read::") {
        return Some(part(rest).map(Request::SignalInfo));
    }
    if let Some(rest) = after("qXfer:siginfo:write::") {
        return Some(set_signal_info(rest));
    }
    if packet == b"qProcessInfo" {
        return Some(Some(Request::Process));
    }
    if packet == b"qSymbol::" {
        return Some(Some(Request::Symbols));
    }
    if let Some(rest) = after("qSymbol:") {
        let address = rest.split(|&byte| byte == b':').next().unwrap_or_default();
        let found = if address.is_empty() { Some(None) } else { number(address).map(Some) };
        return Some(found.map(Request::Symbol));
    }
    if let Some(rest) = after("qGetTLSAddr:") {
        return Some(thread_local(rest));
    }
    None
}

/// `e;10;97;`.
fn signals(list: &[u8]) -> Option<Vec<u8>> {
    let numbers = list.split(|&byte| byte == b';').filter(|part| !part.is_empty());
    numbers.map(|part| number(part).and_then(|number| number.try_into().ok())).collect()
}

fn set_signal_info(rest: &[u8]) -> Option<Request> {
    let colon = rest.iter().position(|&byte| byte == b':')?;
    let offset = number(&rest[..colon])?.try_into().ok()?;
    Some(Request::SetSignalInfo(offset, unescape(&rest[colon + 1..])))
}

fn thread_local(rest: &[u8]) -> Option<Request> {
    let mut fields = rest.split(|&byte| byte == b',');
    let tid = thread(fields.next()?)?;
    let (offset, map) = (number(fields.next()?)?, number(fields.next()?)?);
    Some(Request::ThreadLocal { tid, offset, map })
}

/// Takes the conditions off `Z0,ADDRESS,KIND;X4,22220000X...`, and commands, which GDB does not send unasked.
fn conditions(packet: &[u8]) -> Option<(Vec<u8>, Aside)> {
    let mut parts = packet.splitn(2, |&byte| byte == b';');
    let plain = parts.next()?;
    let address = number(plain.split(|&byte| byte == b',').nth(1)?)?;
    let mut conditions = Vec::new();
    let list = parts.next().unwrap_or_default();
    let list = list.split(|&byte| byte == b';').next().unwrap_or_default();
    for condition in list.split(|&byte| byte == b'X').skip(1) {
        let comma = condition.iter().position(|&byte| byte == b',')?;
        let bytes = from_hex(&condition[comma + 1..])?;
        if number(&condition[..comma])? != bytes.len() as u64 {
            return None;
        }
        conditions.push(bytes);
    }
    Some((plain.to_vec(), Aside::Conditions(address, conditions)))
}

/// `OFFSET,LENGTH`.
fn part(text: &[u8]) -> Option<Part> {
    let mut fields = text.split(|&byte| byte == b',');
    let (offset, length) = (number(fields.next()?)?, number(fields.next()?)?);
    Some(Part { offset: offset.try_into().ok()?, length: length.try_into().ok()? })
}

/// `TID`, or `pPID.TID`; 0 for any.
fn thread(text: &[u8]) -> Option<Tid> {
    let text = match text.strip_prefix(b"p") {
        Some(both) => both.split(|&byte| byte == b'.').nth(1)?,
        None => text,
    };
    if text == b"-1" {
        return Some(0);
    }
    number(text)?.try_into().ok()
}

fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    // The library would take a sign.
    if text.starts_with('+') {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let pairs = text.chunks(2);
    pairs.map(|pair| number(pair).filter(|_| pair.len() == 2).map(|byte| byte as u8)).collect()
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'}' => plain.extend(rest.next().map(|byte| byte ^ 0x20)),
            byte => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(packet: &str) -> Received {
        hear(packet.as_bytes().to_vec(), 4096)
    }

    fn theirs(packet: &str, aside: Aside) -> Received {
        Received::Theirs(packet.as_bytes().to_vec(), aside)
    }

    #[test]
    fn what_is_ours() {
        assert_eq!(of("?"), Received::Ours(Request::Why));
        assert_eq!(
            of("QPassSignals:e;10;97;"),
            Received::Ours(Request::PassSignals(vec![14, 16, 0x97]))
        );
        assert_eq!(of("QPassSignals:"), Received::Ours(Request::PassSignals(vec![])));
        assert_eq!(of("QPassSignals:100"), Received::Nonsense);
        assert_eq!(of("QProgramSignals:1;e"), Received::Ours(Request::ProgramSignals(vec![1, 14])));
        let part = Part { offset: 0, length: 0x1000 };
        assert_eq!(of("qXfer:threads:read::0,1000"), Received::Ours(Request::Threads(part)));
        assert_eq!(of("qXfer:threads:read::0"), Received::Nonsense);
        assert_eq!(
            of("qXfer:siginfo:write::8:a}\x03"),
            Received::Ours(Request::SetSignalInfo(8, b"a#".to_vec()))
        );
        assert_eq!(of("qSymbol::"), Received::Ours(Request::Symbols));
        assert_eq!(of("qSymbol::5f"), Received::Ours(Request::Symbol(None)));
        assert_eq!(of("qSymbol:7f00:5f"), Received::Ours(Request::Symbol(Some(0x7f00))));
        assert_eq!(
            of("qGetTLSAddr:p10.11,c,7f0"),
            Received::Ours(Request::ThreadLocal { tid: 0x11, offset: 12, map: 0x7f0 })
        );
        assert_eq!(of("qGetTLSAddr:p10"), Received::Nonsense);
    }

    #[test]
    fn what_is_theirs() {
        assert_eq!(of("g"), theirs("g", Aside::Nothing));
        assert_eq!(of(""), theirs("", Aside::Nothing));
        assert_eq!(of("Hgp1.2f"), theirs("Hgp1.2f", Aside::Thread(0x2f)));
        assert_eq!(of("Hg0"), theirs("Hg0", Aside::Thread(0)));
        assert_eq!(of("Hgp1"), Received::Nonsense);
        assert_eq!(of("m7f00,40"), theirs("m7f00,40", Aside::Nothing));
        assert_eq!(of("m7f00,ffffffffffffffff"), Received::Nonsense);
        assert_eq!(of("m7f00"), Received::Nonsense);
    }

    #[test]
    fn short_motions_are_written_in_full() {
        let full = |packet: &str| String::from_utf8(in_full(packet.into(), 0x1f)).unwrap();
        assert_eq!(full("c"), "vCont;c");
        assert_eq!(full("s"), "vCont;s:1f;c");
        assert_eq!(full("C0b"), "vCont;C0b:1f;c");
        assert_eq!(full("C0b;7f00"), "C0b;7f00");
        assert_eq!(full("g"), "g");
    }

    #[test]
    fn packets_that_name_a_process() {
        assert_eq!(concern(b"D;1f"), Some(Concern::Detach(0x1f)));
        assert_eq!(concern(b"D"), None);
        assert_eq!(concern(b"D;x"), None);
        assert_eq!(concern(b"vKill;1f"), Some(Concern::Kill(0x1f)));
        assert_eq!(concern(b"vCont;c:p1f.-1"), Some(Concern::Resume(0x1f)));
        assert_eq!(concern(b"vCont;r7f00,7f08:p1f.20;c:p1f.-1"), Some(Concern::Resume(0x1f)));
        assert_eq!(concern(b"vCont;c"), None);
        assert_eq!(concern(b"vCont?"), None);
        assert!(hears_of_forks(b"qSupported:multiprocess+;fork-events+;vfork-events+"));
        assert!(!hears_of_forks(b"qSupported:multiprocess+;vfork-events+"));
    }

    #[test]
    fn conditions_are_taken_off() {
        let condition = Aside::Conditions(0x401f, vec![vec![0x22, 0xff], vec![0x27]]);
        assert_eq!(of("Z0,401f,1;X2,22ffX1,27"), theirs("Z0,401f,1", condition));
        assert_eq!(of("Z1,401f,1"), theirs("Z1,401f,1", Aside::Conditions(0x401f, vec![])));
        for nonsense in ["Z0", "Z0,x,1", "Z0,401f,1;X3,22ff", "Z0,401f,1;X2", "Z0,401f,1;X1,2"] {
            assert_eq!(of(nonsense), Received::Nonsense, "{nonsense}");
        }
    }

    #[test]
    fn parts_are_escaped_and_say_whether_there_is_more() {
        assert_eq!(part(b"0,3").unwrap().of(b"a#bc"), b"ma}\x03b");
        assert_eq!(part(b"3,3").unwrap().of(b"a#bc"), b"lc");
        assert_eq!(part(b"9,ffffffffffffffff").unwrap().of(b"a"), b"l");
    }
}
