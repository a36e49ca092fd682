"""Writes why a program is slow, in one module for each format."""
