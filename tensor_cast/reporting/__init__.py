"""Views of an Estimate."""
