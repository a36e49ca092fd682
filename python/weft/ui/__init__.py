"""Measurements on a screen: in a terminal, in a notebook."""
