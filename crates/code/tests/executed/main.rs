//! What programs really do, one instruction after the other, compared with the graphs of their functions: every
//! instruction that runs must be one of ours, and every way that control takes must be one of our edges.
//!
//! The short form watches a few small programs. The long form watches everything that is installed here:
//! `cargo test --release -p weft-code --test executed -- --ignored --nocapture`. `WEFT_PROGRAMS` may name some of
//! them, separated by colons; `WEFT_STEPS` says how many steps each may take, `WEFT_SHOW_UNKNOWN` what remained unknown.

mod check;
#[path = "../support/mod.rs"]
mod support;
mod tracer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use check::{Module, Seen};
use support::File;
use tracer::{Limits, trace};

/// Something to watch.
struct Run {
    name: String,
    command: Command,
    from_start: bool,
    /// Whether control may leave functions without returning. What runs on its own then would not be caught again.
    leaps: bool,
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("executed");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A program of this system with its arguments, in a folder of its own and without what the user has set up.
fn installed(name: &str, program: &str, arguments: &[&str]) -> Run {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder()).stdin(Stdio::null());
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", folder());
    // What interrupts a goroutine at any instruction does so only to slow ones; single steps make all slow.
    command.env("GODEBUG", "asyncpreemptoff=1").env("GOMAXPROCS", "2").env("LANG", "C.UTF-8");
    Run { name: name.into(), command, from_start: false, leaps: false }
}

fn with_input(mut run: Run, input: &str) -> Run {
    let path = folder().join(format!("{}.in", run.name.replace(['/', ' '], "-")));
    std::fs::write(&path, input).unwrap();
    run.command.stdin(std::fs::File::open(path).unwrap());
    run
}

fn from_start(run: Run) -> Run {
    Run { from_start: true, ..run }
}

fn leaps(run: Run) -> Run {
    Run { leaps: true, ..run }
}

/// Compiles a program of these tests; the words come before the source.
fn built(name: &str, words: &[&str], source: &str) -> Option<Run> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    compiled(name, words, source.to_str().unwrap(), &[])
}

/// Compiles a program that is to get arguments.
fn compiled(name: &str, words: &[&str], source: &str, arguments: &[&str]) -> Option<Run> {
    let binary = folder().join(name);
    let mut compiler = Command::new(words[0]);
    compiler.args(&words[1..]).arg("-o").arg(&binary).arg(source);
    compiler.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(folder());
    if !compiler.status().is_ok_and(|status| status.success()) {
        println!("{name}: cannot be built, skipped");
        return None;
    }
    Some(installed(name, binary.to_str().unwrap(), arguments))
}

/// Small programs that need nothing but a compiler, and a few that are everywhere.
fn few() -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    runs.extend(built("flow.gcc.O2", &["gcc", "-O2"], "corpus/flow.c").map(from_start));
    runs.extend(built("throws.g++.O2", &["g++", "-O2"], "executed/throws.cc").map(leaps));
    runs.extend(built("flow.static", &["gcc", "-O3", "-static"], "corpus/flow.c"));
    runs.extend(
        built("panics.rustc", &["rustc", "-Copt-level=2"], "executed/panics.rs").map(leaps),
    );
    runs.push(installed("bash", "bash", &["-c", BASH]));
    runs.push(installed("sed", "sed", &["-n", "s/^\\(r[a-z]*\\):x*/\\1/;/o/p", "/etc/passwd"]));
    runs
}

const BASH: &str = "f() { case $1 in a*) echo ${1%x};; *) for i in 1 2 3; do ((s+=i*2)); done;; esac; }; \
                    f abcx; f z; a=(3 1 2); echo ${a[@]/1/x} $((16#ff ^ 3)); [[ abc =~ b(c) ]]; printf '%05d\\n' 7";
const PERL: &str = "my %h; for (split /,/, 'b,a,c') { $h{$_}++ } print join '-', map { sprintf '%03d', $_ * 2 } 1..5; \
     print sort keys %h; eval { die 'x' }; print $@ =~ s/x/y/r; local $_ = 'abc'; tr/a-c/d-f/; print;";
const PYTHON: &str = "import json\nprint(json.dumps(sorted({str(i): i ** 2 for i in range(20)}.items())))\ntry:\n  1 / 0\n\
     except ZeroDivisionError as e: print(f'{e!r:>40}')\nclass A:\n  def __iter__(s): yield from range(3)\n\
     print([*A()], {1} | {2}, b'a'.hex(), '%d' % 3)\n";
const SQL: &str = "create table t(a integer primary key, b text); insert into t values(1,'x'),(2,'y'),(3,'z'); \
                   create index i on t(b); select b, count(*) from t where a > 1 group by b order by b desc; \
                   with recursive c(x) as (select 1 union all select x+1 from c where x<20) select sum(x) from c; \
                   update t set b=upper(b) where b like 'x%'; explain query plan select * from t join t u using(a);";

