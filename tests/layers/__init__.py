"""Checks which module of a crate imports which: no circles, and never from a higher layer."""
