"""The chapters of a report, one a module: blocks that show the figures of an evaluation as they were recorded."""
