"""What the programs of the zoo read: made by arithmetic, so that it is always the same."""

from __future__ import annotations

import random
from functools import cache
from itertools import accumulate
from pathlib import Path

from tests.zoo.model import Input

SYLLABLES = "ba be bi bo da de di ka ke ko la le lo ma mi mo na ne no ra ri ro sa se so ta te ti"


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return made-up words, and how often each comes with those before it."""
    chance = random.Random(1)
    syllables = SYLLABLES.split()
    known = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(3000)]
    return known, list(accumulate(1 / (rank + 1) for rank in range(3000)))


def words(number: int, seed: int = 1) -> list[str]:
    """Return words, some of them far more often than others, as in a language."""
    known, weights = _vocabulary()
    return random.Random(seed).choices(known, cum_weights=weights, k=number)


def written(name: str, content: str) -> Input:
    """Just what is given."""

    def write(folder: Path) -> None:
        (folder / name).write_text(content)

    return write


def replaced(name: str, source: str, *pairs: tuple[str, str]) -> Input:
    """Another file with some words replaced."""

    def write(folder: Path) -> None:
        content = (folder / source).read_text()
        for old, new in pairs:
            content = content.replace(old, new)
        (folder / name).write_text(content)

    return write


def text(name: str, lines: int, seed: int = 1) -> Input:
    """Lines of eleven words."""

    def write(folder: Path) -> None:
        found = words(11 * lines, seed)
        parts = (" ".join(found[at : at + 11]) for at in range(0, len(found), 11))
        (folder / name).write_text("".join(f"{part}\n" for part in parts))

    return write


def table(name: str, rows: int, separator: str = ",") -> Input:
    """Rows of a number, a name, a group, an amount and a date."""

    def write(folder: Path) -> None:
        chance = random.Random(rows)
        names = words(rows, seed=2)
        lines = [
            separator.join(
                (
                    *(str(chance.randrange(10 * rows)), names[row], f"group{chance.randrange(40)}"),
                    f"{chance.uniform(-1000, 1000):.2f}",
                    f"20{chance.randrange(26):02}-{chance.randint(1, 12):02}-{row % 28 + 1:02}",
                )
            )
            for row in range(rows)
        ]
        (folder / name).write_text("\n".join(lines) + "\n")

    return write


def noise(name: str, size: int) -> Input:
    """Bytes that nothing can be made of."""

    def write(folder: Path) -> None:
        (folder / name).write_bytes(random.Random(size).randbytes(size))

    return write


def tree(name: str, files: int) -> Input:
    """A folder of folders with small files, some links and an empty folder."""

    def write(folder: Path) -> None:
        chance = random.Random(files)
        top = folder / name
        for number in range(files):
            place = top / f"part{number % 7}" / f"deep{number % 3}"
            place.mkdir(parents=True, exist_ok=True)
            content = " ".join(words(chance.randrange(400), seed=number))
            (place / f"file{number}.{chance.choice(['txt', 'c', 'log'])}").write_text(content)
        (top / "empty").mkdir()
        (top / "link").symlink_to("part0")

    return write


def functions(name: str, number: int) -> Input:
    """C source of so many functions, with loops, switches, structures and calls, and a main."""

    def write(folder: Path) -> None:
        chance = random.Random(number)
        parts = [
            "#include <stdio.h>\n#include <stdint.h>\n",
            "struct state { uint64_t sum; uint32_t items[64]; double share; };\n",
        ]
        for index in range(number):
            a, b, c = (chance.randrange(3, 97) for _ in range(3))
            # Some have a loop that is worth vectors.
            loop = "    for (int k = 0; k < 64; k++) s->items[k] ^= (uint32_t)(x >> (k % 8));\n"
            loop = loop if index % 10 == 0 else ""
            callee = f"f{chance.randrange(index)}(s, n / 4)" if index else "n"
            parts.append(
                f"uint64_t f{index}(struct state *s, uint64_t n) {{\n"
                f"  uint64_t x = n ^ {a}u;\n"
                f"  for (uint64_t i = 0; i < n % {b + 5}; i++) {{\n"
                f"    switch ((x + i) % 7) {{\n"
                f"      case 0: x += s->items[i % 64] * {b}u; break;\n"
                f"      case 1: x ^= x << {a % 13 + 1}; break;\n"
                f"      case 2: s->items[(x >> 3) % 64] += (uint32_t)x; break;\n"
                f"      case 5: s->share = s->share * 0.5 + (double)(x % {c}u); break;\n"
                f"      default: x = x * {c}u + i;\n    }}\n"
                f"{loop}  }}\n  if (n > {c}u) x += {callee};\n  s->sum += x;\n  return x;\n}}\n"
            )
        names = ", ".join(f"f{index}" for index in range(number))
        parts.append(
            f"static uint64_t (*const all[])(struct state *, uint64_t) = {{{names}}};\n"
            "int main(void) {\n  struct state s = {0};\n  uint64_t x = 1;\n"
            "  for (uint64_t r = 0; r < 200; r++)\n"
            f"    for (uint64_t i = 0; i < {number}; i++) x ^= all[i](&s, r * (i + 1));\n"
            '  printf("%llu %llu %.6f\\n", (unsigned long long)x, '
            "(unsigned long long)s.sum, s.share);\n  return 0;\n}\n"
        )
        (folder / name).write_text("".join(parts))

    return write


def statements(name: str, rows: int) -> Input:
    """A script for sqlite3: tables, inserts, indexes, joins, windows, triggers and deletes."""

    def write(folder: Path) -> None:
        chance = random.Random(rows)
        names = words(rows, seed=3)
        lines = [
            "PRAGMA journal_mode=WAL;",
            "CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT, town INT, born INT);",
            "CREATE TABLE sales(id INTEGER PRIMARY KEY, person INT, amount REAL, note TEXT);",
            "CREATE TABLE log(what TEXT, id INT);",
            "CREATE TRIGGER gone AFTER DELETE ON people BEGIN"
            " INSERT INTO log VALUES('gone', old.id); END;",
            "BEGIN;",
        ]
        for row in range(rows):
            lines.append(
                f"INSERT INTO people VALUES({row}, '{names[row]}', {chance.randrange(50)}, "
                f"{chance.randint(1930, 2020)});"
            )
            for _ in range(chance.randrange(4)):
                lines.append(
                    f"INSERT INTO sales(person, amount, note) VALUES({chance.randrange(rows)}, "
                    f"{chance.uniform(0, 500):.2f}, '{' '.join(chance.choices(names, k=5))}');"
                )
        lines += [
            "COMMIT;",
            "CREATE INDEX by_person ON sales(person);",
            "CREATE INDEX by_town ON people(town, born);",
            "SELECT town, count(*), round(sum(amount), 2) FROM people JOIN sales"
            " ON people.id = person GROUP BY town ORDER BY 3 DESC;",
            "SELECT a.name, count(*) FROM people a JOIN people b ON a.town = b.town"
            " AND a.born = b.born GROUP BY a.name ORDER BY 2 DESC, 1 LIMIT 20;",
            "SELECT id, amount, round(avg(amount) OVER (ORDER BY id ROWS 9 PRECEDING), 3)"
            " FROM sales ORDER BY id LIMIT 50;",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
            " SELECT sum(i * i % 97) FROM n;",
            "SELECT count(*), max(length(note)) FROM sales WHERE note LIKE '%ka%la%';",
            "DELETE FROM people WHERE born < 1940;",
            "SELECT count(*) FROM log;",
            "UPDATE sales SET amount = amount * 1.1 WHERE person % 3 = 0;",
            "PRAGMA wal_checkpoint(TRUNCATE);",
            "PRAGMA journal_mode=DELETE;",
            "VACUUM;",
            "PRAGMA integrity_check;",
        ]
        (folder / name).write_text("\n".join(lines) + "\n")

    return write


def picture(name: str, width: int, height: int) -> Input:
    """A picture of waves, as a PPM file."""

    def write(folder: Path) -> None:
        rows = bytearray()
        for y in range(height):
            for x in range(width):
                rows += bytes(((x * y) >> 6 & 255, (x ^ y) & 255, (x * 3 + y * y // 64) & 255))
        (folder / name).write_bytes(b"P6\n%d %d\n255\n" % (width, height) + rows)

    return write


def sound(name: str, seconds: int) -> Input:
    """A mono WAVE file of a few tones and some noise."""

    def write(folder: Path) -> None:
        chance = random.Random(seconds)
        rate = 22050
        frames = bytearray()
        phase = 0
        for at in range(rate * seconds):
            phase = (phase + 440 + at // rate * 55) % rate
            level = (phase - rate // 2) * 20000 // rate + chance.randrange(-500, 500)
            frames += level.to_bytes(2, "little", signed=True)
        header = b"RIFF" + (36 + len(frames)).to_bytes(4, "little") + b"WAVEfmt "
        header += (16).to_bytes(4, "little") + (1).to_bytes(2, "little") * 2
        header += rate.to_bytes(4, "little") + (2 * rate).to_bytes(4, "little")
        header += (2).to_bytes(2, "little") + (16).to_bytes(2, "little")
        header += b"data" + len(frames).to_bytes(4, "little")
        (folder / name).write_bytes(header + frames)

    return write
