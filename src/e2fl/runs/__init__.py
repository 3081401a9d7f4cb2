"""Running an experiment and what it leaves on disk."""
