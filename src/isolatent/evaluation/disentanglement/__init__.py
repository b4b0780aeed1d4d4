"""Disentanglement metrics of the literature, on arrays or on the grid of a world."""
