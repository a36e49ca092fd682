"""The table of docs/reference/compatibility.md, made by a run of the zoo."""

from __future__ import annotations

import math
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.zoo.model import Exhibit
from tests.zoo.running import Verdict, search_path

HEAD = """# Compatibility of the clone engine

Made by `make zoo`: every program below does its work twice, natively and from the code cache
(`weft run --weaver clone`), in fresh folders of the same name. It is the same if the exit codes,
the output, standard error where a program prints the same there each time, and all files that it
made are the same, byte for byte. The ratio is the time cloned over the time native, with the
start-up of both; it is no benchmark, for these programs run for a second or less.
"""


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the whole page."""
    lines = [HEAD, f"{machine()} {summary(verdicts)}", ""]
    lines += ["| program | version | what it did | same | ratio |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        exhibit = verdict.exhibit
        number = f"{verdict.cloned / verdict.native:.1f}" if verdict.cloned else ""
        same = {"same": "yes", "differs": "**no**", "broken": "not run", "missing": "missing"}
        version = "" if verdict.missing else version_of(exhibit)
        cells = [exhibit.name, version, exhibit.does, same[verdict.word], number]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    failed = [verdict for verdict in verdicts if not verdict.same]
    if failed:
        lines += ["", "## What is not the same, and why", ""]
    for verdict in failed:
        known = f" {verdict.exhibit.known}" if verdict.exhibit.known else ""
        lines.append(f"- **{verdict.exhibit.name}**: {_escaped(verdict.why)}.{known}")
    return "\n".join(lines) + "\n"


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return in a sentence what came of all."""
    counted = dict.fromkeys(("same", "differs", "broken", "missing"), 0)
    for verdict in verdicts:
        counted[verdict.word] += 1
    ran = counted["same"] + counted["differs"]
    parts = [f"{counted['same']} of {ran} programs that ran are the same"]
    if counted["broken"]:
        parts.append(f"{counted['broken']} do not work natively")
    if counted["missing"]:
        parts.append(f"{counted['missing']} not installed")
    ratios = [v.cloned / v.native for v in verdicts if v.same and v.native and v.cloned]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        parts.append(f"the geometric mean of the ratios is {mean:.2f}")
    return "; ".join(parts) + "."


def machine() -> str:
    """Return what the programs ran on."""
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = model[1] if model else "an unknown processor"
    return f"On {release}, Linux {platform.release()}, {processor}."


def version_of(exhibit: Exhibit) -> str:
    """Return what the program says, or the version of the first package that is installed."""
    if exhibit.version:
        return _first_line(shlex.split(exhibit.version))
    queries = (["dpkg-query", "-W", "-f", "${Version}", name] for name in exhibit.packages.split())
    return next(filter(None, map(_first_line, queries)), "")


def _first_line(command: list[str]) -> str:
    environment = {"PATH": search_path(), "LC_ALL": "C.UTF-8", "HOME": str(Path.home())}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")
