//! Text: what is printed is read back as the same, and what is wrong is said where and why.
#![allow(missing_docs)]

mod common;

use common::arbitrary::{Goals, Maker, choices, data};
use proptest::prelude::*;
use weft_snippet::{PointKind, Section, Statement, Weave};

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_printed_is_read_back(first in choices(), second in choices()) {
        let data = data();
        let site = common::site(PointKind::Entry);
        let goals = Goals { callee: 0x1234, buffer: 0x5678 };
        let entry = Maker::new(&first, &data, goals).at(site).body();
        let any = Maker::new(&second, &data, goals).body();
        let sections =
            vec![Section { at: Some(PointKind::Entry), body: entry }, Section { at: None, body: any }];
        let sections = sections.into_iter().filter(|section| !section.body.is_empty()).collect();
        let weave = Weave { data, sections };
        prop_assume!(weft_snippet::verify(&weave).is_ok());
        let text = weave.to_string();
        let read = Weave::parse(&text);
        match read {
            Ok(read) => {
                prop_assert_eq!(&read.to_string(), &text);
                prop_assert_eq!(read, weave);
            }
            // The text nests by precedence; the tree may nest deeper than text may.
            Err(problem) => prop_assert_eq!(problem.what, "nested too deep", "{}", text),
        }
    }

    #[test]
    fn nothing_panics(text in "[ -~\n]{0,60}") {
        let _ = Weave::parse(&text);
    }

    #[test]
    fn no_sequence_of_words_panics(words in proptest::collection::vec(proptest::sample::select(vec![
        "counter", "x", "+=", "1", "{", "}", "(", ")", "if", "else", "at", "entry", "let", "v", "=",
        "ring", "r", ",", "[", "]", "map", "timer", "wall", "start", "<<", "histogram", "log2", "\n",
        "-", "1.5", "arg", "since", "mark", "call", "0x10", "&&", "float", "of", "local",
    ]), 0..30)) {
        let _ = Weave::parse(&words.join(" "));
    }
}

#[test]
fn the_example_of_the_documentation() {
    let text = "counter calls\ntimer busy wall\nhistogram sizes log2\n\
        at entry { calls += 1; start busy; if arg(2) > 4096 { sizes << arg(2) } }\n\
        at exit  { stop busy }";
    let weave = common::parse(text);
    assert_eq!(weave.data.len(), 3);
    assert_eq!(weave.body(PointKind::Entry).unwrap().len(), 3);
    assert_eq!(weave.body(PointKind::Block), None);
    let canonical = "counter calls\ntimer busy wall\nhistogram sizes log2\nat entry {\n    \
        calls++\n    start busy\n    if $arg[2] > 4096 {\n        sizes << $arg[2]\n    }\n}\n\
        at return {\n    stop busy\n}\n";
    assert_eq!(weave.to_string(), canonical);
}

#[test]
fn every_kind_of_line() {
    let text = "\
counter a per point
counter b shared   # all points
timer c cpu; histogram d linear -5 10 20; histogram i fine
map e[2] 64
ring f(when, who) 16 blocking
local g
mark h
at entry {
    g += 1; g -= 2
    let k = max(
        arg(0),
        2) * -3
    e[caller, k] += 1
    stamp h
    call 0x400(1, k)
    let q = float(k) / 2.5 - -1e3
    if q > 0.0 && !(k == 2) { g = int(q) } else if k { a += 1 } else { b -= k }
}
at exit {
    emit f(now, thread)
    d << since(h)
    a += call 0x500() + loads16(reg(rsp) + 8)
}
";
    let weave = common::parse(text);
    assert_eq!(common::parse(&weave.to_string()), weave);
    assert!(matches!(weave.sections[0].body[1], Statement::Add { .. }));
}

