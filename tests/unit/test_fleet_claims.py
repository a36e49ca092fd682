"""Two hosts on one machine do not measure the same process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.errors import BadFile
from weft.fleet.claims import Claims


def test_what_one_has_the_other_has_not(tmp_path: Path) -> None:
    one, other = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    assert one.take("a")
    assert one.take("a")
    assert not other.take("a")
    assert other.is_anothers("a")
    assert not one.is_anothers("a")
    one.release("a")
    assert not other.is_anothers("a")
    assert other.take("a")
    other.close()
    assert [*(tmp_path / "claims").iterdir()] == []


def test_who_is_killed_has_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom weft.fleet.claims import Claims\n"
        "claims = Claims(Path(sys.argv[1]))\nassert claims.take('a')\nprint('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    claims = Claims(tmp_path / "claims")
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "claims"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert not claims.take("a")
        holder.kill()
        holder.wait()
    Claims(tmp_path / "claims")
    assert [*(tmp_path / "claims").iterdir()] == []
    assert claims.take("a")


def test_a_folder_that_others_see_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(BadFile, match="cannot use"):
        Claims(tmp_path)
