"""An HTML page with a flame graph that is as wide as the window, with letters of one size."""

from __future__ import annotations

from html import escape
from typing import BinaryIO

from weft.base.numbers import printable, readable
from weft.export.stacks import flame
from weft.model.weighed import WeighedStacks

_FIT = """
  const picture = document.querySelector('svg'), whole = picture.viewBox.baseVal;
  const background = picture.querySelector('.bg'), height = whole.height, wide = whole.width;
  const places = boxes.map(function (box) { return [(box.x - left) / width, box.w / width]; });
  const drawZoomed = draw;
  let shown = null;
  draw = function (zoomed) { shown = zoomed; drawZoomed(zoomed); };

  // The boxes are laid out anew: a picture that is scaled has letters that are too large or small.
  function fit() {
    const room = Math.max(400, document.documentElement.clientWidth);
    picture.setAttribute('viewBox', '0 0 ' + room + ' ' + height);
    picture.setAttribute('width', room);
    picture.setAttribute('height', height);
    background.setAttribute('width', room);
    document.getElementById('search').setAttribute('x', room - 130);
    document.getElementById('whole').setAttribute('x', room - 70);
    width = room - 2 * left;
    boxes.forEach(function (box, number) {
      box.x = left + places[number][0] * width;
      box.w = places[number][1] * width;
    });
    draw(shown);
  }
  window.addEventListener('resize', fit);
  fit();
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: #ffffff; }}
svg {{ display: block; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #17171c; }} }}
</style>
</head>
<body>
{picture}</body>
</html>
"""


def write(file: BinaryIO, stacks: WeighedStacks) -> None:
    """Write the page: one file, which needs nothing from elsewhere."""
    title = escape(readable(printable(f"{stacks.title}: {stacks.about}")))
    file.write(_PAGE.format(title=title, picture=flame.element(stacks, _FIT)).encode())
