"""What is released: the files in ``dist/``, and that they work on bare systems."""
