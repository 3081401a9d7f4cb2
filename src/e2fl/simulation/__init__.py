"""Clients simulated in this process, in parallel threads."""
