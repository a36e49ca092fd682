"""Makes ``python -m weft`` the same as ``weft``."""

from weft_command import main

main()