#[test]
fn data_of_other_probes() {
    let text = "counter a shared of 1\ntimer b wall of 2\nhistogram c linear -5 10 20 of 3\n\
        histogram d log2 of 4\nmap e[2] 64 of 5\nring f(when) 16 blocking of 6\nlocal g of 7\n\
        mark of of 8\nlocal own\n";
    let weave = common::parse(text);
    assert_eq!(weave.to_string(), text);
    let of: Vec<_> = weave.data.iter().map(|datum| datum.of).collect();
    let numbers = (1..=8).map(Some).chain([None]);
    assert_eq!(of, numbers.collect::<Vec<_>>());
}

#[test]
fn what_is_wrong_is_said_where() {
    let cases = [
        ("local y; x += 1", 1, 10, "there is no counter `x`", "declare it first: `counter x`"),
        (
            "x += $argc",
            1,
            6,
            "there is no `$argc`",
            "there are $arg[0], $reg[rax], $return, $caller, $thread, $address, $frame, $memory, $size, $syscall, $time, $ticks, $cpu",
        ),
        ("x++ /* and\nso on", 1, 5, "this comment never ends", "end it with `*/`"),
        ("m[1]++; m[1, 2]++", 1, 9, "2 keys", "give 1"),
        ("x++; x << 1", 1, 6, "`x` is a counter", "only a histogram can be used so"),
        (
            "timer t wall; entry { start t cpu }",
            1,
            29,
            "`t` is a wall timer",
            "leave out `cpu`, or declare `timer t cpu`",
        ),
        ("counter x\nx += ", 2, 6, "a value is missing", "before the end of the line"),
        (
            "counter x; x += y",
            1,
            17,
            "there is no value `y`",
            "declare it: `local y`, or `let y = ...`",
        ),
        ("timer t", 1, 8, "`wall` or `cpu` is missing", "before the end of the line"),
        ("timer t fast", 1, 9, "`fast` is not a clock", "use `wall` or `cpu`"),
        ("counter x\ncounter x", 2, 9, "`x` is there already", "use another name"),
        ("counter if", 1, 9, "`if` is a word of the language", "use another name"),
        (
            "at dawn { }",
            1,
            4,
            "`dawn` is not a kind of point",
            "use entry, return, call, after, block, edge, insn, load, store, syscall, sysreturn",
        ),
        ("counter x\nx += 1 2", 2, 8, "`2` is too much", "begin a new line, or use `;`"),
        (
            "counter x\nx += 99999999999999999999",
            2,
            6,
            "`99999999999999999999` is not a number",
            "write 12, 0xc or 1.5",
        ),
        ("counter x\nstart x", 2, 7, "`x` is a counter", "only a timer can be used so"),
        ("counter x\nx += x", 2, 6, "a counter cannot be read here", "only locals and lets can"),
        ("let v = 1\nv += 2", 2, 1, "`v` cannot change", "declare `local v` instead of `let`"),
        ("counter é", 1, 9, "`é` means nothing here", "remove it"),
        (
            "counter x\nx += 1.5",
            2,
            1,
            "a double where an integer is needed",
            "convert it with `int(...)`",
        ),
        (
            "counter x\nx += 1\nx += arg(1) + 0.5",
            3,
            1,
            "a double where an integer is needed",
            "convert it with `int(...)`",
        ),
        (
            "counter x\nat exit { x += 1; x += arg(1) }",
            2,
            19,
            "there is no argument at return",
            "use it at entry or call or syscall or sysreturn",
        ),
        (
            "counter x\nat entry { x += result }",
            2,
            12,
            "there is no result at entry",
            "use it at return or after or sysreturn",
        ),
        (
            "timer t wall\nat block { start t }",
            2,
            12,
            "there is no frame for a timer at block",
            "use it at entry or return or syscall or sysreturn",
        ),
        ("map m[1] 100", 1, 1, "`m` cannot hold 100", "use a power of two up to 1048576"),
        ("map m[1] 8\nm[1, 2] += 1", 2, 1, "2 keys", "give 1"),
        ("local x of", 1, 11, "a probe's number is missing", "before the end of the line"),
        ("local x of -1", 1, 12, "-1 is out of range", "use a smaller number"),
        (
            "local x\ncounter y of 3",
            2,
            1,
            "`y` is a counter of each point, of one probe only",
            "declare it `shared`, in both probes",
        ),
        ("ring r(a) 8\nemit r(1, 2)", 2, 1, "2 values", "give one for each of the 1 fields"),
    ];
    for (text, line, column, what, hint) in cases {
        let problem = Weave::parse(text).expect_err(text);
        let found = (problem.line, problem.column, problem.what.as_str(), problem.hint.as_str());
        assert_eq!(found, (line, column, what, hint), "{text}");
    }
}

