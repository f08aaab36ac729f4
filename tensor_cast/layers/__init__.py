"""The blocks that models are made of."""
