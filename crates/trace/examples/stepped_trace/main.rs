//! Traces a program the slow way: one instruction at a time, under ptrace.
//!
//! ```text
//! stepped_trace FILE LIMIT COMMAND...
//! ```
//!
//! The trace is what weft's engine would write of the program's first so many instructions, with values. It is what
//! traces are tested with that need nothing else of weft.

mod stepping;

use std::ffi::OsString;
use std::fs::File;

use stepping::Stepped;
use weft_trace::{Detail, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let file = words.next().ok_or("a file")?;
    let limit = words.next().and_then(|word| word.to_str()?.parse().ok()).ok_or("a number")?;
    let command: Vec<OsString> = words.collect();
    let mut writer = Writer::new(File::create(&file)?, Detail::Values)?;
    let text: Vec<String> =
        command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    writer.note("command", &text.join(" "))?;
    let stepped = Stepped::run(&command, &mut writer, limit)?;
    let (steps, accesses) = (stepped.steps, stepped.plain.len());
    writer.finish()?;
    println!("{steps} instructions, {accesses} accesses");
    Ok(())
}
