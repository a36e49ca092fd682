"""Servers under load, and programs that need much of the kernel."""

from __future__ import annotations

import os

from tests.zoo.inputs import text, tree
from tests.zoo.model import Exhibit, Native, Server

PYTHON = "/usr/bin/python3"

# PostgreSQL refuses to run as root.
AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups " if os.geteuid() == 0 else ""
OWNED = ("chown 65534:65534 .",) if AS_NOBODY else ()
POSTMASTER = (
    f"{AS_NOBODY}postgres -D data -p {{port}} -c listen_addresses=127.0.0.1"
    " -c unix_socket_directories= -c fsync=off"
)
POSTGRES = "-h 127.0.0.1 -p {port} -U weft"

SERVICES = [
    Exhibit(
        name="redis",
        packages="redis-server redis-tools",
        does="served 60,000 requests of 20 clients, and counted them right",
        server=Server(
            "redis-server --bind 127.0.0.1 --port {port} --dir . --daemonize no"
            " --pidfile redis.pid --loglevel warning --save '' --appendonly yes"
            " --enable-debug-command local",
            pid_file="redis.pid",
        ),
        commands=(
            Native(
                "redis-benchmark -p {port} -q -n 10000 -c 20 -t set,get,incr,lpush,lrange_100,mset"
                " > /dev/null"
            ),
            Native(f"{PYTHON} redis_load.py {{port}}"),
            "redis-cli -p {port} dbsize",
            "redis-cli -p {port} get counter:__rand_int__",
            "redis-cli -p {port} debug digest",
        ),
        scripts=("redis_load.py",),
        files=("redis_load.py",),
        stderr=False,
        short=True,
    ),
    Exhibit(
        name="memcached",
        packages="memcached",
        does="served 20,000 requests of eight clients, by four threads",
        server=Server(
            "memcached -u root -l 127.0.0.1 -p {port} -U 0 -m 64 -t 4 -P ./memcached.pid",
            pid_file="memcached.pid",
        ),
        commands=(Native(f"{PYTHON} memcached_load.py {{port}}"),),
        scripts=("memcached_load.py",),
        files=("memcached_load.py",),
        short=True,
    ),
    Exhibit(
        name="nginx",
        packages="nginx-core nginx",
        does="served 4,000 files to eight clients, by two processes, and wrk's 50 connections",
        prepare=("bash prepare.nginx {port}",),
        server=Server("nginx -p . -c nginx.conf -e stderr", pid_file="nginx.pid", signal="QUIT"),
        commands=(
            Native(f"{PYTHON} http_load.py {{port}} text.txt tree/part0/deep0/file0.txt"),
            Native("bash -c 'wrk -t 2 -c 50 -d 2 http://127.0.0.1:{port}/ | grep -c errors; true'"),
        ),
        scripts=("prepare.nginx", "http_load.py"),
        inputs=(text("text.txt", 500), tree("tree", 20)),
        files=("text.txt",),
        short=True,
    ),
    Exhibit(
        name="postgres",
        packages="postgresql-15 postgresql",
        does="served pgbench's four clients, and reports over what came of it",
        prepare=(
            *OWNED,
            f"{AS_NOBODY}initdb -D data -A trust -U weft --no-sync -E UTF8 --locale=C",
        ),
        server=Server(
            POSTMASTER,
            pid_file="data/postmaster.pid",
            signal="INT",
        ),
        commands=(
            Native(f"bash -c 'until pg_isready -q {POSTGRES}; do sleep 0.05; done'"),
            Native(f"pgbench {POSTGRES} -q -i -s 2 postgres > /dev/null"),
            Native(f"pgbench {POSTGRES} -c 4 -j 2 -t 250 --random-seed=7 postgres > /dev/null"),
            Native(f"pgbench {POSTGRES} -C -c 2 -t 25 --random-seed=8 postgres > /dev/null"),
            Native(f"psql {POSTGRES} -X -f report.sql postgres"),
        ),
        scripts=("report.sql",),
        files=("report.sql",),
        stderr=False,
    ),
    Exhibit(
        name="psql and pg_dump",
        packages="postgresql-client-15 postgresql",
        does="asked a native server, and dumped what it holds",
        prepare=(
            *OWNED,
            f"{AS_NOBODY}initdb -D data -A trust -U weft --no-sync -E UTF8 --locale=C",
        ),
        server=Server(
            Native(POSTMASTER),
            pid_file="data/postmaster.pid",
            signal="INT",
        ),
        commands=(
            Native(f"bash -c 'until pg_isready -q {POSTGRES}; do sleep 0.05; done'"),
            f"psql {POSTGRES} -X -f tables.sql postgres",
            f"pg_dump {POSTGRES} postgres > dump.sql",
        ),
        scripts=("tables.sql",),
        files=("dump.sql",),
        normal={r"^.(un)?restrict .*$": ""},
        stderr=False,
    ),
    Exhibit(
        name="io_uring",
        packages="gcc libc6-dev",
        does="read and wrote a file by rings shared with the kernel",
        prepare=("gcc -O2 -pthread -o rings rings.c",),
        commands=("./rings text.txt copy",),
        scripts=("rings.c",),
        inputs=(text("text.txt", 20000),),
        short=True,
    ),
    Exhibit(
        name="timers and pipes",
        packages="gcc libc6-dev",
        does="signals, timers, pipes, epoll, eventfd, inotify, memfd and futex in one program",
        prepare=("gcc -O2 -pthread -o kernel kernel.c",),
        commands=("./kernel",),
        scripts=("kernel.c",),
        short=True,
    ),
    Exhibit(
        name="stress-ng",
        packages="stress-ng",
        does="checked itself: signals, faults, forks, threads, mappings and vectors, a second each",
        commands=tuple(
            f"stress-ng -q --verify --timeout 20 --{name} 1 --{name}-ops {count}"
            for name, count in (
                *(("sigsegv", 2000), ("sigfpe", 500), ("sigq", 2000), ("sigsuspend", 1000)),
                *(("fork", 200), ("vfork", 200), ("clone", 200), ("exec", 50), ("pthread", 200)),
                *(("context", 500), ("mprotect", 200), ("mmapfork", 2), ("vecmath", 50)),
                *(("longjmp", 50000), ("funccall", 50), ("stack", 50), ("switch", 2000)),
                *(("icache", 200), ("timer", 2000), ("itimer", 200), ("rdrand", 100)),
            )
        ),
        files=("none",),
        stderr=False,
        limit=600.0,
    ),
    Exhibit(
        name="script",
        packages="bsdutils bash",
        does="ran a shell in a terminal of its own",
        commands=(
            "script -qec 'bash -ic \"stty size; tty > /dev/null && echo terminal; exit 3\"; true'"
            " typescript",
        ),
        files=("none",),
        stderr=False,
    ),
    Exhibit(
        name="chromium",
        packages="chromium",
        does="rendered a page with a script, headless, and printed what became of it",
        commands=(
            "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage"
            " --no-first-run --disable-background-networking --disable-component-update"
            " --user-data-dir=profile --virtual-time-budget=10000 --dump-dom page.html",
        ),
        scripts=("page.html",),
        files=("page.html",),
        stderr=False,
    ),
]
