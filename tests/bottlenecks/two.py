"""Programs with two bottlenecks each, of which none is far behind the other."""

from __future__ import annotations

from dataclasses import replace

from tests.bottlenecks.model import Case
from tests.bottlenecks.one import one


def two(case: Case, other: str) -> Case:
    return replace(case, kind="two", expected=(*case.expected, other))


TWO = (
    two(
        one(
            *("ledger-journal", "C", "ledger.c", "lock_wait", "ledger_lock post_entry fsync"),
            "three threads, one mutex that is held while 4 MiB are written to the disk",
            *("3", "{folder}/journal.data"),
        ),
        "io_wait",
    ),
    two(
        one(
            *("snapshot", "C", "snapshot.c", "page_faults", "update_pages await_saved child"),
            "each page is copied once per fork: 24,000 faults a round; then it waits for its child",
        ),
        "peer_wait",
    ),
    two(
        one(
            *("archive", "C", "archive.c", "syscalls", "pread read_member clear_member mmap"),
            "for each page of a new mapping one fault and four reads",
            "{folder}/archive.data",
        ),
        "page_faults",
    ),
    two(
        one(
            *("parser", "C++", "parser.cpp", "cpu", "sign_text parse_tree malloc"),
            "a third of the samples in sign_text, a third in malloc and free of the tree",
        ),
        "allocation",
    ),
    two(
        one(
            *("lanes", "C++", "lanes.cpp", "spinning", "take_buffer processor CPU"),
            "eight threads on one processor spin for a lock: 87% of the samples in take_buffer, "
            "and each thread waits 0.88 of the time for the processor",
        ),
        "run_queue",
    ),
    two(
        one(
            *("journal", "Rust", "journal.rs", "syscalls", "write_log write build_parts malloc"),
            "writes letter by letter, and builds trees of small boxes",
            "/dev/null",
        ),
        "allocation",
    ),
    two(
        one(
            *("gateway-go", "Go", "gateway.go", "peer_wait", "askRecord renderPage {port}"),
            "asks a service for 5 ms, then computes for 4 to 5 ms",
            "{port}",
            peers=(("lines", "{port}", "5"),),
        ),
        "cpu",
    ),
    two(
        one(
            *(
                "mapper-render",
                "Python",
                "mapper.py",
                "peer_wait",
                "load_object render_page base.socket",
            ),
            "asks a database for 6 ms, then computes for about as long",
            *("{folder}/base.socket", "render"),
            peers=(("lines", "{folder}/base.socket", "6"),),
        ),
        "cpu",
    ),
    two(
        one(
            *(
                "accounts-book",
                "Java",
                "Accounts.java",
                "lock_wait",
                "Accounts clerk fsync book.data",
            ),
            "three threads in one synchronized method that writes 4 MiB through to the disk",
            *("3", "{folder}/book.data"),
        ),
        "io_wait",
    ),
    two(
        one(
            *("gateway-node", "node", "gateway.js", "peer_wait", "askService renderPage {port}"),
            "asks a service for 10 ms, then computes for about as long",
            *("{port}", "render"),
            peers=(("http", "{port}", "10"),),
        ),
        "cpu",
    ),
)
