"""Why a program is slow: hypotheses about it, tested by watching it, from the cheapest up."""
