"""Who waits for whom, as a page: a timeline of the threads, and the locks between them.

The file needs nothing else: no font, no network. It is light or dark as the reader is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import BinaryIO

from weft.base.numbers import harmless, percent, quantity
from weft.export.sampled.kinds import note
from weft.export.waits.classes import CLASSES, class_of, doing, stretches
from weft.export.waits.text import convoy
from weft.model.contention import HeldTime, LockTime, contention
from weft.model.sampled import PlaceTime, SampledTime

__all__ = ["write"]

_MOST = 300_000
"""How many stretches a page has: a browser would be slow with more."""
_FRAMES = 12
"""How many calls of a place are shown."""
_EDGES = 12
"""How many waits the picture of a lock has."""
_ROW, _LEFT, _RIGHT, _WIDE = 34, 420, 780, 1260

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #6a737d; --rule: #d8dee4;
  --running: #2f9e56; --lock: #d9480f; --input: #3b74c9; --sleep: #dfe3e8; --box: #f2f4f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3ea; --paper: #14181d; --faint: #8b949e;
  --rule: #2d333b; --running: #37b866; --lock: #f0722f; --input: #5b93ea; --sleep: #2a3038;
  --box: #1d232a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 1.5rem auto; max-width: 84rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem }
p { margin: .3rem 0 } .faint { color: var(--faint) } .convoy { font-weight: 600 }
.legend span { margin-right: 1.2rem }
.legend i { display: inline-block; width: .9rem; height: .9rem; border-radius: 2px;
  vertical-align: -2px; margin-right: .35rem }
canvas { display: block; width: 100%; cursor: grab; border: 1px solid var(--rule) }
#tip { position: fixed; display: none; pointer-events: none; background: var(--paper);
  border: 1px solid var(--rule); border-radius: 4px; padding: .4rem .6rem; max-width: 40rem;
  font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  box-shadow: 0 2px 8px #0003; z-index: 1 }
svg text { font: 13px ui-monospace, monospace; fill: var(--ink) }
svg .faint { fill: var(--faint) } svg rect { fill: var(--box); stroke: var(--rule) }
svg path { fill: none; stroke: var(--lock); opacity: .45 } svg { width: 100%; height: auto }
"""

