"""Metrics of a running target: requested by name and focus, sampled, and kept within a budget."""
