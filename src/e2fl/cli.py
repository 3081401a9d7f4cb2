"""The command `e2fl`: the parser, assembled from `commands/`, and the handling of errors."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence

from e2fl.auditing import command as audit
from e2fl.commands import (
    compare,
    data,
    export,
    flower,
    groups,
    predict,
    report,
    reproduce,
    resume,
    run,
    show,
    sweep,
    tune,
)
from e2fl.commands import list as listing
from e2fl.errors import E2flError, is_out_of_memory
from e2fl.version import __version__

# In the order of `e2fl --help`.
COMMANDS = (
    run,
    compare,
    sweep,
    tune,
    resume,
    report,
    predict,
    export,
    audit,
    groups,
    reproduce,
    listing,
    show,
    data,
    flower,
)

EXAMPLES = """examples:
  e2fl run demo                                     E2FL on bundled data, no download
  e2fl run demo --algorithm fedavg --set rounds=20
  e2fl run my.toml --out runs/mine                  stop it with Ctrl-C, then continue it:
  e2fl resume runs/mine
  e2fl resume runs/mine --set rounds=3000           more rounds for a finished run
  e2fl compare demo --algorithms local,fedavg,e2fl --seeds 0,1,2
  e2fl sweep demo --grid learner.learning_rate=0.05,0.1 --seeds 0,1,2
  e2fl tune demo --algorithms fedavg,e2fl --space learner.learning_rate=0.01..1:log --trials 20
  e2fl run demo --watch                             a page that follows the training
  e2fl report runs/demo-compare-1 --export figures  the page again, and its tables and plots as files
  e2fl audit predictions.csv --group sex,race       a fairness audit of any table of predictions or scores
  e2fl predict runs/mine new.csv --group north      predictions for the rows of a table
  e2fl export runs/mine --group north --out north.safetensors
  e2fl data show adult                              a summary of a data set, as a table and a picture
  e2fl groups demo --from 2 --to 12                 estimate the number of groups
  e2fl list                                         algorithms, groupings, data sets, models, experiments
  e2fl list e2fl                                    the settings of one of them
  e2fl show table1                                  a shipped experiment, to start from
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return 0 for success, 2 for a mistake that the message explains, 130 for an interruption."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    options.command = shlex.join(["e2fl", *(sys.argv[1:] if arguments is None else arguments)])
    if not hasattr(options, "act"):
        parser.print_help()
        return 2
    act: Callable[[argparse.Namespace], int] = options.act
    sys.path.append(os.getcwd())  # where "mine:MyAlgorithm" is looked for, after everything installed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: leave a checkpoint
    try:
        code = act(options)
        sys.stdout.flush()
        return code
    except E2flError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        extra = {"torch": "train", "numba": "train", "pandas": "audit", "jinja2": "audit"}.get(error.name or "")
        if extra is None:
            raise
        return _fail(f"this command needs {error.name}: pip install 'e2fl[{extra}]'")
    except BrokenPipeError:
        # The reader of the output, such as `head`, closed the pipe. Python must not try to flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        name = f" {error.filename}" if error.filename else ""
        return _fail(f"cannot read or write{name}: {error.strerror or error}; check the path and its permissions")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _fail("not enough memory; use a smaller model, smaller batches (learner.batch_size) or fewer threads")
    except KeyboardInterrupt:
        print(f"e2fl: stopped{_how_to_continue(options)}", file=sys.stderr)
        return 130


def _fail(message: str) -> int:
    print(f"e2fl: {message}", file=sys.stderr)
    return 2


def _how_to_continue(options: argparse.Namespace) -> str:
    """Return what to do after Ctrl-C, for commands that can be continued: those with a folder, or with a remark."""
    place, remark = getattr(options, "folder", None), getattr(options, "after_stop", None)
    if remark is not None:
        return f"; {remark}"
    return (
        "" if place is None else f"; continue with: e2fl resume {shlex.quote(str(place))} (or the same with --resume)"
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="e2fl",
        description="Equal and equitable federated learning: run, compare and measure fair algorithms.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"e2fl {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
