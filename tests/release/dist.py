"""What the files in ``dist/`` must be: their tags, their symbols, their contents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"

TAG = re.compile(r"^weft-(?P<version>[^-]+)-cp310-abi3-(?P<platforms>[\w.]+)\.whl$")
PLATFORM = re.compile(r"(?P<library>many|musl)linux_(\d+)_(\d+)_x86_64")
MUSL = {"libc.so"}
"""What musl calls its library. auditwheel knows it by the name that Alpine gives to the file, and
musl's loader takes either for itself."""
WITHIN = ("crates/", "python/")
"""Folders of which a source distribution has every file that is committed."""
SHIPPED = ("python/weft/", "python/weft_command/")
"""Folders of which a wheel has every file that is committed."""


def wheels() -> list[Path]:
    """The wheels that were built."""
    return sorted(DIST.glob("*.whl"))


def source() -> Path:
    """The source distribution."""
    (one,) = DIST.glob("*.tar.gz")
    return one


def committed(folders: tuple[str, ...]) -> set[str]:
    """The files that are committed in these folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return set(listed.stdout.decode().split("\0")) - {""}


def _run(*command: str) -> str:
    """What a tool of the same environment prints; an error if it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name(command[0])), *command[1:]],
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _versions(text: str) -> list[tuple[str, int, int]]:
    """The C libraries in names of platforms, each with its version."""
    return [(one["library"], int(one[2]), int(one[3])) for one in PLATFORM.finditer(text)]


def problems_of_wheel(wheel: Path) -> Iterator[str]:
    """What is wrong with a wheel, as sentences."""
    tag = TAG.match(wheel.name)
    if tag is None:
        yield "its name says something else than: one binary for every Python from 3.10 on"
        return
    # The linker script that glibc has as libc.so would be taken for musl's library.
    without = ["--ldpaths", "/nonexistent"] if "musllinux" in wheel.name else []
    shown = json.loads(_run("auditwheel", "show", "--json", *without, str(wheel)))
    needed, claimed = _versions(shown["sym_tag"]), _versions(tag["platforms"])
    if not needed or not claimed or needed[0][0] != claimed[0][0] or needed[0] > max(claimed):
        yield f"auditwheel takes it for {shown['sym_tag']}"
    if others := set(shown["external_libs"]) - MUSL:
        yield f"it needs other libraries: {sorted(others)}"
    _run("abi3audit", "--strict", "--assume-minimum-abi3", "3.10", str(wheel))

    info = f"weft-{tag['version']}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in committed(SHIPPED):
            if name.removeprefix("python/") not in names:
                yield f"{name} is missing"
        for name in (
            f"{info}/licenses/LICENSE",
            f"{info}/entry_points.txt",
            "weft/_native.abi3.so",
        ):
            if name not in names:
                yield f"{name} is missing"
        bills = [name for name in names if name.startswith(f"{info}/sboms/")]
        parts = {
            part["name"] for name in bills for part in json.loads(archive.read(name))["components"]
        }
        # One that a wheel cannot be without, and one that is in it by way of another crate.
        if not {"iced-x86", "zstd-sys"} <= parts:
            yield f"its bill of materials does not name its crates: {sorted(parts)}"


def problems_of_source(file: Path) -> Iterator[str]:
    """What is wrong with a source distribution, as sentences."""
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in committed((*WITHIN, "Cargo.toml", "Cargo.lock", "LICENSE", "pyproject.toml")):
        if name not in names:
            yield f"{name} is missing"


def check() -> int:
    """Check all that is there; return how many problems there are."""
    count = 0
    for file in [*wheels(), source()]:
        is_wheel = file.suffix == ".whl"
        problems = list(problems_of_wheel(file) if is_wheel else problems_of_source(file))
        print(f"{file.name}: {'; '.join(problems) or 'as it should be'}")
        count += len(problems)
    if not wheels():
        print("there is no wheel: make wheels")
        count += 1
    return count
