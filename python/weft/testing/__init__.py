"""For those who test native code: coverage by test."""
