"""Why a program is slow, as a page."""

from __future__ import annotations

from html import escape
from typing import BinaryIO

from weft.base.numbers import harmless
from weft.model.answers import Answer, Answers, Tested

__all__ = ["write"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem }
code, pre { font: 13px/1.4 ui-monospace, monospace } pre { overflow-x: auto; margin: .2rem 0 }
.bar { position: relative; height: .9rem; background: #e6e8eb; border-radius: 3px }
.bar b { position: absolute; inset: 0 auto 0 0; background: #7a8794; border-radius: 3px }
.bar.yes b { background: #c2410c }
.bar i { position: absolute; top: -3px; bottom: -3px; width: 2px; background: #1b1f24 }
table { border-collapse: collapse; width: 100% } td { padding: .15rem .5rem .15rem 0 }
td.wide { width: 50% } .note { color: #7c5a00 }
@media (prefers-color-scheme: dark) {
  body { color: #e6e8eb; background: #16191d } .bar { background: #2b3138 }
  .bar i { background: #e6e8eb } .note { color: #e0b64b } }
"""


def write(file: BinaryIO, found: Answers) -> None:
    """Write it."""
    title = f"Why is {harmless(found.command)} ({found.pid}) slow?"
    answers = "".join(_answer(number, one) for number, one in enumerate(found.answers, 1))
    tested = "".join(map(_tested, found.tested))
    notes = "".join(f'<p class="note">{escape(harmless(note))}</p>' for note in found.notes)
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p>Watched for {found.seconds:.1f} s; its busiest thread does, or waits for, something in
{found.busy:.0%} of the time.</p>
{answers}
<h2>All hypotheses</h2>
<p>Shares of its active time; the line is where each would be confirmed.</p>
<table>{tested}</table>
{notes}
</html>
"""
    file.write(page.encode())


def _answer(number: int, answer: Answer) -> str:
    rows = []
    for one in answer.evidence:
        rows.append(f"<li>{escape(harmless(one.text))}")
        if one.command is not None:
            rows.append(f"<pre>$ {escape(one.command)}</pre>")
        rows.append("</li>")
    return (
        f"<h2>{number}. {escape(answer.hypothesis)}</h2><p>{escape(harmless(answer.text))}</p>"
        f"<ul>{''.join(rows)}</ul>"
    )


def _tested(one: Tested) -> str:
    share, mark = min(one.share, 1.0) * 100, one.threshold * 100
    kind = "bar yes" if one.is_confirmed else "bar"
    return (
        f"<tr><td><code>{escape(one.name)}</code><td>{escape(one.title)}"
        f'<td class="wide"><div class="{kind}"><b style="width:{share:.1f}%"></b>'
        f'<i style="left:{mark:.1f}%"></i></div><td>{one.share:.0%}</tr>'
    )
