//! Rules against what the unwinder outside makes of the same tables, row by row.

use super::rules::{RuleSet, Sections, module_rows, rows, rules};
use super::tables::tables;
use crate::TargetAddr;
use crate::process::modules::Module;
use crate::process::proc::FileId;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use std::ops::Range;
use std::path::{Path, PathBuf};
use weft_snippet::unwind::{Bp, Cfa, Rule};

const BIAS: u64 = 0x5000_0000_0000;
const SP: u64 = 0x7000_0000_1000;
const BP: u64 = 0x7000_0000_2000;
/// How many rows of a file are looked at, about.
const LOOKS: usize = 40_000;

/// Memory in which each word is another address above all of these.
fn word(at: u64) -> u64 {
    at.wrapping_add(0x10_0000)
}

fn module(path: &Path) -> Module {
    Module {
        path: path.display().to_string(),
        file: FileId::default(),
        is_program: false,
        open_path: Some(path.to_path_buf()),
        start: TargetAddr(BIAS),
        end: TargetAddr(BIAS + (1 << 32)),
        bias: BIAS,
        build_id: None,
    }
}

fn programs() -> Vec<PathBuf> {
    let libraries = "/lib/x86_64-linux-gnu";
    let names =
        ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3", "ld-linux-x86-64.so.2"];
    let libraries = names.iter().map(|name| Path::new(libraries).join(name));
    let names = ["python3", "redis-server", "sqlite3", "node", "bash", "git"];
    let programs = names.iter().flat_map(|name| {
        ["/usr/bin", "/usr/local/bin", "/bin"].map(|folder| Path::new(folder).join(name))
    });
    let own = std::env::current_exe().into_iter();
    let all = libraries.chain(programs).chain(own);
    all.filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_file()).collect()
}

/// What a rule says of a state: the stack pointer, the frame pointer unless it is lost, and where the caller goes on.
fn stepped(rule: Rule, pc: u64) -> Option<(u64, Option<u64>, u64)> {
    let Rule::Frame(cfa, bp) = rule else { return None };
    let above = |base: u64, distance: i32| base.wrapping_add(i64::from(distance) as u64);
    let cfa = match cfa {
        Cfa::Sp(distance) => above(SP, distance),
        Cfa::Bp(distance) => above(BP, distance),
        Cfa::StoredAtBp(distance) => word(above(BP, distance)),
        Cfa::Plt(from) => SP + 8 + if (pc & 15) as i32 >= from { 8 } else { 0 },
    };
    let bp = match bp {
        Bp::Same => Some(BP),
        Bp::AtCfa(distance) => Some(word(above(cfa, distance))),
        Bp::AtBp(distance) => Some(word(above(BP, distance))),
        Bp::Lost => None,
    };
    Some((cfa, bp, word(cfa - 8)))
}

fn is_stored(rule: Rule) -> bool {
    matches!(rule, Rule::Frame(Cfa::StoredAtBp(_), _))
}

#[test]
fn rules_are_those_of_the_unwinder_outside() {
    let mut looked = 0;
    for path in programs() {
        let module = module(&path);
        let Some(found) = tables(0, &module) else { continue };
        let start = |range: &Option<Range<u64>>| range.as_ref().map_or(0, |range| range.start);
        let sections = Sections {
            eh_frame: found.eh_frame.as_deref().map(|bytes| (bytes, start(&found.eh_frame_svma))),
            debug_frame: found.debug_frame.as_deref(),
            text: start(&found.text_svma),
            got: start(&found.got_svma),
        };
        let all = rules(&sections);
        let mut unwinder = UnwinderX86_64::new();
        let range = BIAS..BIAS + (1 << 32);
        unwinder.add_module(framehop::Module::new(module.path.clone(), range, BIAS, found.clone()));
        let mut cache = CacheX86_64::new();
        let (mut others, mut ends, mut stored) = (0, 0, 0);
        for &(start, end, rule) in all.iter().step_by(all.len().div_ceil(LOOKS)) {
            for at in [start, end - 1] {
                let mut registers = UnwindRegsX86_64::new(BIAS + at, SP, BP);
                let address = FrameAddress::InstructionPointer(BIAS + at);
                let mut read = |at| Ok(word(at));
                let caller = unwinder.unwind_frame(address, &mut registers, &mut cache, &mut read);
                let place = format!("{} at {at:#x}: {rule:?}", path.display());
                match stepped(rule, at) {
                    Some((sp, ..)) if sp <= SP => assert!(caller.is_err(), "{place}"),
                    // The unwinder outside does not follow what is stored, and takes the frame pointer for it, at which
                    // such a function has copied its return address.
                    Some(_) if is_stored(rule) && caller == Ok(Some(word(BP + 8))) => stored += 1,
                    Some((sp, bp, pc)) => {
                        assert_eq!(caller, Ok(Some(pc)), "{place}");
                        assert_eq!(registers.sp(), sp, "{place}");
                        assert_eq!(registers.bp(), bp.unwrap_or(registers.bp()), "{place}");
                    }
                    None if rule == Rule::End => {
                        assert_eq!(caller, Ok(None), "{place}");
                        ends += 1;
                    }
                    None => others += 1,
                }
                looked += 1;
            }
        }
        let rows = all.len();
        println!("{}: {rows} rows, {others} others, {ends} ends, {stored} stored", path.display());
        assert!(others * 50 <= all.len() * 2, "{}: {others} of {}", path.display(), all.len());
    }
    assert!(looked > 10_000, "{looked}");
}

#[test]
fn rows_are_sorted_and_differ_from_their_neighbours() {
    for path in programs() {
        let mut set = RuleSet::default();
        let Some(found) = module_rows(0, &module(&path), &mut set) else { continue };
        let from = |row: u64| row as u32;
        assert!(found.rows.windows(2).all(|two| from(two[0]) < from(two[1])), "{}", path.display());
        assert!(found.rows.windows(2).all(|two| two[0] >> 32 != two[1] >> 32));
        assert!(found.rows.iter().all(|row| (row >> 32) < set.words().len() as u64));
        println!("{}: {} rows, {} rules", path.display(), found.rows.len(), set.words().len());
    }
}

#[test]
fn nothing_is_made_of_what_is_no_table() {
    let bytes: Vec<u8> =
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for length in [0, 1, 7, 64, 4096] {
        let sections = Sections {
            eh_frame: Some((&bytes[..length], 0x1000)),
            debug_frame: Some(&bytes[length / 2..length]),
            ..Sections::default()
        };
        rows(&sections, &mut RuleSet::default());
    }
}