_SCRIPT = """
(function () {
  const data = JSON.parse(document.getElementById('data').textContent);
  const canvas = document.getElementById('timeline'), tip = document.getElementById('tip');
  const context = canvas.getContext('2d'), lane = 22, gutter = 190, head = 24;
  const whole = data.seconds, threads = data.threads, places = data.places;
  let from = 0, to = whole, colours = {};

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    ['ink', 'paper', 'faint', 'rule'].concat(data.classes).forEach(function (name) {
      colours[name] = style.getPropertyValue('--' + name).trim();
    });
  }
  function width() { return canvas.clientWidth - gutter; }
  function at(time) { return gutter + (time - from) / (to - from) * width(); }
  function step() {
    const least = (to - from) / Math.max(width() / 90, 1);
    let size = Math.pow(10, Math.floor(Math.log10(least)));
    while (size < least) size *= size * 2 >= least ? 2 : size * 5 >= least ? 5 : 10;
    return size;
  }
  function shown(time) {
    return time >= 1 || time === 0 ? +time.toFixed(3) + ' s' : +(time * 1000).toFixed(3) + ' ms';
  }
  // The first stretch of a thread that ends behind a time.
  function first(rows, time) {
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle][1] <= time) low = middle + 1; else high = middle;
    }
    return low;
  }
  function draw() {
    const scale = window.devicePixelRatio || 1, height = head + threads.length * lane;
    canvas.style.height = height + 'px';
    canvas.width = canvas.clientWidth * scale;
    canvas.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, canvas.clientWidth, height);
    context.font = '12px ui-monospace, monospace';
    context.textBaseline = 'middle';
    context.fillStyle = colours.faint;
    context.strokeStyle = colours.rule;
    const size = step();
    for (let time = Math.ceil(from / size) * size; time < to; time += size) {
      context.beginPath();
      context.moveTo(at(time), head - 6);
      context.lineTo(at(time), height);
      context.stroke();
      context.fillText(shown(time), at(time) + 3, head / 2);
    }
    threads.forEach(function (thread, number) {
      const top = head + number * lane, rows = thread.rows;
      for (let i = first(rows, from); i < rows.length && rows[i][0] < to; i++) {
        const left = Math.max(at(rows[i][0]), gutter);
        const right = Math.min(at(rows[i][1]), canvas.clientWidth);
        context.fillStyle = colours[data.classes[places[rows[i][2]].class]];
        context.fillRect(left, top + 3, Math.max(right - left, 0.7), lane - 6);
      }
      context.fillStyle = colours.paper;
      context.fillRect(0, top, gutter - 4, lane);
      context.fillStyle = colours.ink;
      context.fillText((thread.name + ' ' + thread.tid).slice(0, 26), 4, top + lane / 2);
    });
  }
  function limit() {
    const length = Math.min(to - from, whole);
    from = Math.min(Math.max(from, 0), whole - length);
    to = from + length;
  }
  canvas.addEventListener('wheel', function (event) {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) &&
        event.offsetX < gutter) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX / width() * (to - from);
      from += by; to += by;
    } else {
      const time = from + (event.offsetX - gutter) / width() * (to - from);
      const factor = Math.exp(event.deltaY * 0.002);
      const length = Math.min(Math.max((to - from) * factor, 1e-5), whole);
      from = time - (time - from) * length / (to - from);
      to = from + length;
    }
    limit(); draw();
  }, { passive: false });
  let grabbed = null;
  canvas.addEventListener('mousedown', function (event) { grabbed = [event.clientX, from, to]; });
  window.addEventListener('mouseup', function () { grabbed = null; });
  window.addEventListener('mousemove', function (event) {
    if (grabbed !== null) {
      const by = (event.clientX - grabbed[0]) / width() * (grabbed[2] - grabbed[1]);
      from = grabbed[1] - by; to = grabbed[2] - by;
      limit(); draw();
    }
  });
  canvas.addEventListener('dblclick', function () { from = 0; to = whole; draw(); });
  canvas.addEventListener('mouseleave', function () { tip.style.display = 'none'; });
  canvas.addEventListener('mousemove', function (event) {
    const number = Math.floor((event.offsetY - head) / lane), thread = threads[number];
    const time = from + (event.offsetX - gutter) / width() * (to - from);
    tip.style.display = 'none';
    if (!thread || event.offsetX < gutter) return;
    const row = thread.rows[first(thread.rows, time)];
    if (!row || row[0] > time) return;
    const place = places[row[2]];
    tip.textContent = thread.name + ' (' + thread.tid + ') ' + place.doing + '\\n' +
      shown(row[1] - row[0]) + ' from ' + shown(row[0]) + '\\n' + place.frames.join('\\n');
    tip.style.display = 'block';
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + 'px';
  });
  window.addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', function () {
    readColours(); draw();
  });
  readColours();
  draw();
})();
"""


def write(file: BinaryIO, found: SampledTime, title: str) -> None:
    """Write the page."""
    heading = f"{harmless(title)} ({found.pid}): who waits for whom"
    data, is_cut = _data(found)
    who_waits = contention(found)
    notes = [f"~ is an estimate: {note(found)}", *who_waits.notes, *found.notes]
    if is_cut:
        notes.append(f"the timeline ends early: it has the first {_MOST:,} stretches only")
    legend = "".join(
        f'<span><i style="background:var(--{name})"></i>{escape(text)}</span>'
        for name, text in CLASSES.items()
    )
    shown = "".join(map(_lock, who_waits.locks)) or "<p>No thread was found to wait for a lock.</p>"
    still = f"threads stood still for {quantity(found.stood_still, 's')} in all"
    # A script ends, or begins another, wherever a tag says so: also in a text.
    script_data = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(heading)}</title><style>{_STYLE}</style>