/// What each text is written as, and what it was written as before.
#[test]
fn every_spelling_means_the_same() {
    let same = [
        ("counter x; x++", "counter x; x += 1"),
        ("counter x; x--", "counter x; x -= 1"),
        ("map m[1] 8; m[$arg[0]]++", "map m[1] 8; m[arg(0)] += 1"),
        ("map m[1] 8; m[1] -= $arg[0]", "map m[1] 8; m[1] += -arg(0)"),
        ("counter x; entry { x += $arg[1] }", "counter x\nat entry { x += arg(1) }"),
        ("counter x; return { x += $return }", "counter x\nat exit { x += result }"),
        (
            "counter x; calls { x++ }; loads { x += $size }",
            "counter x; at call { x += 1 }; at load { x += access.size }",
        ),
        ("counter x; store { x += $memory }", "counter x; at store { x += access.address }"),
        ("counter x; syscall { x += $syscall }", "counter x; at syscall { x += syscall.number }"),
        (
            "local x; x = $caller + $thread + $address + $frame + $time + $ticks + $cpu",
            "local x; x = caller + thread + address + frame + now + ticks + cpu",
        ),
        ("local x; x = $reg[rax]", "local x; x = reg(rax)"),
        (
            "counter x; if ($arg[0] > 1) x++; else x--;",
            "counter x\nif arg(0) > 1 { x += 1 } else { x -= 1 }",
        ),
        (
            "counter x; if ($arg[0]) if ($arg[1]) x++ else x--",
            "counter x\nif arg(0) { if arg(1) { x += 1 } else { x -= 1 } }",
        ),
        (
            "counter x; if ($arg[0]) x++; else if ($arg[1]) { x-- }",
            "counter x\nif arg(0) { x += 1 } else if arg(1) { x -= 1 }",
        ),
        ("counter x // this\nx++ /* and\n that */; x++", "counter x # this\nx += 1; x += 1"),
        (
            "entry { $arg[0] = 1 }; return { $return = 2 }",
            "at entry { arg(0) = 1 }; at exit { result = 2 }",
        ),
        // A text that declares nothing is one of what is done to names.
        ("x++", "counter x; x += 1"),
        (
            "m[$caller] += 2; n[1, 2]++",
            "map m[1] 1024; map n[2] 1024; m[caller] += 2; n[1, 2] += 1",
        ),
        ("h << $arg[0]", "histogram h fine; h << arg(0)"),
        (
            "entry { start t; start u cpu }; return { stop t; stop u }",
            "timer t wall; timer u cpu; at entry { start t; start u }; at exit { stop t; stop u }",
        ),
        (
            "entry { d++; if (d > 1) x++ }; return { d = 0 }",
            "local d; counter x; at entry { d += 1; if d > 1 { x += 1 } }; at exit { d = 0 }",
        ),
        // Two signs are a step only at the end of a statement.
        ("counter x; x += 5--6", "counter x; x += 5 - -6"),
    ];
    for (new, old) in same {
        let (new, old) = (common::parse(new), common::parse(old));
        assert_eq!(new, old);
        assert_eq!(common::parse(&new.to_string()), old);
    }
}

#[test]
fn cost_is_bounded() {
    let many = format!("counter x\n{}", "x += 1\n".repeat(2000));
    assert_eq!(Weave::parse(&many).unwrap_err().what, "too many operations");
    let deep = format!("counter x\nx += {}1{}", "(".repeat(100), ")".repeat(100));
    assert_eq!(Weave::parse(&deep).unwrap_err().what, "nested too deep");
}
