"""The same work measured by both weavers, function by function: what they count must be equal.

A program runs with probes in its code (the patch weaver), and runs again from a clone (the clone
weaver), which has room for a probe everywhere. Both count where every function is entered and left,
what happens between the two, and how long that takes.
"""
