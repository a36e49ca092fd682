"""The log of what was decided: who asked for what, when, and what came of it. JSON, by the line."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from weft.base.files import cannot_write

__all__ = ["Audit", "Outcome"]

Outcome: TypeAlias = Literal["allowed", "refused", "shed", "ended", "failed"]


class Audit:
    """Where decisions are noted: a file that only its owner can read, or standard error."""

    def __init__(self, host: str, file: Path | None) -> None:
        self._host = host
        self._file: TextIO = sys.stderr
        if file is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                self._file = os.fdopen(os.open(file, flags, 0o600), "a", encoding="utf-8")
            except OSError as error:
                raise cannot_write(str(file), error) from error

    def note(
        self,
        outcome: Outcome,
        who: str,
        what: str,
        *,
        request: str = "",
        where: str = "",
        pid: int | None = None,
        program: str = "",
        budget: float | None = None,
        why: str = "",
    ) -> str:
        """Note a decision, or return why that cannot be done: what is not noted is not to be."""
        line = {
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": self._host,
            "who": who,
            "what": what,
            "outcome": outcome,
            "request": request,
            "where": where,
            "pid": pid,
            "program": program,
            "budget": budget,
            "why": why,
        }
        text = json.dumps({key: one for key, one in line.items() if one not in ("", None)})
        try:
            print(text, file=self._file, flush=True)
        except OSError as error:
            why = f"the host cannot note its decisions: {error.strerror}"
            if self._file is not sys.stderr:
                with suppress(OSError):
                    print(f"{why}: {text}", file=sys.stderr, flush=True)
            return why
        return ""
