"""Root file systems that have a Python, and nothing that weft was built with.

They are kept as archives in ``target/roots``: making one takes minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.release.dist import ROOT

KEPT = ROOT / "target" / "roots"
KEYS = Path("/usr/share/keyrings")
MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"
UBUNTU = "http://archive.ubuntu.com/ubuntu"

APT = """Types: deb-src
URIs: {mirror}
Suites: {suite}
Components: main
Signed-By: {keys}/debian-archive-keyring.gpg
"""
COMPILER = """#!/bin/sh
# musl-gcc claims the folders of Debian's own C library, and Python's configure believes it.
case $1 in
    -print-multiarch | --print-multiarch) echo x86_64-linux-musl ;;
    *) exec musl-gcc "$@" ;;
esac
"""
TARGET = """
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    for (int i = 0; i < 1000; i++) {
        char *volatile kept = malloc(i + 1);
        free(kept);
    }
    return puts("done") < 0;
}
"""


def _sh(*command: str | Path, cwd: Path | None = None, **environment: str) -> None:
    subprocess.run(
        ["nice", *map(str, command)], cwd=cwd, check=True, env={**os.environ, **environment}
    )


def debian() -> Path:
    """The least of Debian 12 with Python 3.11."""
    return _bootstrapped("debian", SUITE, MIRROR)


def ubuntu() -> Path:
    """The least of Ubuntu 22.04, which has the oldest Python that weft supports: 3.10."""
    keys = KEYS / "ubuntu-archive-keyring.gpg"
    option = f"signed-by={keys}" if keys.exists() else "trusted=yes"
    return _bootstrapped("ubuntu", "jammy", f"deb [{option}] {UBUNTU} jammy main universe")


def _bootstrapped(name: str, suite: str, source: str) -> Path:
    kept = KEPT / f"{name}.tar"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        draft = KEPT / f"{name}.part.tar"
        _sh(
            *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv"),
            *(suite, draft, source),
        )
        draft.rename(kept)
    return kept


def musl() -> Path:
    """A system of musl, as Alpine is one: musl's library, a static busybox, Python, one program.

    Debian has no Python for musl, so its sources are compiled with musl's compiler.
    """
    kept = KEPT / "musl.tar"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="weft-musl-") as folder:
            root = _musl_python(Path(folder))
            _furnish_musl(Path(folder), root)
            _sh("tar", "cf", KEPT / "musl.part.tar", "-C", root, ".")
        (KEPT / "musl.part.tar").rename(kept)
    return kept


def _compiler(work: Path) -> Path:
    compiler = work / "musl-cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    return compiler


def _musl_python(work: Path) -> Path:
    """Compile Python; return the folder that it is installed in, as a root."""
    compiler = _compiler(work)
    apt = _apt(work)
    _sh("apt-get", *apt, "-qq", "source", "--download-only", "python3.11", "zlib", cwd=work)
    for file in work.glob("*.orig.tar.*"):
        _sh("tar", "xf", file, cwd=work)
    (python,), (zlib,) = work.glob("Python-*/"), work.glob("zlib-*/")

    built = work / "built"
    _sh(
        *("./configure", "--static", f"--prefix={built}"),
        cwd=zlib,
        CC=str(compiler),
        CFLAGS="-O1 -fPIC",
    )
    _sh("make", "--silent", "install", cwd=zlib)
    flags = {"CFLAGS": f"-O1 -I{built}/include", "LDFLAGS": f"-L{built}/lib"}
    _sh(
        *("./configure", "--quiet", "--prefix=/usr", "--without-ensurepip"),
        *("--disable-test-modules", "PKG_CONFIG=false"),
        cwd=python,
        CC=str(compiler),
        **flags,
    )
    root = work / "root"
    _sh("make", "--silent", f"-j{len(os.sched_getaffinity(0))}", cwd=python)
    _sh("make", "--silent", "install", f"DESTDIR={root}", cwd=python)
    return root


def _furnish_musl(work: Path, root: Path) -> None:
    """Add what else a system needs: a C library, a shell, devices; and a program to measure."""
    for name in ("bin", "dev", "lib", "proc", "root", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    _sh(
        *("apt-get", "-qq", "-o", "APT::Sandbox::User=root"),
        *("download", "busybox-static", "musl"),
        cwd=work,
    )
    unpacked = work / "unpacked"
    for file in work.glob("*.deb"):
        _sh("dpkg-deb", "--extract", file, unpacked)
    (library,) = unpacked.glob("**/x86_64-linux-musl/libc.so")
    (busybox,) = unpacked.glob("**/bin/busybox")
    shutil.copy(library, root / "lib/ld-musl-x86_64.so.1")
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("env", "grep", "ls", "sh", "tee"):
        (root / "bin" / name).symlink_to("busybox")
    (work / "target.c").write_text(TARGET)
    _sh(_compiler(work), "-O1", "-o", root / "bin/mallocs", work / "target.c")
    _sh("mknod", "-m", "666", root / "dev/null", "c", "1", "3")
    _sh("mknod", "-m", "666", root / "dev/urandom", "c", "1", "9")


def _apt(work: Path) -> list[str]:
    """The options by which apt knows Debian's sources, whatever this machine's list has."""
    lists, parts = work / "lists", work / "sources"
    (lists / "partial").mkdir(parents=True)
    parts.mkdir()
    (parts / "sources.sources").write_text(APT.format(mirror=MIRROR, suite=SUITE, keys=KEYS))
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": str(parts),
        "Dir::State::lists": str(lists),
        "APT::Sandbox::User": "root",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _sh("apt-get", *flags, "-qq", "update", cwd=work)
    return flags
