"""Programs with one bottleneck each."""

from __future__ import annotations

from tests.bottlenecks.model import Case

JAVA = ("-XX:+PreserveFramePointer",)
"""So that what it compiles can be unwound."""
NODE = ("--perf-basic-prof",)
"""So that what it compiles has names."""


def one(
    name: str,
    language: str,
    source: str,
    expected: str,
    focus: str,
    truth: str,
    *arguments: str,
    peers: tuple[tuple[str, ...], ...] = (),
    options: tuple[str, ...] = (),
) -> Case:
    """A program with one bottleneck; words of the focus are separated by blanks."""
    usual = {"Java": JAVA, "node": NODE}.get(language, ())
    return Case(
        name=name,
        language=language,
        source=source,
        kind="one",
        expected=(expected,),
        focus=tuple(focus.split()),
        truth=truth,
        arguments=("{counter}", *arguments),
        options=(*usual, *options),
        peers=peers,
        warm=3.0 if language in ("Java", "node") else 1.0,
    )


CPU = (
    one(
        *("report", "C", "report.c", "cpu", "strlen strcat append_text write_report"),
        "appends to a text by looking for its end each time: 92% of the samples in strlen",
    ),
    one(
        *("router", "C++", "router.cpp", "cpu", "match_here find_handler"),
        "a matcher that backtracks: 97% of the samples in match_here",
    ),
    one(
        *("symbols", "Java", "Symbols.java", "cpu", "HashMap Symbols TreeNode"),
        "a hash table whose keys all have the same hash",
    ),
    one(
        *("template", "node", "template.js", "cpu", "fillTemplate StringSearch StringSplit"),
        "goes through the whole text once for each name in it",
    ),
    one(
        *("dedupe", "Python", "dedupe.py", "cpu", "without_doubles list_contains RichCompare"),
        "looks for each element in a list",
    ),
)

LOCK_WAIT = (
    one(
        *("ledger", "C", "ledger.c", "lock_wait", "ledger_lock post_entry pthread_mutex_lock"),
        "six threads, one mutex that is held for a millisecond: 80% of their time in futex",
        "6",
    ),
    one(
        *("spool-claim", "C", "spool.c", "lock_wait", "spool.lock claim_spool flock"),
        "a file lock that another process holds most of the time: 89% of its time in flock",
        *("claim", "{folder}/spool.lock", "1000", "500"),
        peers=(("{program}", "{folder}/other", "claim", "{folder}/spool.lock", "15000", "1000"),),
    ),
    one(
        *("quotes", "C++", "quotes.cpp", "lock_wait", "prices_lock read_price rwlock shared_mutex"),
        "four readers of a shared_mutex that its writer holds for 8 of 9 ms: 86% in futex",
    ),
    one(
        *("sessions", "Rust", "sessions.rs", "lock_wait", "renew_session"),
        "five threads, one Mutex that is held for two milliseconds: 76% of their time in futex",
    ),
    one(
        *("accounts", "Java", "Accounts.java", "lock_wait", "Accounts clerk"),
        "five threads in one synchronized method that sleeps for two milliseconds",
        "5",
    ),
    one(
        *("inventory", "Go", "inventory.go", "lock_wait", "reserve askWarehouse"),
        "eight goroutines, one Mutex that is held for two milliseconds; threads only show idleness",
    ),
    one(
        *("cache", "Python", "cache.py", "lock_wait", "read_row"),
        "six threads, one threading.Lock that is held for three milliseconds",
    ),
)

IO_WAIT = (
    one(
        *("spool-store", "C", "spool.c", "io_wait", "fsync pwrite store_message spool.data"),
        "writes 4 MiB with O_DIRECT and syncs: most of its time in pwrite and fsync, in state D",
        *("store", "{folder}/spool.data"),
    ),
    one(
        *("extents", "Rust", "extents.rs", "io_wait", "read_extent extents.data"),
        "reads with O_DIRECT: 80% of its time blocked in pread, in state D",
        "{folder}/extents.data",
    ),
    one(
        *("outbox", "Python", "outbox.py", "io_wait", "write_message pwrite outbox.data"),
        "writes 4 MiB each time to a file opened with O_DSYNC",
        "{folder}/outbox.data",
    ),
)

PEER_WAIT = (
    one(
        *("checker", "C", "checker.c", "peer_wait", "pipe check_word dictionary"),
        "asks its child over pipes, which takes 4 ms: 95% of its time in read of a pipe",
    ),
    one(
        *("resolver", "C++", "resolver.cpp", "peer_wait", "look_up {port}"),
        "half of its datagrams are not answered, and it waits 30 ms for each of those",
        "{port}",
        peers=(("datagrams", "{port}", "5"),),
    ),
    one(
        *("orders", "Go", "orders.go", "peer_wait", "askPrice {port}"),
        "asks a service over TCP that takes 5 ms: 97% in epoll_wait, which is how Go waits",
        "{port}",
        peers=(("lines", "{port}", "5"),),
    ),
    one(
        *("gateway", "node", "gateway.js", "peer_wait", "askService {port}"),
        "asks a service over HTTP that takes 10 ms, one question at a time",
        "{port}",
        peers=(("http", "{port}", "10"),),
    ),
)

