"""Views of an Estimate: table, JSON, Chrome trace."""
