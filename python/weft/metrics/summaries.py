"""The metrics that come with weft, each with its line of help: found without parsing anything."""

from __future__ import annotations

from pathlib import Path

__all__ = ["summaries"]


def summaries() -> dict[str, str]:
    """Return the first line of what each metric says of itself, by its name."""
    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "library").glob("*.mdl")):
        doc: list[str] = []
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("///"):
                doc.append(line[3:].strip())
                continue
            if line.startswith("metric "):
                found[line.split()[1]] = doc[0] if doc else ""
            doc = []
    return found
