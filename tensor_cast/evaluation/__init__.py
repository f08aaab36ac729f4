"""A recorded evaluation: run, results layout, report, comparison, validation, explanation of a measured profile."""
