"""One file per format of profiles."""
