"""The same session of GDB with a program alone and with its clone: the answers must be the same.

``driver`` runs inside GDB, walks through a program at random and writes down what GDB tells at each
stop; ``sides`` starts GDB with gdbserver or with weft; ``compare`` finds where two walks differ;
``walks`` lists the programs.

    python -m tests.gdb [--stops N] [--seed N] [--against SIDE] [WALK...]
"""
