"""Shapes worth measuring: candidates from models or from general axes, chosen for what interpolation needs."""
