"""An SVG flame graph: one file that any browser shows, with search and zoom.

Each box is a function, above the one that called it, as wide as what its stacks weigh.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import wrap
from typing import BinaryIO
from xml.sax.saxutils import escape, quoteattr

from weft.base.numbers import percent, printable, readable
from weft.model.weighed import WeighedFunction, WeighedStacks

_WIDTH = 1200
_MARGIN = 10
_ROW = 18
_HEAD = 58
_FOOT = 26
_LINE = 16
_NARROWEST = 0.4
"""How wide a box must be to be drawn, in units of which the picture has 1200."""
_LETTER = 6.8
_NOTE = 160
"""How many letters of a note fit."""
_HUES = 12

_STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1c1c22; }
.bg { fill: #ffffff; }
.title { font-size: 16px; font-weight: bold; }
.note, .button { fill: #5a5a66; }
.button { cursor: pointer; text-decoration: underline; }
.f { cursor: pointer; }
.f rect { stroke: #ffffff; stroke-width: 0.6; }
.f text { pointer-events: none; }
.f:hover rect { stroke: #1c1c22; }
.o1 { fill-opacity: 0.82; }
.o2 { fill-opacity: 0.66; }
.f.above { opacity: 0.55; }
.f.match rect { fill: #d63fd6; }
%(light)s
@media (prefers-color-scheme: dark) {
text { fill: #ececf1; }
.bg { fill: #17171c; }
.note, .button { fill: #a3a3b0; }
.f rect { stroke: #17171c; }
.f:hover rect { stroke: #ececf1; }
.f.match rect { fill: #a01fa0; }
%(dark)s
}
"""

_SCRIPT = """
(function () {
  %(kept)s left = %(left)d, width = %(width)d, letter = %(letter)s;
  const boxes = Array.from(document.querySelectorAll('g.f')).map(function (g) {
    const rect = g.querySelector('rect');
    return {
      g: g, rect: rect, text: g.querySelector('text'), name: g.dataset.name,
      x: +rect.getAttribute('x'), w: +rect.getAttribute('width'), y: +rect.getAttribute('y')
    };
  });
  const found = document.getElementById('found');

  function draw(zoomed) {
    const from = zoomed ? zoomed.x : left, over = zoomed ? zoomed.w : width;
    for (const box of boxes) {
      const isAbove = zoomed && box.y > zoomed.y &&
        box.x <= from + 0.01 && box.x + box.w >= from + over - 0.01;
      const start = isAbove ? left : left + (box.x - from) / over * width;
      const wide = isAbove ? width : box.w / over * width;
      const isIn = start > left - 0.01 && start + wide < left + width + 0.01;
      box.g.style.display = isIn && wide >= 0.3 ? '' : 'none';
      box.g.classList.toggle('above', !!isAbove);
      box.rect.setAttribute('x', start);
      box.rect.setAttribute('width', wide);
      box.text.setAttribute('x', start + 3);
      const letters = Math.floor((wide - 6) / letter);
      box.text.textContent = letters < 3 ? '' :
        box.name.length <= letters ? box.name : box.name.slice(0, letters - 1) + '\\u2026';
    }
  }

  function search() {
    const wanted = prompt('Functions whose name contains (a regular expression):');
    if (wanted === null) { return; }
    let pattern;
    try { pattern = new RegExp(wanted); }
    catch (error) { found.textContent = error.message; return; }
    const matches = boxes.filter(function (box) {
      const is = wanted !== '' && pattern.test(box.name);
      box.g.classList.toggle('match', is);
      return is;
    });
    // What is above another match is counted with it.
    matches.sort(function (a, b) { return a.x - b.x || b.w - a.w; });
    let sum = 0, end = left;
    for (const box of matches) {
      if (box.x + box.w > end + 0.01) { sum += box.x + box.w - Math.max(end, box.x); }
      end = Math.max(end, box.x + box.w);
    }
    found.textContent = wanted === '' ? '' : (100 * sum / width).toFixed(1) + '%% match ' + wanted;
  }

  for (const box of boxes) { box.g.addEventListener('click', function () { draw(box); }); }
  document.getElementById('whole').addEventListener('click', function () { draw(null); });
  document.getElementById('search').addEventListener('click', search);
  document.addEventListener('keydown', function (event) {
    if (event.key === 'f' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); search(); }
    if (event.key === 'Escape') { draw(null); }
  });
%(fit)s})();
"""


@dataclass
class _Box:
    """A function in a place of the call tree."""

    function: WeighedFunction
    weight: int = 0
    callees: dict[WeighedFunction, _Box] = field(default_factory=dict)


def write(file: BinaryIO, stacks: WeighedStacks) -> None:
    """Write the picture."""
    file.write(svg(stacks).encode())


