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
        ["stacks"],
        ["checks"],
        ["weave"],
        ["store"],
        ["clone"],
        ["target"],
    ],
    "agent": [
        ["cpu", "entry_stub"],
        ["clone::base"],
        ["clone::thread"],
        ["clone::cache"],
        ["clone::tools"],
        ["clone::translate"],
        ["clone::storing"],
        ["clone::engine"],
        ["clone::failure"],
        ["clone::kernel"],
        ["clone::dispatch"],
        ["clone::switch"],
        ["clone::entry"],
        ["clone", "freestanding"],
    ],
}
"""By crate; an entry stands for a module and all below it.

A crate that is not here is only checked for circles.
"""
