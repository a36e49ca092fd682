"""Metrics as text, JSON, CSV, tables, pictures, and in the formats of monitoring systems."""