/// All that there is.
fn many() -> Vec<Run> {
    let folder = folder();
    let text: String = (0..400)
        .map(|n| format!("{} line {n} of {}\n", n * 7919 % 1000, "words ".repeat(n % 5)))
        .collect();
    std::fs::write(folder.join("text"), &text).unwrap();
    std::fs::write(folder.join("tiny.c"), "int f(int x) { return x > 3 ? x * 7 : x / 2; }\n")
        .unwrap();
    let _ = Command::new("gcc")
        .args(["-O1", "-S", "tiny.c"])
        .current_dir(&folder)
        .status()
        .and_then(|_| Command::new("gcc").args(["-c", "tiny.s"]).current_dir(&folder).status());
    let mut runs = few();
    for (compiler, compiler_of_cc) in [("gcc", "g++"), ("clang-14", "clang++-14")] {
        for level in ["-O0", "-O2", "-O3", "-Os"] {
            let name = |what: &str| format!("{what}.{compiler}{level}");
            runs.extend(built(&name("flow"), &[compiler, level], "corpus/flow.c"));
            runs.extend(
                built(&name("throws"), &[compiler_of_cc, level], "executed/throws.cc").map(leaps),
            );
        }
    }
    runs.extend(built("flow.musl", &["musl-gcc", "-O2", "-static"], "corpus/flow.c"));
    runs.extend(built("leaps.gcc", &["gcc", "-O2"], "executed/leaps.c").map(leaps));
    runs.extend(
        built("leaps.musl", &["musl-gcc", "-O2", "-static"], "executed/leaps.c").map(leaps),
    );
    runs.extend(built("defers.go", &["go", "build"], "executed/defers.go").map(leaps));
    let own = |program: &str, arguments: &[&str]| {
        let name = Path::new(program).file_name().unwrap().to_str().unwrap();
        installed(name, program, arguments)
    };
    runs.push(own("sqlite3", &[":memory:", SQL]));
    runs.push(own("perl", &["-e", PERL]));
    runs.push(own("python3", &["-S", "-c", PYTHON]));
    let cc1 = Command::new("gcc").arg("-print-prog-name=cc1").output();
    if let Ok(cc1) = cc1.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()) {
        runs.push(own(&cc1, &["-quiet", "-O2", "tiny.c", "-o", "cc1.s"]));
    }
    runs.push(own("as", &["tiny.s", "-o", "as.o"]));
    runs.push(own("ld", &["-r", "tiny.o", "-o", "ld.o"]));
    runs.push(own("objdump", &["-dr", "tiny.o"]));
    runs.push(own("readelf", &["-aW", "tiny.o"]));
    runs.push(own("git", &["diff", "--no-index", "--stat", "tiny.c", "tiny.s"]));
    runs.push(own("redis-server", &["--port", "0", "--save", "", "--unknown", "x"]));
    runs.push(own("redis-cli", &["--version"]));
    let settings =
        "events {}\nhttp { map $uri $x { default 1; ~^/a 2; } types { text/html html; } }\n";
    std::fs::write(folder.join("nginx.conf"), settings).unwrap();
    let here = folder.to_str().unwrap();
    runs.push(own("nginx", &["-t", "-p", here, "-e", "stderr", "-c", "nginx.conf"]));
    runs.push(own("node", &["-e", "console.log([3, 1, 2].sort().map(x => x ** 2))"]));
    runs.push(own("gdb", &["-nx", "-batch", "-ex", "p 7*3.5", "-ex", "disassemble f", "tiny.o"]));
    // What distributions install of Go has no symbols.
    let source = folder.join("tiny.go");
    let tiny = "package  main\nfunc  main( ) {\n if x:=1;x>0 { println( x , \"a\"+`b` ) }\n}\n";
    std::fs::write(&source, tiny).unwrap();
    runs.extend(compiled("gofmt", &["go", "build"], "cmd/gofmt", &["-s", "tiny.go"]));
    runs.push(own("xz", &["-kc", "text"]));
    runs.push(own("gzip", &["-kc", "text"]));
    runs.push(own("grep", &["-En", "^[1-5]+ line (1|2).*of( words)*$", "text"]));
    runs.push(own(
        "mawk",
        &["{ n[$1 % 7] += $3 } END { for (k in n) printf \"%s %.2f\\n\", k, n[k] }", "text"],
    ));
    runs.push(own(
        "find",
        &["/usr/share/doc", "-maxdepth", "1", "-name", "*gcc*", "-printf", "%s %p\\n"],
    ));
    runs.push(from_start(own("sort", &["-k3,3n", "-k1,1r", "text"])));
    runs.push(own("tar", &["-cf", "out.tar", "text", "tiny.c"]));
    runs.push(own("openssl", &["dgst", "-sha256", "text"]));
    runs.push(own("curl", &["--version"]));
    runs.push(own("jq", &["-n", "[range(5)] | map(. * 2) | {a: ., b: (add | tostring)}"]));
    runs.push(with_input(
        own("bc", &["-l"]),
        "scale=20; 4*a(1); define f(x) { if (x<2) return 1; return x*f(x-1); } f(12)\n",
    ));
    runs.push(from_start(own("ls", &["-laR", "/etc/apt"])));
    runs.push(own("make", &["-n", "-p", "-f", "/dev/null"]));
    runs.push(own("vim", &["--version"]));
    runs.push(own("ssh", &["-V"]));
    runs.push(own("/usr/lib/postgresql/15/bin/postgres", &["--version"]));
    if let Ok(names) = std::env::var("WEFT_PROGRAMS") {
        runs.retain(|run| names.split(':').any(|name| name == run.name));
    }
    runs
}

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

