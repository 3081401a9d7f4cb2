"""Runs: executing an experiment, its files on disk, resuming, comparing, and unseen clients."""
