"""Every command of weft under every limit, policy, namespace and signal: the target is unharmed.

A cell is one command on one target in one situation. Its verdict is one of

- ``right``: the command did what it should, and its count is the target's own;
- ``refused``: it said why not, with the right exit code, and the target did not notice;
- ``marked``: it gave a result and said what is missing from it;
- ``harmed``: the target is not what it would have been without weft;
- ``wrong``: the command hung, failed as a fault of weft, or gave a wrong result without a word.

``python -m tests.matrix`` prints the table, and how to run each bad cell alone.
"""