fn print(name: &str, steps: u64, result: &check::Result) {
    println!(
        "{name:<24} {steps:>9} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>8}",
        result.functions,
        percent(result.complete, result.functions),
        result.jumps,
        percent(result.resolved, result.jumps),
        result.instructions,
        result.transfers,
        result.outside.len(),
        result.unknown,
        result.nameless,
    );
    for each in result.outside.iter().take(20) {
        println!("    {each}");
    }
}

/// Watches programs and compares; returns how many, and what was outside.
fn compare(runs: Vec<Run>, steps: u64) -> (usize, Vec<String>) {
    let steps = std::env::var("WEFT_STEPS").ok().and_then(|s| s.parse().ok()).unwrap_or(steps);
    println!(
        "{:<24} {:>9} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>8}",
        "program",
        "steps",
        "funcs",
        "whole%",
        "jumps",
        "found%",
        "instrs",
        "moves",
        "outside",
        "unknown",
        "nameless"
    );
    let mut libraries: BTreeMap<String, Seen> = BTreeMap::new();
    let mut total = check::Result::default();
    let (mut programs, mut all) = (0, 0);
    for mut run in runs {
        let limits = Limits {
            steps,
            time: Duration::from_secs(120),
            calls: if run.leaps { u32::MAX } else { 40 },
            from_start: run.from_start,
        };
        let trace = match trace(&mut run.command, limits) {
            Ok(trace) => trace,
            Err(error) => {
                println!("{:<24} cannot be watched: {error}", run.name);
                continue;
            }
        };
        check::by_file(&trace, &mut libraries);
        let Some(seen) = libraries.remove(&trace.program) else { continue };
        let Some(file) = File::open(&trace.program) else { continue };
        let result = Module::new(file).check(&seen);
        print(&run.name, trace.steps, &result);
        programs += usize::from(result.transfers > 0);
        all += trace.steps;
        total.add(&result);
    }
    let (mut small, mut others) = (0, check::Result::default());
    for (path, seen) in libraries {
        let Some(file) = File::open(&path) else { continue };
        let result = Module::new(file).check(&seen);
        total.add(&result);
        if result.functions < 20 && result.outside.is_empty() {
            small += 1;
            others.add(&result);
        } else {
            print(Path::new(&path).file_name().unwrap().to_str().unwrap(), 0, &result);
        }
    }
    print(&format!("{small} more libraries"), 0, &others);
    print(
        &format!("{programs} programs"),
        all,
        &check::Result { outside: Vec::new(), ..total.clone() },
    );
    (programs, total.outside)
}

#[test]
fn what_runs_is_in_the_graphs() {
    let (programs, outside) = compare(few(), 150_000);
    assert!(programs >= 4, "only {programs} programs could be watched");
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
#[ignore = "takes minutes"]
fn what_runs_in_many_programs_is_in_the_graphs() {
    let (programs, outside) = compare(many(), 2_000_000);
    assert!(programs >= 20 || std::env::var_os("WEFT_PROGRAMS").is_some());
    assert!(outside.is_empty(), "{outside:#?}");
}

/// What this test would say of graphs that are wrong: a program that throws, without its landing pads and with calls that
/// are thought not to return.
#[test]
fn what_is_missing_is_found_out() {
    let Some(mut run) = built("thrown", &["g++", "-O1"], "executed/throws.cc") else { return };
    let limits = Limits {
        steps: 100_000,
        time: Duration::from_secs(60),
        calls: u32::MAX,
        from_start: false,
    };
    let trace = trace(&mut run.command, limits).unwrap();
    let mut seen = BTreeMap::new();
    check::by_file(&trace, &mut seen);
    let seen = &seen[&trace.program];
    let outside = |change: fn(&mut File)| {
        let mut file = File::open(&trace.program).unwrap();
        change(&mut file);
        Module::new(file).check(seen).outside.len()
    };
    assert_eq!(outside(|_| ()), 0);
    assert!(outside(File::forget_landing_pads) > 0);
    assert!(outside(File::forget_returns) > 0);
}
