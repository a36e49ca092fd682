"""What weft knows and measures, as data without behaviour: programs, points, values, samples."""
