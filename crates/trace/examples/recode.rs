//! How fast a trace is read and written, and what it takes: decodes all of it, and encodes it again.
//!
//! ```text
//! recode FILE ROUNDS
//! ```

use std::path::Path;
use std::time::Instant;

use weft_trace::{Encoder, Replay, Trace, decode, replay::Accesses};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let file = words.next().ok_or("a file")?;
    let rounds: u32 = words.next().and_then(|word| word.to_str()?.parse().ok()).unwrap_or(1);
    let trace = Trace::open(Path::new(&file))?;
    let mut written = Vec::new();
    let mut accesses = 0;
    for part in &trace.parts {
        let chunk = trace.chunk(part)?;
        accesses += chunk.accesses;
        written.push((part.program, decode(trace.blocks(part.program), &chunk)?));
    }
    let raw: usize = written.iter().map(|(_, words)| words.len() * 8).sum();
    let all = accesses as f64 * f64::from(rounds);
    let start = Instant::now();
    let mut packed = 0;
    for _ in 0..rounds {
        packed = 0;
        for (program, words) in &written {
            let mut encoder = Encoder::default();
            let mut keep = |chunk: weft_trace::Chunk| {
                packed += chunk.pack()?.len();
                Ok(())
            };
            encoder.push(trace.blocks(*program), words, &mut keep)?;
            encoder.finish(trace.blocks(*program), &mut keep)?;
        }
    }
    let encoding = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut found = 0;
    let trace = std::sync::Arc::new(trace);
    for _ in 0..rounds {
        let mut replay = Replay::new(trace.clone(), &[]);
        loop {
            let batch = Accesses::next(&mut replay, 1 << 18)?;
            if batch.thread.is_empty() {
                break;
            }
            found += batch.thread.len();
        }
    }
    let reading = start.elapsed().as_secs_f64();
    println!("{accesses} accesses, {raw} bytes as written, {packed} kept");
    println!("{:.3} bytes for each access", packed as f64 / accesses as f64);
    println!("encoded {:.1} million accesses a second", all / encoding / 1e6);
    println!("computed {:.1} million accesses a second", found as f64 / reading / 1e6);
    Ok(())
}
