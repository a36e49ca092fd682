//! What compilers make of small programs, compared with what they say themselves that they made: the tables in their
//! assembler output, with their labels kept through assembler and linker.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Object, ObjectSymbol};
use support::File;
use weft_code::iced_x86::Decoder;
use weft_code::{EdgeKind, Program, graph};

#[derive(Default)]
struct Totals {
    builds: usize,
    functions: usize,
    complete: usize,
    tables: usize,
    found: usize,
    guessed: usize,
    guessed_right: usize,
    jumps: usize,
    unresolved: usize,
    wrong: Vec<String>,
}

/// The names of the tables in assembler text, with those of their targets.
fn tables(assembly: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut label = None;
    for line in assembly.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_suffix(':') {
            label = Some(name.to_string());
            continue;
        }
        let entry = line.strip_prefix(".long").or_else(|| line.strip_prefix(".quad"));
        let target = entry.and_then(|entry| {
            let target = entry.trim().split('-').next().unwrap_or("");
            target.starts_with(".L").then(|| target.to_string())
        });
        match (target, &label) {
            (Some(target), Some(name)) => match found.last_mut() {
                Some((last, targets)) if last == name => targets.push(target),
                _ => found.push((name.clone(), vec![target])),
            },
            _ if line.starts_with(".p2align") || line.starts_with(".align") || line.is_empty() => {}
            _ => label = None,
        }
    }
    found
}

fn run(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A program with random switches, the same each time.
fn random_program(seed: u64) -> String {
    let mut state = seed;
    let mut next = move |limit: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % limit
    };
    let mut text =
        String::from("volatile int sink; int printf(const char *, ...); void abort(void);\n");
    for index in 0..24 {
        let kind = ["int", "unsigned", "long", "unsigned char", "short", "unsigned long"]
            [next(6) as usize];
        text += &format!("int f{index}({kind} x, int y) {{ int t = y;\n");
        let looped = next(2) == 0;
        if looped {
            text += "for (int i = 0; i < y; i++) { x += i;\n";
        }
        for _ in 0..1 + next(3) {
            let operand = ["x", "x - 3", "(x & 15)", "x % 11", "(x >> 2)", "t"][next(6) as usize];
            let (start, count) = (next(40), 5 + next(20));
            text += &format!("switch ({operand}) {{\n");
            for case in start..start + count {
                if next(6) == 0 {
                    continue;
                }
                text += &format!("case {case}: ");
                text += &match next(7) {
                    0 => format!("t += sink * {case}; break;\n"),
                    1 => format!("sink = t + {case}; break;\n"),
                    2 => format!("return t ^ {case};\n"),
                    3 => format!("printf(\"%d\", {case}); break;\n"),
                    4 if looped => "continue;\n".to_string(),
                    5 => format!("t -= {case}; /* falls through */\n"),
                    _ => format!("if (t > {case}) abort(); t <<= 1; break;\n"),
                };
            }
            text += match next(4) {
                0 => "default: t = -t;\n",
                1 => "default: return sink;\n",
                _ => "",
            };
            text += "; }\n";
        }
        text += if looped { "}\n" } else { "" };
        text += "return t; }\n";
    }
    text += "int main(int argc, char **argv) { return 0";
    for index in 0..24 {
        text += &format!(" + f{index}(argc, {index})");
    }
    text + "; }\n"
}

