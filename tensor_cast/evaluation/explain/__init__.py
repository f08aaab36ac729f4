"""A measured profile against a recorded evaluation: whole step, category, kernel and shape."""
