"""Checks the layers of the Rust crates: `python -m tests.layers`.

`--imports CRATE` lists what each module of a crate imports.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.layers.order import LAYERS
from tests.layers.rust import Crate, circles

CRATES = Path(__file__).resolve().parents[2] / "crates"


def violations(crate: Crate, layers: list[list[str]]) -> Iterator[str]:
    """What breaks the rules: circles, imports upwards, types with methods in other layers.

    The first layer is the lowest. An empty list of layers checks only for circles.
    """
    imports = crate.imports()
    for group in circles(imports):
        yield f"{len(group)} modules import each other: {_listed(group)}"
    if not layers:
        return
    heights = {name: _height(name, layers) for name in crate.modules}
    for name, height in heights.items():
        if height is None and name:
            yield f"{name} is in no layer"
    for name, imported in sorted(imports.items()):
        for other in sorted(imported):
            mine, its = heights[name], heights[other]
            if mine is not None and its is not None and its > mine:
                yield (
                    f"{name} ({layers[mine][0]}) imports {other} ({layers[its][0]}), "
                    "which is in a layer above it"
                )
    for name, type_, home in crate.strangers():
        if heights[name] != heights[home]:
            yield f"{name} adds methods to {type_}, which is defined in another layer: {home}"


def _listed(modules: Iterable[str]) -> str:
    return ", ".join(name or "the root" for name in sorted(modules))


def _height(name: str, layers: list[list[str]]) -> int | None:
    """The layer with the longest entry that is the module, or has it inside."""
    found = [
        (len(entry), height)
        for height, layer in enumerate(layers)
        for entry in layer
        if name == entry or name.startswith(f"{entry}::")
    ]
    return max(found)[1] if found else None


def main() -> int:
    """Prints each violation in each crate, and fails if there are any."""
    if sys.argv[1:2] == ["--imports"]:
        for name, imported in sorted(Crate.read(CRATES / sys.argv[2] / "src").imports().items()):
            print(f"{name or 'the root'}: {_listed(imported)}")
        return 0
    failed = False
    for folder in sorted(CRATES.iterdir()):
        if (folder / "src").is_dir():
            for violation in violations(Crate.read(folder / "src"), LAYERS.get(folder.name, [])):
                print(f"crates/{folder.name}: {violation}")
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
