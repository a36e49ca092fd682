"""The texts that probes have read, for the numbers that stand for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft.control.stack_keys import TakenStacks
from weft.model.values import Key

if TYPE_CHECKING:
    from weft import _native

__all__ = ["LONGEST", "Texts", "kinds"]

LONGEST = 120
"""How many bytes of a text are kept."""
_APART = ('"', "(", "b'", 'b"')
"""How what stands for a text begins. A text that begins so is quoted, so that no two are alike."""
_DECODER = codecs.getincrementaldecoder("utf-8")


def kinds(target: _native.Target, number: int, name: str) -> list[str]:
    """What the keys of a map, or the fields of a ring, are: `str`, `stack`, or nothing."""
    texts = target.probe_text_columns(number, name)
    stacks = target.probe_stack_columns(number, name)
    return [
        "stack" if is_stack else "str" if is_text else ""
        for is_text, is_stack in zip(texts, stacks, strict=True)
    ]


class Texts:
    """The texts and stacks of a target, as they are when the first of them is asked for.

    A number is in a map, or in a record, only after its text was kept: so texts are read later.
    """

    def __init__(self, target: _native.Target, stacks: TakenStacks) -> None:
        self._target = target
        self._taken = stacks

    @cached_property
    def _found(self) -> dict[int, bytes]:
        return self._target.probe_texts()

    @cached_property
    def _stacks(self) -> dict[int, tuple[list[int], bool]]:
        return self._taken.read(self._target)

    def row(self, columns: Sequence[str], words: Sequence[int]) -> tuple[Key, ...]:
        """Return the words of a key or a record, with texts and stacks where columns have them."""
        return tuple(self._key(kind, word) for kind, word in zip(columns, words, strict=True))

    def _key(self, kind: str, word: int) -> Key:
        if kind == "stack":
            return self._taken.stack(word, self._stacks)
        return self._text(word) if kind == "str" else word

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
