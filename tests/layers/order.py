"""The layers inside the Rust crates, the lowest first.

A module imports from its own layer and from lower ones.
"""

LAYERS: dict[str, list[list[str]]] = {
    "host": [
        ["base"],
        ["arch"],
        ["process"],
        ["trip"],
        ["visited"],
        ["checks"],
        ["weave"],
        ["clone"],
        ["target"],
    ],
}
"""By crate; an entry stands for a module and all below it.

A crate that is not here is only checked for circles.
"""
