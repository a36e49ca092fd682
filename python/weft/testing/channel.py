"""How the process that records and the one that runs the tests find each other."""

CHANNEL = "WEFT_COV_CHANNEL"
"""The environment variable that has the number of the socket to the process which records."""
INSIDE = "WEFT_COV_INSIDE"
"""The environment variable of programs that are recorded."""
