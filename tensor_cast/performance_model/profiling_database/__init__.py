"""Measured operator times as CSV files, one a kernel type: the format, reading, merging, writing."""
