"""Sweeps: every point of a grid of settings, the best chosen on validation data, and one final test of it."""
