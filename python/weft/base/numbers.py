"""Numbers for people: three digits and a unit."""

from __future__ import annotations

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIMES = ("ns", "us", "ms", "s")
_TIME_SCALE = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "seconds": 1e9}


def quantity(value: float, unit: str = "") -> str:
    """A value with its unit if that is one of time or bytes: ``12.3k``, ``1.2 ms``, ``3.4 MiB``."""
    if unit in _TIME_SCALE:
        return _scaled(value * _TIME_SCALE[unit], 1000, _TIMES, " ")
    if unit == "bytes":
        return _scaled(value, 1024, _BYTES, " ")
    return _scaled(value, 1000, _THOUSANDS, "")


def rate(value: float, unit: str = "") -> str:
    """How much per second: ``12.3k/s``."""
    return f"{quantity(value, unit)}/s"


def exact(value: float, unit: str = "") -> str:
    """A value with all digits if it is a whole number: ``12,345,678``."""
    return f"{value:,}" if isinstance(value, int) else quantity(value, unit)


def percent(share: float) -> str:
    """A share of 1: ``0.25%``, ``2.5%``, ``25%``."""
    return f"{_digits(share * 100).removesuffix('.0')}%"


def elapsed(seconds: float) -> str:
    """A time that goes on: ``0:07``, ``12:34``, ``1:00:00``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def shortened(text: str, width: int) -> str:
    """A text that fits, without its middle if need be: both ends of a path say something.

    What cannot be printed is replaced: names come from programs and may hold anything.
    """
    text = printable(text)
    if len(text) <= width:
        return text
    tail = width // 2
    return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}" if width > 1 else text[:width]


def printable(text: str) -> str:
    """A text with ``?`` for what would move the cursor, or is no character."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def harmless(text: str) -> str:
    """A text of several lines with ``?`` for what would control a terminal, or is no character."""
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))


def readable(text: str) -> str:
    """A text with what is not Unicode replaced: names of programs may be any bytes."""
    return text.encode(errors="replace").decode()


def _scaled(value: float, base: int, units: tuple[str, ...], gap: str) -> str:
    """The value in the largest unit of which there is at least one, after rounding."""
    sign = "-" if value < 0 else ""
    value = abs(value)
    power = 0
    # 999.6 would be rounded to 1000, and 1000 is 1.0 of the next unit.
    while power + 1 < len(units) and value >= base - 0.5:
        value /= base
        power += 1
    text = str(round(value)) if power == 0 and value == int(value) else _digits(value)
    return f"{sign}{text}{gap}{units[power]}".rstrip()


def _digits(value: float) -> str:
    """Two or three digits: ``0.012``, ``1.2``, ``12.3``, ``123``."""
    if value == 0:
        return "0"
    if value < 0.95:
        return f"{value:.2g}" if value >= 0.001 else f"{value:.3f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
