"""Checks what is in ``dist/``: ``python -m tests.release [PART...]``.

Parts are ``quick`` (names, symbols and contents of the files), ``debian``, ``ubuntu`` and ``musl``
(the wheels on a root file system that has Python and little else; as root) and ``sdist`` (a wheel
built from the sources in a new environment).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.release import dist, roots

NEEDED = ["click>=8.1", "lark>=1.2", "rich>=13", "textual>=1"]
ENTER = """
set -e
mount -t proc proc "$1/proc"
exec chroot "$1" /bin/env -i PATH=/v/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 sh -exc "$2"
"""
INSTALL = """
counted() {
    "$@" 2>&1 | tee /tmp/said
    grep -Eq '^calls .* [1-9][0-9,]* +calls' /tmp/said
}
cd /
python3 --version
python3 -m venv /v
/v/bin/python -m pip install --quiet --no-index --find-links /wheels weft
weft --version
weft doctor
"""
GLIBC = f"""{INSTALL}
counted weft run -m calls@/Code/libc.so.6/malloc -- ls /
counted weft run --weaver clone -m calls@/Code/libc.so.6/malloc -- ls /
weft cov -o /tmp/ls.cov -- ls /
"""
MUSL = f"""{INSTALL}
counted weft run -m calls@/Code/ld-musl-x86_64.so.1/malloc -- mallocs
counted weft run --weaver clone -m calls@/Code/ld-musl-x86_64.so.1/malloc -- mallocs
weft cov -o /tmp/mallocs.cov -- mallocs
counted weft run -m calls@/Code/ld-musl-x86_64.so.1/malloc -- python3 -c 'print(6 * 7)'
"""


def _on(archive: Path, commands: str) -> None:
    """Install a wheel on a root file system, and run commands there; mounts end with them."""
    with tempfile.TemporaryDirectory(prefix="weft-root-") as folder:
        root = Path(folder)
        subprocess.run(["tar", "xf", archive, "-C", root], check=True)
        wheels = root / "wheels"
        wheels.mkdir()
        for wheel in dist.wheels():
            shutil.copy(wheel, wheels)
        for version in ("3.10", "3.11"):
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels)),
                    *("--only-binary=:all:", "--platform=any", f"--python-version={version}"),
                    *NEEDED,
                ],
                check=True,
            )
        subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
                *("sh", "-c", ENTER, "sh", str(root), commands),
            ],
            check=True,
        )


def _from_source() -> None:
    """Build a wheel from the sources that are released, in an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="weft-sdist-") as folder:
        venv = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run(
            ["nice", *pip, "wheel", "--no-deps", "--wheel-dir", folder, str(dist.source())],
            check=True,
            cwd=folder,
            # What was compiled before is of the same versions.
            env={**os.environ, "CARGO_TARGET_DIR": str(dist.ROOT / "target")},
        )
        (wheel,) = Path(folder).glob("weft-*.whl")
        subprocess.run([*pip, "install", "--quiet", str(wheel)], check=True)
        subprocess.run([str(venv / "bin/weft"), "--version"], check=True)
        subprocess.run([str(venv / "bin/weft"), "run", "--", "ls", "/"], check=True)


def _quick() -> None:
    if count := dist.check():
        sys.exit(f"{count} problems")


PARTS = {
    "quick": _quick,
    "debian": lambda: _on(roots.debian(), GLIBC),
    "ubuntu": lambda: _on(roots.ubuntu(), GLIBC),
    "musl": lambda: _on(roots.musl(), MUSL),
    "sdist": _from_source,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all but ubuntu")
    chosen = parser.parse_args().part or [name for name in PARTS if name != "ubuntu"]
    for name in chosen:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            PARTS[name]()
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name} failed: exit code {error.returncode}")
        print(f"== {name}: passed in {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
