"""The texts that probes have read, for the numbers that stand for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft.model.values import Key

if TYPE_CHECKING:
    from weft import _native

__all__ = ["LONGEST", "Texts"]

LONGEST = 120
"""How many bytes of a text are kept."""
_APART = ('"', "(", "b'", 'b"')
"""How what stands for a text begins. A text that begins so is quoted, so that no two are alike."""
_DECODER = codecs.getincrementaldecoder("utf-8")


class Texts:
    """The texts of a target, as they are when the first of them is asked for.

    A number is in a map, or in a record, only after its text was kept: so texts are read later.
    """

    def __init__(self, target: _native.Target) -> None:
        self._target = target

    @cached_property
    def _found(self) -> dict[int, bytes]:
        return self._target.probe_texts()

    def row(self, columns: Sequence[bool], words: Sequence[int]) -> tuple[Key, ...]:
        """Return the words of a key or a record, with texts in those columns that have them."""
        return tuple(
            self._text(word) if has_text else word
            for has_text, word in zip(columns, words, strict=True)
        )

    def _text(self, number: int) -> str:
        if number == 0:
            return "(unreadable)"
        text = self._found.get(number)
        if text is None:
            return f"(a text for which there was no room: {number:#x})"
        is_cut = len(text) >= LONGEST
        try:
            # Its last character may be cut in two.
            shown = _DECODER().decode(text, final=not is_cut)
        except UnicodeDecodeError:
            shown = repr(text)
        else:
            if shown.startswith(_APART):
                # Where no text is read, what writes JSON is not needed.
                import json

                shown = json.dumps(shown, ensure_ascii=False)
        # One that is as long as can be is the beginning of one or more.
        return shown + ("…" if is_cut else "")
