"""Interpreters and those that compile while they run."""

from __future__ import annotations

from tests.zoo.inputs import text, written
from tests.zoo.model import Exhibit

TEXT = (text("text.txt", 5000),)
QUIET_JAVA = "-Xmx128m -XX:-UsePerfData -XX:ActiveProcessorCount=2 -cp out Work"


def _java(name: str, options: str, does: str, short: bool = False, known: str = "") -> Exhibit:
    return Exhibit(
        name=name,
        packages="openjdk-17-jre-headless",
        does=does,
        prepare=("javac -d out Work.java",),
        commands=(f"java {options} {QUIET_JAVA} 200000".replace("  ", " "),),
        scripts=("Work.java",),
        inputs=TEXT,
        short=short,
    )


INTERPRETERS = [
    Exhibit(
        name="perl",
        packages="perl",
        does="hashes, expressions, sorting, sprintf, fork and pipes",
        commands=(
            "perl work.pl text.txt",
            "perl -MList::Util=sum -MDigest::SHA=sha256_hex"
            " -e 'print sha256_hex(join q(,), map {$_*$_} 1..20000), sum(1..99999), qq(\\n)'",
        ),
        scripts=("work.pl",),
        inputs=TEXT,
        short=True,
    ),
    Exhibit(
        name="python",
        packages="python3.11",
        does="json, re, sorting, classes, generators, zlib, threads, sqlite, ctypes, subprocess",
        commands=(
            "/usr/bin/python3 work.py text.txt",
            "/usr/bin/python3 -m compileall -q work.py",
            "/usr/bin/python3 -m json.tool --sort-keys out.json",
        ),
        scripts=("work.py",),
        inputs=TEXT,
        files=("out.json",),
        short=True,
    ),
    Exhibit(
        name="python, processes",
        packages="python3.11",
        does="a pool of processes, forked and spawned, queues and shared memory",
        commands=("/usr/bin/python3 processes.py",),
        scripts=("processes.py",),
    ),
    Exhibit(
        name="numpy",
        packages="python3-numpy",
        does="products, inverses, transforms and sorts of matrices, by AVX code",
        needs=("f2py3",),
        commands=("/usr/bin/python3 matrices.py",),
        scripts=("matrices.py",),
        environment={"OPENBLAS_NUM_THREADS": "2"},
    ),
    Exhibit(
        name="pypy",
        packages="pypy3",
        does="loops that its just-in-time compiler compiles",
        commands=("pypy3 loops.py",),
        scripts=("loops.py",),
    ),
    Exhibit(
        name="ruby",
        packages="ruby3.1 ruby",
        does="blocks, hashes, expressions, fibers, threads and a digest",
        commands=("ruby work.rb text.txt",),
        scripts=("work.rb",),
        inputs=TEXT,
    ),
    Exhibit(
        name="ruby, jit",
        packages="ruby3.1 ruby",
        does="the same with the compiler that makes machine code",
        commands=("ruby --yjit --yjit-call-threshold=5 work.rb text.txt",),
        scripts=("work.rb",),
        inputs=TEXT,
    ),
    Exhibit(
        name="lua",
        packages="lua5.4",
        does="tables, closures, coroutines, patterns and sorting",
        commands=("lua5.4 work.lua text.txt",),
        scripts=("work.lua",),
        inputs=TEXT,
        short=True,
    ),
    Exhibit(
        name="luajit",
        packages="luajit",
        does="the same, interpreted and compiled while it runs",
        commands=("luajit work.lua text.txt", "luajit -joff work.lua text.txt"),
        scripts=("work.lua",),
        inputs=TEXT,
        short=True,
    ),
    Exhibit(
        name="tcl",
        packages="tcl8.6 tcl",
        does="lists, arrays, expressions, events and files",
        commands=("tclsh work.tcl text.txt",),
        scripts=("work.tcl",),
        inputs=TEXT,
    ),
    Exhibit(
        name="php",
        packages="php8.2-cli php-cli",
        does="arrays, expressions, objects and hashes, with its compiler and without",
        commands=(
            "php -n work.php text.txt",
            "php -n -d zend_extension=opcache -d opcache.enable_cli=1 -d opcache.jit=tracing"
            " -d opcache.jit_buffer_size=32M work.php text.txt",
        ),
        scripts=("work.php",),
        inputs=TEXT,
    ),
    Exhibit(
        name="node",
        packages="nodejs",
        does="sorting, maps, expressions, typed arrays, promises, streams and WebAssembly",
        commands=("node work.js text.txt",),
        scripts=("work.js",),
        inputs=TEXT,
        short=True,
    ),
    Exhibit(
        name="node, workers",
        packages="nodejs",
        does="four workers that share memory and are told to wait and wake",
        commands=("node workers.js",),
        scripts=("workers.js",),
    ),
    Exhibit(
        name="node, interpreted",
        packages="nodejs",
        does="the same as node without any compiler",
        commands=("node --jitless --no-expose-wasm work.js text.txt",),
        scripts=("work.js",),
        inputs=TEXT,
    ),
    _java("java", "", "records, streams, threads, exceptions and expressions", short=True),
    _java("java -Xint", "-Xint", "the same, interpreted only"),
    _java("java, serial", "-XX:+UseSerialGC", "the same with the serial collector"),
    _java("java, parallel", "-XX:+UseParallelGC", "the same with the parallel collector"),
    _java("java, zgc", "-XX:+UseZGC", "the same with the collector that maps memory thrice"),
    _java("java -Xcomp", "-Xcomp -XX:TieredStopAtLevel=1", "the same with all compiled at once"),
    Exhibit(
        name="sbcl",
        packages="sbcl",
        does="compiled functions and ran them, with a collector that protects pages",
        commands=("sbcl --script work.lisp",),
        scripts=("work.lisp",),
    ),
    Exhibit(
        name="guile",
        packages="guile-3.0",
        does="recursion, lists and continuations, compiled while it runs",
        commands=("guile --no-auto-compile work.scm",),
        scripts=("work.scm",),
    ),
    Exhibit(
        name="erlang",
        packages="erlang-base",
        does="10,000 processes and their messages, compiled while it loads",
        needs=("escript",),
        commands=("escript work.escript",),
        scripts=("work.escript",),
    ),
    Exhibit(
        name="pandoc",
        packages="pandoc",
        does="made HTML of a long text (a program of GHC)",
        commands=("pandoc -f markdown -t html -o out.html work.md",),
        inputs=(
            written(
                "work.md",
                "".join(
                    f"# Part {n}\n\nWords *{n}* and **{n * 7}**, `code`:\n\n- a\n- b\n\n"
                    for n in range(200)
                ),
            ),
        ),
    ),
]
