//! What is decoded is what was encoded, whatever it was; and what was not written by weft is refused.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use weft_trace::record::{event, event_word};
use weft_trace::replay::{Accesses, Step, What};
use weft_trace::{
    Blocks, Chunk, Detail, Encoder, Replay, Trace, Writer, decode, program_and_number,
};

/// Blocks with no capture, one, several, and many.
const CODE: [&[u8]; 5] = [
    &[0x90],                                     // nop
    &[0x48, 0x8b, 0x07, 0xc3],                   // mov rax, [rdi]; ret
    &[0x48, 0x8b, 0x04, 0xf7, 0x48, 0xff, 0xc6], // mov rax, [rdi + rsi * 8]; inc rsi
    &[0x48, 0x8b, 0x00, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x00],
    &[0xf3, 0xa4, 0xeb, 0x00], // rep movsb; jmp
];

fn blocks() -> Blocks {
    let mut blocks = Blocks::default();
    for (number, code) in (0..).zip(CODE) {
        assert!(blocks.add(number * 3, 0x1000 + u64::from(number) * 0x100, code));
    }
    blocks
}

fn round_trip(blocks: &Blocks, pushes: &[Vec<u64>]) {
    let mut encoder = Encoder::default();
    let mut decoded = Vec::new();
    let mut keep = |chunk: Chunk| {
        let chunk = Chunk::unpack(&chunk.pack()?)?;
        decoded.extend(decode(blocks, &chunk)?);
        Ok(())
    };
    for words in pushes {
        encoder.push(blocks, words, &mut keep).expect("records");
    }
    encoder.finish(blocks, &mut keep).expect("a sound chunk");
    assert!(decoded == pushes.concat(), "what was decoded differs");
}

