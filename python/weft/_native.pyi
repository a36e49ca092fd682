"""The typed face of the compiled core."""

__version__: str