ALLOCATION = (
    one(
        *("table", "C", "table.c", "allocation", "malloc free replace_record"),
        "frees and allocates blocks of all sizes: 91% of the samples in malloc and free",
    ),
    one(
        *("catalog", "C++", "catalog.cpp", "allocation", "malloc free operator build_catalogue"),
        "makes and gives up texts and list nodes: 70% of the samples in malloc and free",
    ),
    one(
        *("events", "Go", "events.go", "allocation", "mallocgc decodeEvent gcBgMarkWorker scan"),
        "garbage beside 240,000 live objects: 70% of the samples in mallocgc and the collector",
    ),
    one(
        *("records", "Java", "Records.java", "allocation", "GC VM Records"),
        "makes garbage in a heap that its live data almost fill: most of the time in collections",
        options=("-Xmx96m", "-XX:+UseSerialGC"),
    ),
)

PAGE_FAULTS = (
    one(
        *("imaging", "C", "imaging.c", "page_faults", "decode new_frame mmap"),
        "maps a new buffer for each picture: 540,000 faults/s, 89% of its time in the kernel",
    ),
    one(
        *("arena", "C++", "arena.cpp", "page_faults", "Arena madvise run_query"),
        "gives its memory back after each query: 600,000 faults/s, 90% of its time in the kernel",
    ),
    one(
        *("thumbs", "Rust", "thumbs.rs", "page_faults", "draw blank_canvas"),
        "allocates 48 MiB for each picture: 340,000 faults/s, 90% of its time in the kernel",
    ),
)

SYSCALLS = (
    one(
        *("loader", "C", "loader.c", "syscalls", "read next_char load_table"),
        "reads a file byte by byte: 77% of its time in the kernel, all in read",
        "{folder}/table.data",
    ),
    one(
        *("hub", "C++", "hub.cpp", "syscalls", "epoll_ctl pass_message"),
        "adds and deletes a descriptor for each message: 84% of its time in the kernel",
    ),
    one(
        *("watch", "Go", "watch.go", "syscalls", "fstatat syscall.Stat changedAt"),
        "asks for the status of files without a pause: 73% of its time in the kernel",
        "{folder}",
    ),
    one(
        *("delivery", "Python", "delivery.py", "syscalls", "exchange_file rename unlink"),
        "makes, renames and deletes files: 79% of its time in the kernel, never blocked",
        "{folder}",
    ),
)

RUN_QUEUE = (
    one(
        *("render", "C", "render.c", "run_queue", "thread processor CPU render_row"),
        "sixteen busy threads: each waits for a processor 0.9 of the time on two processors",
    ),
    one(
        *("encoder", "C++", "encoder.cpp", "run_queue", "thread processor CPU affinity"),
        "six busy threads on one processor: each waits 0.84 of the time",
    ),
    one(
        *("tiles", "Java", "Tiles.java", "run_queue", "thread processor CPU draw pool"),
        "fourteen busy threads",
    ),
)

IMBALANCE = (
    one(
        *("solver", "C", "solver.c", "imbalance", "part-0 relax_rows barrier"),
        "one of four threads has 91% of the rows: the others run 0.02 of the time, in a barrier",
    ),
    one(
        *("shards", "Rust", "shards.rs", "imbalance", "shard-0 index_document"),
        "one of four workers gets 94% of the documents: the others run 0.02 of the time",
    ),
    one(
        *("totals", "Go", "totals.go", "imbalance", "addRegion"),
        "one of four threads has 90% of the numbers: the others run 0.04 of the time",
    ),
)

SPINNING = (
    one(
        *("tickets", "C", "tickets.c", "spinning", "take_list list_taken"),
        "a lock that is tried again without a pause: all samples in take_list",
    ),
    one(
        *("feed", "C++", "feed.cpp", "spinning", "await_item sched_yield"),
        "waits for a number by sched_yield: 0.92 of a processor, all of it there",
    ),
    one(
        *("gauge", "Rust", "gauge.rs", "spinning", "next_value"),
        "waits for a number by spin_loop: all samples in next_value",
    ),
    one(
        *("ticker", "Java", "Ticker.java", "spinning", "Ticker"),
        "waits for a number by Thread.onSpinWait",
    ),
)

ONE = (
    *CPU,
    *LOCK_WAIT,
    *IO_WAIT,
    *PEER_WAIT,
    *ALLOCATION,
    *PAGE_FAULTS,
    *SYSCALLS,
    *RUN_QUEUE,
    *IMBALANCE,
    *SPINNING,
)