fn item() -> impl Strategy<Value = Vec<u64>> {
    let value = prop_oneof![0..4_u64, 0x7fff_0000..0x7fff_0040_u64, any::<u64>()];
    let values = proptest::collection::vec(value, 18);
    (0..20_u8, values).prop_map(|(choice, values)| match choice {
        0 => {
            let mut words = vec![event_word(event::INTERRUPTED, 18)];
            words.extend(values);
            words
        }
        1 => vec![event_word(event::RESULT, 2), values[0], values[1]],
        _ => {
            let number = u32::from(choice) % 5;
            let mut words = vec![u64::from(number * 3)];
            words.extend(&values[..[0, 2, 2, 5, 3][number as usize]]);
            words
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn records_come_back(items in proptest::collection::vec(item(), 0..300)) {
        let blocks = blocks();
        let counts: Vec<usize> = (0..5).map(|n| blocks.captures(n * 3).expect("a block")).collect();
        assert_eq!(counts, [0, 2, 2, 5, 3]);
        round_trip(&blocks, &items.chunks(7).map(<[_]>::concat).collect::<Vec<_>>());
    }

    #[test]
    fn nonsense_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(chunk) = Chunk::unpack(&bytes) {
            let _ = decode(&blocks(), &chunk);
        }
        let words: Vec<u64> = bytes.iter().map(|&byte| byte.into()).collect();
        let _ = Encoder::default().push(&blocks(), &words, |_| Ok(()));
    }
}

/// Enough for several chunks.
#[test]
fn a_million_random_records_come_back() {
    let blocks = blocks();
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut words = Vec::new();
    for round in 0..1_500_000_u64 {
        let number = (random() % 5) as usize;
        words.push(number as u64 * 3);
        for _ in 0..[0, 2, 2, 5, 3][number] {
            words.push(if random() % 4 == 0 { random() } else { 0x5000 + round * 8 });
        }
    }
    round_trip(&blocks, &[words]);
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A small trace with an interrupted string, a system call and a signal.
fn written(name: &str) -> PathBuf {
    let path = scratch(name);
    let mut writer =
        Writer::new(File::create(&path).expect("a file"), Detail::Addresses).expect("a file");
    writer.note("command", "test").expect("a note");
    let program = writer.program().expect("the first program");
    for (number, code) in (0..).zip(CODE) {
        writer.block(program, number, 0x1000 + u64::from(number) * 0x100, code).expect("a block");
    }
    let mut words = vec![event_word(event::THREAD, 5), 7, 6, 0x111, 0x222, 1000];
    words.extend([4, 0x5000, 0x6000, 0]);
    // Five bytes were moved, and the jump was not reached.
    words.extend([event_word(event::INTERRUPTED, 18), 0x1400, 1]);
    words.extend((0..16).map(|register| if register == 7 { 0x6005 } else { 0x5005 }));
    words.extend([event_word(event::SIGNAL, 2), 11, 2000]);
    words.extend([2, 0x7000, 3]);
    words.extend([1, 0x8000, 0x9000]);
    writer.push(program, 7, &words).expect("records");
    writer.finish().expect("a whole file");
    path
}

#[test]
fn what_was_interrupted_counts_as_far_as_it_went() {
    let path = written("interrupted");
    let trace = Arc::new(Trace::open(&path).expect("a trace"));
    assert_eq!(trace.notes, [("command".into(), "test".into())]);
    let found = Accesses::next(&mut Replay::new(trace.clone(), &[]), 100).expect("accesses");
    assert_eq!(found.address, [0x5000, 0x6000, 0x7018, 0x8000, 0x9000]);
    assert_eq!(found.size, [5, 5, 8, 8, 8]);
    let mut ways = Vec::new();
    let mut replay = Replay::new(trace, &[7]);
    let visit = |step: &Step<'_>| {
        if let What::Block { executed, next, .. } = step.what {
            ways.push((executed, next));
        }
        false
    };
    assert!(!replay.walk(visit).expect("a sound trace"));
    assert_eq!(ways, [(0, None), (2, Some(0x1100)), (2, None)]);
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn a_file_that_was_cut_or_changed_says_so() {
    let path = written("cut");
    let whole = std::fs::read(&path).expect("the file");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).expect("a file");
        match Trace::open(&path) {
            Ok(trace) => {
                assert!(trace.is_cut || length == 16 || trace.parts.is_empty(), "{length}")
            }
            Err(error) => assert!(length < 16, "{length}: {error}"),
        }
    }
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).expect("a file");
        let Ok(trace) = Trace::open(&path) else {
            refused += 1;
            continue;
        };
        let mut replay = Replay::new(Arc::new(trace), &[]);
        refused += usize::from(Accesses::next(&mut replay, 100).is_err());
    }
    assert!(refused > whole.len() * 3 / 4, "{refused} of {}", whole.len());
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn each_program_has_blocks_of_its_own() {
    let path = scratch("programs");
    let mut writer =
        Writer::new(File::create(&path).expect("a file"), Detail::Addresses).expect("a file");
    let first = writer.program().expect("the first program");
    let second = writer.program().expect("what it becomes");
    let begin = [event_word(event::THREAD, 5), 7, 6, 0, 0, 1000];
    // The same number, and the same thread: nop, and mov rax, [rdi]; ret.
    writer.block(second, 1, 0x2000, CODE[1]).expect("a block");
    writer.push(second, 0, &[&begin[..], &[1, 0x8000, 0x9000]].concat()).expect("records");
    writer.end(second).expect("its end");
    writer.block(first, 1, 0x1000, CODE[0]).expect("a block");
    writer.push(first, 0, &[&begin[..], &[1, 1]].concat()).expect("records");
    writer.finish().expect("a whole file");
    let trace = Arc::new(Trace::open(&path).expect("a trace"));
    let mut blocks = Vec::new();
    let visit = |step: &Step<'_>| {
        if let What::Block { number, block, .. } = step.what {
            blocks.push((program_and_number(number), block.address));
        }
        false
    };
    Replay::new(trace.clone(), &[]).walk(visit).expect("a sound trace");
    assert_eq!(blocks, [((0, 1), 0x1000), ((0, 1), 0x1000), ((1, 1), 0x2000)]);
    let found = Accesses::next(&mut Replay::new(trace, &[]), 100).expect("accesses");
    assert_eq!(found.address, [0x8000, 0x9000]);
}

#[test]
fn threads_have_processes_and_their_last_names() {
    let path = scratch("names");
    let mut writer =
        Writer::new(File::create(&path).expect("a file"), Detail::Addresses).expect("a file");
    let first = writer.program().expect("the first program");
    let second = writer.program().expect("what one becomes");
    let begin = |thread, process| [event_word(event::THREAD, 5), thread, process, 0, 0, 1000];
    let name = |text: &[u8; 16]| {
        let [low, high] = [0, 8].map(|at| text[at..at + 8].try_into().expect("eight bytes"));
        [event_word(event::NAME, 2), u64::from_le_bytes(low), u64::from_le_bytes(high)]
    };
    let [early, late] = [name(b"early\0\0\0\0\0\0\0\0\0\0\0"), name(b"of fifteen byte\0")];
    // Three threads at the same place: the name is that of one of them.
    let words = [&begin(7, 6)[..], &early, &late, &begin(8, 6), &begin(9, 9), &early].concat();
    writer.push(first, 0, &words).expect("records");
    writer.push(second, 0, &begin(9, 9)).expect("records");
    writer.finish().expect("a whole file");
    let totals = Trace::open(&path).expect("a trace").totals().expect("a sound trace");
    let found: Vec<_> = totals
        .iter()
        .map(|total| (total.thread, total.process, total.program, total.name.as_str()))
        .collect();
    assert_eq!(found, [(7, 6, 0, "of fifteen byte"), (8, 6, 0, ""), (9, 9, 1, "early")]);
    std::fs::remove_file(path).expect("the file");
}
