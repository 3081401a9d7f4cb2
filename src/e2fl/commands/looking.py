"""The commands that look things up: list, show and groups."""

import argparse


def list_choices(options: argparse.Namespace) -> int:
    """List what a configuration can name, and its settings."""
    if options.what == "experiments":  # needs no torch
        from e2fl.config.files import shipped

        width = max(map(len, shipped()))
        print("\n".join(f"  {name:{width}}  {about}" for name, about in shipped().items()))
        return 0
    from e2fl.config.listing import listing

    print(listing(options.what))
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a shipped experiment."""
    from e2fl.config.files import shipped_text

    print(shipped_text(options.name), end="")
    return 0


def groups(options: argparse.Namespace) -> int:
    """Estimate the number of groups of clients."""
    from e2fl.config.experiment import load
    from e2fl.runs.group_survey import survey
    from e2fl.runs.progress import timed_steps

    experiment = load(options.config, options.changes)
    found = survey(experiment, options.first, options.last, tell=timed_steps())
    print(found.table())
    print(f"\n{found.advice()}")
    return 0
