"""What every part of weft uses and that knows nothing of targets: files, signals, numbers."""