def svg(stacks: WeighedStacks) -> str:
    """Return the picture."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element(stacks)}'


def element(stacks: WeighedStacks, fit: str = "") -> str:
    """Return the picture for a page, whose script ends with ``fit``: code that changes its size."""
    stacks = stacks.positive()
    root = _tree(stacks)
    boxes = list(_drawn(root))
    rows = 1 + max((depth for _, depth, _, _ in boxes), default=0)
    notes = [
        line for note in stacks.notes for line in wrap(readable(printable(note)), _NOTE) or [""]
    ]
    height = _HEAD + _LINE * len(notes) + rows * _ROW + _FOOT
    name = readable(printable(stacks.title))
    about, summary = readable(printable(stacks.about)), readable(printable(stacks.summary))
    script = _SCRIPT % {
        "left": _MARGIN,
        "width": _WIDTH - 2 * _MARGIN,
        "letter": _LETTER,
        "fit": fit,
        # Only a picture that fits itself to a window changes its width.
        "kept": "let" if fit else "const",
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%">\n',
        f"<title>{escape(name)}: {escape(about)}</title>\n",
        f"<style>{_STYLE % {'light': _palette(78), 'dark': _palette(34)}}</style>\n",
        f'<rect class="bg" width="{_WIDTH}" height="{height}"/>\n',
        f'<text class="title" x="{_MARGIN}" y="24">{escape(_cut(name, 90))}</text>\n',
        f'<text class="note" x="{_MARGIN}" y="44">{escape(summary)}</text>\n',
    ]
    for number, note in enumerate(notes, 1):
        top = 44 + number * _LINE
        parts.append(f'<text class="note" x="{_MARGIN}" y="{top}">{escape(note)}</text>\n')
    parts += [
        f'<text class="button" id="search" x="{_WIDTH - 130}" y="24">search</text>\n',
        f'<text class="button" id="whole" x="{_WIDTH - 70}" y="24">reset</text>\n',
        f'<text class="note" id="found" x="{_MARGIN}" y="{height - 8}"></text>\n',
    ]
    for box, depth, start, wide in boxes:
        top = height - _FOOT - (depth + 1) * _ROW
        parts.append(_group(stacks, box, root.weight, (start, top, wide)))
    parts.append(f"<script><![CDATA[{script}]]></script>\n</svg>\n")
    return "".join(parts)


def _tree(stacks: WeighedStacks) -> _Box:
    root = _Box(WeighedFunction(""))
    for stack in stacks.stacks:
        box = root
        box.weight += stack.weight
        for frame in stack.frames:
            if (inner := box.callees.get(frame.function)) is None:
                inner = box.callees[frame.function] = _Box(frame.function)
            box = inner
            box.weight += stack.weight
    return root


def _drawn(root: _Box) -> Iterator[tuple[_Box, int, float, float]]:
    """The boxes that are wide enough: each with its depth, where it starts and its width."""
    scale = (_WIDTH - 2 * _MARGIN) / max(1, root.weight)
    waiting: list[tuple[_Box, int, float]] = []

    def wait(box: _Box, depth: int, start: float) -> None:
        callees = box.callees.values()
        for callee in sorted(callees, key=lambda one: (-one.weight, one.function.name)):
            waiting.append((callee, depth, start))
            start += callee.weight * scale

    wait(root, 0, _MARGIN)
    while waiting:
        box, depth, start = waiting.pop()
        if box.weight * scale >= _NARROWEST:
            yield box, depth, start, box.weight * scale
            wait(box, depth + 1, start)


def _group(stacks: WeighedStacks, box: _Box, total: int, place: tuple[float, float, float]) -> str:
    start, top, wide = place
    name = readable(printable(box.function.name))
    module = box.function.module
    where = "" if module is None else readable(printable(module.name))
    share = percent(box.weight / total)
    title = f"{name}\n{where}\n{stacks.all_digits(box.weight)}, {share}"
    hue = f"h{zlib.crc32(where.encode()) % _HUES} o{zlib.crc32(name.encode()) % 3}"
    if not where:
        hue = "h"
    return (
        f'<g class="f" data-name={quoteattr(name)}><title>{escape(title)}</title>'
        f'<rect class="{hue}" x="{start:.2f}" y="{top}" width="{wide:.2f}" height="{_ROW}"/>'
        f'<text x="{start + 3:.2f}" y="{top + 13}">'
        f"{escape(_cut(name, int((wide - 6) / _LETTER)))}</text></g>\n"
    )


def _cut(name: str, letters: int) -> str:
    if letters < 3:
        return ""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _palette(lightness: int) -> str:
    """The colours: one for each group of modules, and grey for what is no function."""
    colours = [f".h {{ fill: hsl(240, 5%, {lightness}%); }}"]
    for number in range(_HUES):
        hue = round(number * 360 / _HUES) + 20
        colours.append(f".h{number} {{ fill: hsl({hue}, 60%, {lightness}%); }}")
    return "\n".join(colours)
