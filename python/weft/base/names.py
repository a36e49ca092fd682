"""Names that people type: which ones they may mean, and what a program is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest

__all__ = ["closest", "did_you_mean", "may_be_name", "program_name"]

_COMPARED = 200
"""How many names are compared in full: that takes long, and a program may have 100,000."""
_LONGEST = 120
_CUTOFF = 0.6
"""How much of two names must be the same, from 0 to 1."""


def may_be_name(word: str) -> bool:
    """Whether a word may be the name of a process: no path, no option, and no number."""
    return bool(word) and not word[0].isdigit() and not word.startswith("-") and "/" not in word


def program_name(words: Sequence[str], program: str) -> str:
    """Return what a program was started as; ``program`` is the path of its file.

    Several commands may be links to one file, as redis-server is. Servers write other things over
    their first word, after a space or a colon.
    """
    started_as = words[0].split(" ")[0].rstrip(":") if words else ""
    # A login shell has a dash before its name.
    name = started_as.rstrip("/").rpartition("/")[2].removeprefix("-")
    return name or program.rpartition("/")[2] or program


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that are most like one, the best first; none if nothing is like it."""
    from difflib import get_close_matches

    wanted = name[:_LONGEST].casefold()
    pairs = {wanted[index : index + 2] for index in range(len(wanted) - 1)}
    letters = set(wanted)

    def likeness(candidate: str) -> int:
        other = candidate[:_LONGEST].casefold()
        shared = 2 * sum(pair in other for pair in pairs) + sum(one in other for one in letters)
        return shared - abs(len(other) - len(wanted))

    some = nlargest(_COMPARED, set(known), key=likeness)
    by_text: dict[str, str] = {}
    for one in sorted(some):
        by_text.setdefault(one[:_LONGEST].casefold(), one)
    return [by_text[text] for text in get_close_matches(wanted, by_text, count, _CUTOFF)]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question that names what is most like ``name``, or ``otherwise`` if nothing is."""
    close = closest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else otherwise
