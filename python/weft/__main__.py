"""Makes ``python -m weft`` the same as ``weft``."""

from weft.cli import main

main(prog_name="weft")
