from pathlib import Path

import pytest

from tests import suite

FLAKY = """
from pathlib import Path

def test_good():
    pass

def test_first_time():
    seen = Path(__file__).with_name("seen")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "test_it.py"


def test_what_passes_by_itself_is_named(tests: Path) -> None:
    tests.write_text(FLAKY)
    assert suite.run("not slow", ()) == ["test_it.py::test_first_time"]
    assert suite.run("not slow", ()) == []


def test_what_fails_twice_has_failed(tests: Path) -> None:
    tests.write_text(FLAKY + "\ndef test_bad():\n    assert False\n")
    with pytest.raises(SystemExit) as ended:
        suite.run("not slow", ())
    assert ended.value.code == 1


def test_many_failures_are_not_the_machine(tests: Path) -> None:
    tests.write_text(
        "import pytest\nfrom pathlib import Path\n"
        f"@pytest.mark.parametrize('number', range({suite.FEW + 1}))\n"
        "def test_it(number):\n"
        "    seen = Path(__file__).with_name(f'seen{number}')\n"
        "    is_first = not seen.exists()\n"
        "    seen.touch()\n"
        "    assert not is_first\n"
    )
    with pytest.raises(SystemExit) as ended:
        suite.run("not slow", ())
    assert ended.value.code == 1


def test_a_run_that_could_not_begin_has_failed(tests: Path) -> None:
    tests.write_text("import what_is_not_there\n")
    with pytest.raises(SystemExit) as ended:
        suite.run("not slow", ())
    assert ended.value.code == 2
