"""Commands that price inference."""
