"""Experiments: configuration files, overrides, and what can be named in them."""