<h1>{escape(heading)}</h1>
<p class="faint">Watched for {quantity(found.seconds, "s")}: {found.looks:,} looks, {still}.</p>
<h2>Threads</h2>
<p class="legend">{legend}</p>
<p class="faint">Each look stands for the time until the next.
The wheel zooms, dragging moves, a double click shows all.</p>
<canvas id="timeline"></canvas><div id="tip"></div>
<h2>Locks</h2>
{shown}
{"".join(f'<p class="faint">{escape(harmless(one))}</p>' for one in notes)}
<script type="application/json" id="data">{script_data}</script>
<script>{_SCRIPT}</script>
</html>
"""
    file.write(page.encode(errors="replace"))


def _data(found: SampledTime) -> tuple[dict[str, object], bool]:
    """What the script draws; and whether there was more."""
    classes = list(CLASSES)
    start = found.moments[0] if found.moments else 0
    numbers: dict[int, int] = {}
    places: list[dict[str, object]] = []
    rows: dict[int, list[tuple[float, float, int]]] = {one.tid: [] for one in found.threads}
    end = 0
    for count, one in enumerate(stretches(found)):
        if count == _MOST:
            break
        if id(one.place) not in numbers:
            numbers[id(one.place)] = len(places)
            places.append(
                {
                    "class": classes.index(class_of(one.place)),
                    "doing": harmless(doing(one.place)),
                    "frames": _frames(one.place),
                }
            )
        row = _seconds(one.begin - start), _seconds(one.end - start), numbers[id(one.place)]
        rows.setdefault(one.tid, []).append(row)
        end = max(end, one.end)
    else:
        count = -1
    threads = [
        {"tid": one.tid, "name": harmless(one.name), "rows": sorted(rows[one.tid])}
        for one in found.threads
    ]
    seconds = _seconds(end - start) if end else found.seconds
    data = {"seconds": seconds, "classes": classes, "places": places, "threads": threads}
    return data, count == _MOST


def _seconds(nanoseconds: int) -> float:
    """To the microsecond: a look takes longer."""
    return round(nanoseconds / 1e9, 6)


def _frames(place: PlaceTime) -> list[str]:
    shown = [harmless(str(frame)) for frame in place.frames[:_FRAMES]]
    if len(place.frames) > _FRAMES:
        shown.append(f"and {len(place.frames) - _FRAMES} more")
    if place.cut is not None:
        shown.append(f"there may be more: {place.cut}")
    return shown


# --- Locks ------------------------------------------------------------------------------------


def _lock(one: LockTime) -> str:
    """A lock: who waits on the left, who holds it on the right."""
    facts = (
        f"~{quantity(one.seconds, 's')} of waiting by {len(one.waiters)} threads; wanted at "
        f"{percent(one.wanted)} of the looks, by {one.queue:.1f} at once, {one.longest} at most"
    )
    text = f'<p class="convoy">{escape(harmless(convoy(one)))}</p>' if one.is_convoy else ""
    return (
        f"<h3>{escape(harmless(str(one.lock)))}</h3><p>{escape(facts)}</p>{text}"
        f"{_picture(one.held[:_EDGES], one.seconds)}"
    )


def _picture(held: Sequence[HeldTime], total: float) -> str:
    waiters = list(dict.fromkeys(one.waiter for one in held))
    holders = list(dict.fromkeys(one.holder for one in held))
    height = max(len(waiters), len(holders)) * _ROW
    lines = []
    for one in held:
        begin = waiters.index(one.waiter) * _ROW + _ROW // 2
        end = holders.index(one.holder) * _ROW + _ROW // 2
        share = one.seconds / total if total else 0.0
        middle = (_LEFT + _RIGHT) // 2
        label = f"~{quantity(one.seconds, 's')} ({percent(share)})"
        about = f"{one.who_waits} waits for {one.who_holds}: {label}"
        lines.append(
            f'<path d="M{_LEFT} {begin}C{middle} {begin} {middle} {end} {_RIGHT} {end}" '
            f'stroke-width="{max(share * _ROW * 0.7, 1):.1f}">'
            f"<title>{escape(harmless(about))}</title></path>"
            f'<text class="faint" x="{_RIGHT - 6}" y="{end - 4}" text-anchor="end">'
            f"{escape(label)}</text>"
        )
    boxes = [_box(0, number, _LEFT, one.shown()) for number, one in enumerate(waiters)]
    boxes += [
        _box(_RIGHT, number, _WIDE - _RIGHT, "not seen" if one is None else one.shown())
        for number, one in enumerate(holders)
    ]
    return f'<svg viewBox="0 0 {_WIDE} {height}">{"".join(lines)}{"".join(boxes)}</svg>'


def _box(left: int, number: int, width: int, name: str) -> str:
    name = harmless(name)
    room = width // 8 - 2
    short = name if len(name) <= room else f"{name[: room - 1]}…"
    top = number * _ROW + 4
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{_ROW - 8}" rx="3"/>'
        f'<text x="{left + 8}" y="{top + 18}">{escape(short)}<title>{escape(name)}</title></text>'
    )