fn check(binary: &Path, assembly: &Path, name: &str, totals: &mut Totals) {
    let data = std::fs::read(binary).unwrap();
    let parsed = object::File::parse(&*data).unwrap();
    let addresses: HashMap<&str, u64> = parsed
        .symbols()
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
        .collect();
    let text = std::fs::read_to_string(assembly).unwrap();
    let file = File::open(binary.to_str().unwrap()).unwrap();
    // Tables of what can be caught lead to data.
    let truth: BTreeMap<u64, Vec<u64>> = tables(&text)
        .into_iter()
        .filter_map(|(label, targets)| {
            let targets = targets.iter().map(|target| addresses.get(&**target).copied());
            Some((*addresses.get(&*label)?, targets.collect::<Option<Vec<u64>>>()?))
        })
        .filter(|(_, targets)| targets.iter().all(|&target| file.is_code(target)))
        .collect();
    let own: Vec<u64> = file
        .functions
        .iter()
        .filter(|(_, (symbol, _))| text.contains(&format!("\n{symbol}:")))
        .map(|(&address, _)| address)
        .collect();
    assert!(!own.is_empty(), "{name}: no functions");
    totals.builds += 1;
    let mut used = BTreeMap::new();
    for address in own {
        let function = file.function(address);
        let graph = graph(&file, &function);
        let symbol = &file.functions[&address].0;
        totals.functions += 1;
        totals.complete += usize::from(graph.is_complete());
        // Compilers put no data into code, so that reading from the start on finds every instruction.
        for range in &function.ranges {
            let bytes = &file.bytes(range.start)[..(range.end - range.start) as usize];
            let real: Vec<u64> =
                Decoder::with_ip(64, bytes, range.start, 0).iter().map(|each| each.ip()).collect();
            for boundary in graph.instruction_boundaries().filter(|each| range.contains(each)) {
                if real.binary_search(&boundary).is_err() {
                    totals.wrong.push(format!("{name} {symbol}: {boundary:#x} is no instruction"));
                }
            }
        }
        let unresolved =
            graph.unknown.iter().filter(|each| each.why == weft_code::Why::IndirectJump).count();
        totals.unresolved += unresolved;
        totals.jumps += unresolved + graph.tables.len();
        for table in &graph.tables {
            let Some(targets) = truth.get(&table.address) else {
                // A table of functions, or one whose first entries cannot be reached.
                let known =
                    truth.range(..table.address).next_back().is_some_and(|(start, targets)| {
                        let stride =
                            if table.form == weft_code::TableForm::Absolute64 { 8 } else { 4 };
                        let skipped = ((table.address - start) / stride) as usize;
                        targets.get(skipped..).is_some_and(|rest| rest.starts_with(&table.targets))
                    });
                let outside = table.targets.iter().all(|target| !function.contains(*target));
                if !known && !outside {
                    totals.wrong.push(format!("{name} {symbol}: no table at {:#x}", table.address));
                }
                continue;
            };
            used.insert(table.address, ());
            if table.guessed {
                totals.guessed += 1;
                totals.guessed_right += usize::from(*targets == table.targets);
            } else if !targets.starts_with(&table.targets) {
                totals.wrong.push(format!(
                    "{name} {symbol}: {} targets at {:#x}, not {}",
                    table.targets.len(),
                    table.address,
                    targets.len()
                ));
            } else if targets.len() != table.targets.len() {
                println!(
                    "{name} {symbol}: {} of {} targets can be reached",
                    table.targets.len(),
                    targets.len()
                );
            }
        }
        for edge in graph.edges.iter().filter(|edge| edge.kind == EdgeKind::Table) {
            let jump = graph.last(edge.from).ip();
            let target = graph.blocks[edge.to].start;
            let table = graph.tables.iter().find(|table| table.jump == jump).unwrap();
            assert!(table.targets.contains(&target));
        }
        if std::env::var_os("WEFT_SHOW_UNKNOWN").is_some() {
            for each in &graph.unknown {
                println!("  {name} {symbol} {:#x} {:?}", each.address, each.why);
            }
        }
    }
    totals.tables += truth.len();
    totals.found += used.len();
    if std::env::var_os("WEFT_SHOW_UNKNOWN").is_some() {
        for table in truth.keys().filter(|table| !used.contains_key(table)) {
            println!("  {name}: table at {table:#x} not used");
        }
    }
}

#[test]
fn what_compilers_say_themselves() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let random = out.join("random.c");
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    std::fs::write(&random, random_program(seed)).unwrap();
    let mut totals = Totals::default();
    for (c, cc) in [("gcc", "g++"), ("clang-14", "clang++-14")] {
        if !run(Command::new(c).arg("--version")) {
            println!("{c} is not there: skipped");
            continue;
        }
        for level in ["-O0", "-O2", "-O3", "-Os"] {
            for kind in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
                for source in [here.join("flow.c"), here.join("throw.cc"), random.clone()] {
                    let compiler = if source.extension().unwrap() == "cc" { cc } else { c };
                    let stem = source.file_stem().unwrap().to_str().unwrap();
                    let name = format!("{stem}{level}{}-{c}", kind[0]);
                    let (assembly, binary) = (out.join(format!("{name}.s")), out.join(&name));
                    let (object, flags) = (out.join(format!("{name}.o")), [level, kind[0]]);
                    let made = run(Command::new(compiler)
                        .args(flags)
                        .arg("-S")
                        .arg("-o")
                        .arg(&assembly)
                        .arg(&source))
                        && run(Command::new(compiler)
                            .args(["-c", "-Wa,-L", "-o"])
                            .arg(&object)
                            .arg(&assembly))
                        && run(Command::new(compiler)
                            .args([kind[1], "-Wl,--discard-none", "-o"])
                            .arg(&binary)
                            .arg(&object));
                    if made {
                        check(&binary, &assembly, &name, &mut totals);
                    } else {
                        println!("{name}: cannot be built, skipped");
                    }
                }
            }
        }
    }
    println!(
        "{} builds, {} functions, {} complete ({:.1} %); {} of {} tables found, {} of them guessed ({} of these right), \
         {} of {} jumps unresolved; {} wrong",
        totals.builds,
        totals.functions,
        totals.complete,
        totals.complete as f64 * 100.0 / totals.functions.max(1) as f64,
        totals.found,
        totals.tables,
        totals.guessed,
        totals.guessed_right,
        totals.unresolved,
        totals.jumps,
        totals.wrong.len()
    );
    assert!(totals.wrong.is_empty(), "{:#?}", totals.wrong);
}
