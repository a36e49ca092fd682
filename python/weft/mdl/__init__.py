"""MDL, the language in which metrics are written: text in, what to weave where out."""
