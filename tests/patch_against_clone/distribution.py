"""Programs as the distribution has them, each with work that is the same every time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patch_against_clone.model import Subject, Work
from tests.toolchain import PROGRAMS
from tests.zoo.inputs import statements, text, tree, words

SCRIPTS = Path(__file__).parent / "scripts"
ZOO = Path(__file__).parent.parent / "zoo" / "scripts"
PATIENCE = 120.0
GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "weft",
    "GIT_AUTHOR_EMAIL": "weft@example.org",
    "GIT_COMMITTER_NAME": "weft",
    "GIT_COMMITTER_EMAIL": "weft@example.org",
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z",
}
PLAIN_GIT = ("-c", "core.preloadIndex=false", "-c", "index.threads=1", "-c", "pack.threads=1")


def system(program: str) -> str:
    """Where the distribution has a program, whatever else is installed."""
    folders = ["/usr/bin", "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(program, path=os.pathsep.join(folders)) or program


def _native(folder: Path, *command: str | Path, **environment: str) -> None:
    """Do what has to be done before."""
    subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )


def _plain(command: str, *more: str, stdin: str = "") -> Callable[[Path], Work]:
    """A command, whose words are between spaces, that reads files of words."""

    def prepare(folder: Path) -> Work:
        text("text.txt", 400)(folder)
        text("other.txt", 400, seed=2)(folder)
        tree("tree", 30)(folder)
        statements("statements.sql", 300)(folder)
        for script in (*SCRIPTS.iterdir(), ZOO / "work.pl", ZOO / "work.bc", ZOO / "words.awk"):
            shutil.copy(script, folder)
        first, *rest = command.split()
        return Work((system(first), *rest, *more), stdin=stdin, environment={"PYTHONHASHSEED": "0"})

    return prepare


def _tool(
    name: str,
    command: str,
    *more: str,
    stdin: str = "",
    is_short: bool = False,
    varies_by_mappings: bool = False,
) -> Subject:
    program = system(command.split()[0])
    prepare = _plain(command, *more, stdin=stdin)
    return Subject(name, "tools", prepare, (program,), is_short, varies_by_mappings)


def _git(*arguments: str) -> Callable[[Path], Work]:
    def prepare(folder: Path) -> Work:
        tree("tree", 40)(folder)
        git = system("git")
        top = folder / "tree"
        _native(top, git, "init", "-q", "-b", "main", **GIT)
        for number in range(12):
            name = top / f"part{number % 7}" / f"more{number % 4}.txt"
            lines = words(300 + 20 * number, seed=number % 4)
            name.write_text("\n".join(lines) + f"\n{number}\n")
            _native(top, git, "add", "-A", **GIT)
            _native(top, git, "commit", "-q", "-m", f"change {number}", **GIT)
        _native(top, git, *PLAIN_GIT, "repack", "-a", "-d", "-q", **GIT)
        return Work((git, *PLAIN_GIT, "-C", "tree", *arguments), environment=GIT)

    return prepare


def _openssl(command: str) -> Callable[[Path], Work]:
    def prepare(folder: Path) -> Work:
        text("text.txt", 2000)(folder)
        openssl = system("openssl")
        _native(folder, openssl, "genrsa", "-out", "key.pem", "2048")
        for words_ in (
            "req -x509 -new -key key.pem -subj /CN=weft -days 3650 -out own.pem",
            "pkey -in key.pem -pubout -out public.pem",
            "dgst -sha256 -sign key.pem -out signature text.txt",
        ):
            _native(folder, openssl, *words_.split())
        return Work((openssl, *command.split()))

    return prepare


@contextmanager
def _connected(path: Path, pid: int) -> Iterator[socket.socket]:
    """A connection to a server that is about to listen on a socket of its folder."""
    deadline = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        while True:
            try:
                connection.connect(path.name)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"process {pid} does not listen") from None
                time.sleep(0.01)
        yield connection


REDIS = r"""
SET a 1|INCR a|APPEND a xyz|GET a|STRLEN a|SETRANGE a 2 hello|GETRANGE a 0 3|MSET b 2 c 3
MGET a b c
LPUSH list 1 2 3 4 5 6 7|RPUSH list x y z|LRANGE list 0 -1|LINSERT list BEFORE x w|LREM list 0 3
SORT list ALPHA|LTRIM list 1 4|RPOPLPUSH list other|SADD set a b c d|SADD more c d e
SINTER set more
SUNION set more|SDIFFSTORE left set more|SMEMBERS left|HSET hash f 1 g 2 h 3|HGETALL hash
HINCRBY hash f 5
ZADD z 1 a 2 b 3 c 2.5 d|ZRANGE z 0 -1 WITHSCORES|ZRANGEBYSCORE z 1 2.5|ZINCRBY z 9 a
ZUNIONSTORE zz 2 z z WEIGHTS 1 2|ZRANK zz c|PFADD pf a b c d e|PFCOUNT pf|SETBIT bits 77 1
BITCOUNT bits
BITOP NOT inverse bits|GEOADD g 13.361389 38.115556 P 15.087269 37.502669 C|GEODIST g P C km
XADD s 1-1 f v
XADD s 1-2 f w|XRANGE s - +|XLEN s|MULTI|INCR a1|INCR a1|EXEC
EVAL return_redis.call('incr','n')+1 0
OBJECT ENCODING z|DEBUG OBJECT a|DUMP z|RENAME z y|EXPIRE y 1000|PERSIST y|TYPE y|KEYS *
EXISTS a b nope
DEL a b c|UNLINK list|DBSIZE|ECHO hello|CONFIG GET maxmemory|COMMAND COUNT
TYPE nope
"""


def _ask_redis(folder: Path, pid: int, pause: float) -> None:
    commands = [one.split(" ") for one in REDIS.replace("\n", "|").split("|") if one]
    many = [["SET", f"key{n}", "v" * n] for n in range(200)]
    many += [["ZADD", "large", str(n * 7 % 97), f"m{n}"] for n in range(200)]
    many += [["HSET", "wide", f"f{n}", str(n)] for n in range(600)]
    with _connected(folder / "redis.sock", pid) as connection, connection.makefile("rb") as answers:
        time.sleep(pause)
        for number, command in enumerate([*commands, *many, *commands]):
            time.sleep(pause * (number == len(commands)))
            parts = [part.replace("_", " ").encode() for part in command]
            head = b"*%d\r\n" % len(parts)
            connection.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            _redis_answer(answers.readline, answers.read)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        answers.read()


def _redis_answer(line: Callable[[], bytes], read: Callable[[int], bytes]) -> None:
    first = line()
    if not first:
        raise EOFError("the server has ended")
    kind, number = first[:1], first[1:].strip()
    if kind == b"$" and int(number) >= 0:
        read(int(number) + 2)
    elif kind == b"*":
        for _ in range(max(0, int(number))):
            _redis_answer(line, read)


def _redis(_: Path) -> Work:
    command = f"{system('redis-server')} --port 0 --unixsocket redis.sock --daemonize no"
    command += " --appendonly no --hz 1 --dynamic-hz no --activerehashing no --io-threads 1"
    command += " --enable-debug-command yes --save"
    return Work((*command.split(), ""), client=_ask_redis)


NGINX = """
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr warn;
events { worker_connections 64; }
http {
  access_log access.log; default_type text/plain; gzip on; gzip_types text/plain;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  map $uri $kind { default other; ~part0 first; }
  server {
    listen unix:nginx.sock;
    root .;
    location / { index text.txt; add_header X-Kind $kind; }
    location /list/ { alias tree/; autoindex on; }
    location ~ ^/old/(.*)$ { rewrite ^/old/(.*)$ /$1 last; }
    location = /moved { return 301 /text.txt; }
    location = /forbidden { deny all; }
  }
}
"""


def _ask_nginx(folder: Path, pid: int, pause: float) -> None:
    paths = ["/text.txt", "/", "/list/", "/list/part0/", "/old/text.txt", "/moved", "/forbidden"]
    paths += ["/nothing", "/tree/part0/deep0/../deep0/", "/%74ext.txt?x=1", "/list/part1/deep1/"]
    headers = ["", "Range: bytes=10-99\r\n", "Accept-Encoding: gzip\r\n", "If-None-Match: *\r\n"]
    with _connected(folder / "nginx.sock", pid) as connection, connection.makefile("rb") as answers:
        for method in ("GET", "HEAD"):
            time.sleep(pause)
            for path in paths:
                for header in headers:
                    request = f"{method} {path} HTTP/1.1\r\nHost: weft\r\n{header}\r\n"
                    connection.sendall(request.encode())
                    _http_answer(answers.readline, answers.read, has_body=method == "GET")
        connection.sendall(b"GET /text.txt HTTP/1.1\r\nHost: weft\r\nConnection: close\r\n\r\n")
        answers.read()
    os.kill(pid, signal.SIGQUIT)


def _http_answer(
    line: Callable[[], bytes], read: Callable[[int], bytes], *, has_body: bool
) -> None:
    status = line()
    if not status:
        raise EOFError("the server has ended")
    length, is_chunked = 0, False
    while (header := line().strip().lower()) != b"":
        if header.startswith(b"content-length:"):
            length = int(header.split(b":")[1])
        is_chunked = is_chunked or header == b"transfer-encoding: chunked"
    if not has_body or b" 304 " in status:
        return
    read(length)
    while is_chunked and (size := int(line(), 16)) >= 0:
        read(size + 2)
        if size == 0:
            break


def _nginx(folder: Path) -> Work:
    text("text.txt", 300)(folder)
    tree("tree", 30)(folder)
    (folder / "nginx.conf").write_text(NGINX)
    (folder / "own.conf").write_text("")
    nginx = system("nginx")
    return Work((nginx, "-p", ".", "-c", "nginx.conf", "-e", "stderr"), client=_ask_nginx)


def _postgres(folder: Path) -> Work:
    initdb = [system("initdb"), "-D", "data", "-A", "trust", "-U", "weft", "--no-sync"]
    initdb += ["-E", "UTF8", "--locale=C"]
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        initdb = [*["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], *initdb]
    _native(folder, *initdb)
    shutil.copy(SCRIPTS / "work.sql", folder)
    command = f"{system('postgres')} --single -j -D data -c fsync=off -c jit=off -c autovacuum=off"
    command += " -c max_parallel_workers_per_gather=0 -c shared_memory_type=mmap"
    command += " -c track_counts=off -c track_activities=off"
    return Work((*command.split(), "postgres"), stdin="work.sql", is_unprivileged=True)


def _libc(folder: Path) -> Work:
    program = folder / "c_library"
    source = PROGRAMS / "c_library.c"
    subprocess.run(["gcc", "-O1", "-fno-builtin", source, "-lm", "-o", program], check=True)
    return Work(("./c_library",))


def _large(
    name: str, needs: str, prepare: Callable[[Path], Work], *, is_short: bool = False
) -> Subject:
    return Subject(name, name.split()[0], prepare, (system(needs),), is_short)


DISTRIBUTION = [
    _large("redis", "redis-server", _redis),
    _large("postgres", "postgres", _postgres),
    _large("nginx", "nginx", _nginx),
    _large("bash", "bash", _plain("bash builtins.bash"), is_short=True),
    _large("git log", "git", _git("log", "-p", "--stat", "-M")),
    _large("git fsck", "git", _git("fsck", "--full", "--no-progress")),
    _large("git blame", "git", _git("blame", "part1/more1.txt")),
    _large("git grep", "git", _git("grep", "--threads=1", "-n", "-E", "(ka|la)+ba", "HEAD")),
    _large("git status", "git", _git("status", "--porcelain", "--ignored")),
    _large("git rev-list", "git", _git("rev-list", "--objects", "--all")),
    _large("cpython", "python3", _plain("python3 -I -S -B alone.py")),
    _large("libc", "gcc", _libc),
    *(
        _large(f"openssl {command.split()[0]} {number}", "openssl", _openssl(command))
        for number, command in enumerate(
            (
                "dgst -sha256 -verify public.pem -signature signature text.txt",
                "dgst -sha3-256 -r text.txt text.txt",
                "enc -aes-256-cbc -pbkdf2 -pass pass:weft -S 0011223344556677 -a -in text.txt",
                "enc -chacha20 -K 00112233 -iv 4455 -in text.txt -out secret",
                "x509 -in own.pem -text -fingerprint",
                "verify -CAfile own.pem own.pem",
                "asn1parse -in own.pem",
                "prime -hex 10001f",
            )
        )
    ),
    _tool("sort", "sort --parallel=1 -k2,2 -k1,1r text.txt other.txt", is_short=True),
    _tool("grep", "grep -n -E (ka|la)+(ba|de)* text.txt"),
    _tool("sed", "sed -e s/k\\([ae]\\)/<\\1>/g;/ba/d;y/xyz/abc/ text.txt"),
    _tool("awk", "mawk -f words.awk text.txt"),
    _tool("tar", "tar --format=ustar --sort=name --mtime=@0 -cf out.tar tree text.txt"),
    _tool("gzip", "gzip -9 -n -k text.txt"),
    _tool("bzip2", "bzip2 -k text.txt"),
    _tool("xz", "xz -T1 -k text.txt"),
    _tool("zstd", "zstd --single-thread -q -k text.txt"),
    _tool("sqlite3", "sqlite3 base.db", stdin="statements.sql"),
    _tool("perl", "perl work.pl text.txt"),
    _tool("bc", "bc -lq work.bc"),
    # libsigsegv looks for the stack in /proc/self/maps.
    _tool("diff", "diff -u text.txt text.txt", varies_by_mappings=True),
    _tool("find", "find tree -name *.c -o -type l -printf %p\\n"),
    _tool("jq", "jq -n [range(200)|{a:.,b:(.*.|tostring)}]|group_by(.a%7)|map(length)"),
    _tool("make", "make -n -f work.mk"),
    _tool("objdump", "objdump -d /usr/bin/true"),
    _tool("readelf", "readelf -a -W /usr/bin/true"),
    _tool("gawk", "gawk -f words.awk text.txt", varies_by_mappings=True),
]
