"""Compiled local training without autograd."""
