"""How long a kernel takes."""
