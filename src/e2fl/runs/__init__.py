"""Runs: executing an experiment, its files on disk, resuming, comparing, and clients that never took part."""
