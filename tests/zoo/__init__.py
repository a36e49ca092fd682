"""The zoo of the clone engine: programs of a distribution, native and cloned, doing real work."""
