"""What a user's file defines hides what weft's library has under the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import BadMetric
from weft.mdl.loader import load
from weft.metrics.catalogue import library_files

OWN = """
/// Mine.
constraint procedure /Code is counter {
  append preInsn $constraint[0].entry (* procedure = 1; *)
}
list readers is procedure { items { "my_read" }; }
metric calls {
  constraint procedure;
  base is counter { append preInsn $focus.entry constrained (* calls++; *) }
}
"""


def test_a_users_definitions_are_used_and_the_librarys_own_stay_as_they_were() -> None:
    library = load(*library_files(), OWN)
    shipped = load(*library_files())
    assert library.metrics["calls"].doc != shipped.metrics["calls"].doc
    own, other = library.metrics["calls"], library.metrics["io_bytes"]
    assert library.used_by(own).constraints["procedure"].doc == "Mine."
    assert library.used_by(other).constraints == shipped.constraints
    assert library.used_by(other).lists == shipped.lists


def test_the_order_does_not_matter() -> None:
    assert load(OWN, *library_files()).constraints["procedure"].doc == "Mine."


def test_a_file_that_imports_the_library_hides_it_too(tmp_path: Path) -> None:
    path = tmp_path / "own.mdl"
    path.write_text('import "constraints.mdl";\n' + OWN)
    assert load(path).constraints["procedure"].doc == "Mine."


def test_two_of_a_name_in_a_users_files_are_a_mistake() -> None:
    with pytest.raises(BadMetric, match="there is a metric `calls` already"):
        load(*library_files(), OWN, "metric calls { base is counter {} }")
