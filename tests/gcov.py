"""How often every line of a program is executed, told by gcov."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.harness import need


def compiler(source: Path) -> str:
    """The compiler for a source file."""
    return "g++" if source.suffix in (".cpp", ".cc") else "gcc"


def lines(
    source: Path, options: Sequence[str] = ("-O0",), arguments: Sequence[str] = ()
) -> dict[int, int]:
    """Build a program with ``--coverage``, run it to its end: how often each line was executed."""
    need("gcov", compiler(source))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program"
        command = [compiler(source), "-g", "--coverage", *options, str(source), "-o", str(program)]
        subprocess.run(command, cwd=folder, check=True)
        run = [str(program), *arguments]
        null = subprocess.DEVNULL
        subprocess.run(run, cwd=folder, check=False, stdin=null, stdout=null)
        return parse(folder, source)


def parse(folder: Path, source: Path) -> dict[int, int]:
    """Read what a program that was built and run in a folder has left there."""
    [notes] = folder.glob("*.gcno")
    command = ["gcov", "--stdout", "--json-format", str(notes)]
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found: Counter[int] = Counter()
    for document in told.stdout.splitlines():
        for file in json.loads(document)["files"]:
            if Path(file["file"]).name == source.name:
                # A line of a template is there once for each of its instances.
                for line in file["lines"]:
                    found[line["line_number"]] += line["count"]
    return dict(found)
