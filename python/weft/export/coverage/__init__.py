"""One file per format of coverage."""
