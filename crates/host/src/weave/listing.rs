//! The code woven for a probe, to read.

use super::trampoline::Inserted;
use super::weaver::Weaver;
use super::woven::{Piece, ProbeId, Woven};
use crate::Result;
use crate::process::edit::Edit;
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The bytes of an instruction are shown in a column of this width.
const BYTES_WIDTH: usize = 30;

impl Weaver {
    /// The code that is in the target for a probe: the changes to its functions, and the trampolines
    /// that they lead to. Empty when the probe is not there.
    pub fn listing(&self, id: ProbeId) -> Result<String> {
        self.probe(id)?;
        let has_it =
            |woven: &&Woven| woven.active.strands.values().flatten().any(|s| s.probe == id);
        let functions: BTreeMap<u64, &Woven> =
            self.woven.values().filter(has_it).map(|woven| (woven.known.start, woven)).collect();
        let mut listing = Listing::new();
        for (start, woven) in functions {
            listing.line(0, &format!("function {start:#x}"));
            for edit in &woven.active.edits {
                listing.edit(edit);
            }
            for piece in &woven.active.pieces {
                self.list_piece(id, woven, piece, &mut listing);
            }
        }
        Ok(listing.text)
    }

    fn list_piece(&self, id: ProbeId, woven: &Woven, piece: &Piece, listing: &mut Listing) {
        let Some(arena) = self.arenas.get(piece.arena) else { return };
        let bytes = arena.read(piece.at, piece.length);
        let (at, end) = (piece.at.0, piece.contents.code_end);
        let code = |range: std::ops::Range<u64>| {
            &bytes[(range.start - at) as usize..(range.end - at) as usize]
        };
        let window = &piece.window;
        listing
            .line(1, &format!("trampoline {at:#x} for {:#x} to {:#x}", window.start, window.end));

        // Where something begins that is not what comes before it.
        let mut headings: BTreeMap<u64, String> = BTreeMap::new();
        for moved in &piece.moved {
            headings.insert(moved.copy, format!("copy of {:#x}", moved.original));
        }
        for &jump in &piece.contents.jumps {
            headings.insert(jump, "way back".into());
        }
        for inserted in &piece.contents.inserted {
            headings.insert(inserted.main.start, self.heading(id, woven, inserted));
        }
        let ends = headings.keys().copied().skip(1).chain([end]);
        for ((&from, heading), to) in headings.iter().zip(ends) {
            listing.line(2, heading);
            listing.code(3, from, code(from..to));
        }
        for inserted in &piece.contents.inserted {
            if !inserted.rare.is_empty() {
                listing.line(2, &format!("{}, rarely run", self.heading(id, woven, inserted)));
                listing.code(3, inserted.rare.start, code(inserted.rare.clone()));
            }
        }
        let constants = code(end..at + piece.length as u64);
        if !constants.is_empty() {
            listing.line(2, "constants");
            listing.line(3, &spaced_hex(constants));
        }
    }

    /// What a snippet is called.
    fn heading(&self, id: ProbeId, woven: &Woven, inserted: &Inserted) -> String {
        let strand =
            woven.active.strands.get(&inserted.spot).and_then(|all| all.get(inserted.index));
        let at = inserted.spot.instruction();
        match strand {
            Some(strand) if strand.probe == id => {
                let kind = self.probes[&id].points[strand.point].kind.name();
                format!("snippet at {kind} {at:#x}")
            }
            _ => format!("snippet of another probe at {at:#x}"),
        }
    }
}

struct Listing {
    text: String,
    formatter: NasmFormatter,
}

impl Listing {
    fn new() -> Self {
        let mut formatter = NasmFormatter::new();
        formatter.options_mut().set_hex_prefix("0x");
        formatter.options_mut().set_hex_suffix("");
        formatter.options_mut().set_uppercase_hex(false);
        formatter.options_mut().set_branch_leading_zeros(false);
        Self { text: String::new(), formatter }
    }

    fn line(&mut self, depth: usize, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{:width$}{text}", "", width = 2 * depth);
    }

    fn edit(&mut self, edit: &Edit) {
        let change =
            format!("{:#x}: {} -> {}", edit.at.0, spaced_hex(&edit.old), spaced_hex(&edit.new));
        self.line(1, &change);
        // A single byte is the distance of a short jump.
        if edit.new.len() > 1 {
            self.code(2, edit.at.0, &edit.new);
        }
    }

    fn code(&mut self, depth: usize, at: u64, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        while decoder.can_decode() {
            let start = decoder.position();
            let instruction = decoder.decode();
            let mut text = String::new();
            self.formatter.format(&instruction, &mut text);
            let bytes = spaced_hex(&bytes[start..decoder.position()]);
            let line = format!("{:#x}  {bytes:BYTES_WIDTH$} {text}", instruction.ip());
            self.line(depth, &line);
        }
    }
}

fn spaced_hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}
