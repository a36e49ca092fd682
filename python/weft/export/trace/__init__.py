"""One file per format of traces."""
