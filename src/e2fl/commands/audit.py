"""`e2fl audit`: the command of the package e2fl-audit."""

import argparse
import sys


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command; without the package it says what to install."""
    about = "audit a table of scores or predictions"
    try:
        from e2fl_audit.command import DESCRIPTION, add_arguments
    except ModuleNotFoundError:
        # No prefix: any option is accepted, so that the answer is always what to install.
        parser = commands.add_parser("audit", help=about, prefix_chars="\0", add_help=False)
        parser.add_argument("arguments", nargs="*")
        parser.set_defaults(act=_missing)
        return
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("audit", help=about, description=DESCRIPTION, formatter_class=form)
    add_arguments(parser)
    parser.set_defaults(act=_run)


def _run(options: argparse.Namespace) -> int:
    from e2fl_audit.command import run

    return run(options, "e2fl", options.command)


def _missing(_: argparse.Namespace) -> int:
    print("e2fl: audits need the package e2fl-audit: pip install 'e2fl[audit]'", file=sys.stderr)
    return 2
