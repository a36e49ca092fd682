"""Programs whose bottleneck is known, and the command that asks weft for it.

    python -m tests.bottlenecks

starts each of them, asks `weft why` why it is slow, and prints the table of what was planted and
what was answered.
"""
