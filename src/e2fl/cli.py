"""The command `e2fl`: what it calls is in `commands/`; errors become one clear line."""

import argparse
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Sequence

from e2fl.commands.parser import build_parser
from e2fl.errors import E2flError, is_out_of_memory, reason_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0: success; 1: a search could choose nothing, or a recount does not match; 2: a mistake that the
    message explains; 3: training diverged, so that some measures mean nothing; 130: an
    interruption.
    """
    parser = build_parser()
    options = parser.parse_args(arguments)
    options.command = shlex.join(["e2fl", *(sys.argv[1:] if arguments is None else arguments)])
    if not hasattr(options, "act"):
        parser.print_help()
        return 2
    if arguments is None:  # warnings as messages, without the line of code that gives them
        warnings.formatwarning = lambda message, *_, **__: f"e2fl: warning: {message}\n"
    act: Callable[[argparse.Namespace], int] = options.act
    sys.path.append(os.getcwd())  # for "mine:MyAlgorithm", after everything installed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: leave a checkpoint
    try:
        code = act(options)
        sys.stdout.flush()
        return code
    except E2flError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader of the output, such as `head`, closed the pipe: nothing is flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        name = f" {error.filename}" if error.filename else ""
        reason = reason_of(error)
        return _fail(f"cannot read or write{name}: {reason}; check the path and its permissions")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _fail(
            "not enough memory; use a smaller model, smaller batches (learner.batch_size) or fewer "
            "threads"
        )
    except KeyboardInterrupt:
        place = getattr(options, "folder", None)
        again = f"e2fl resume {shlex.quote(str(place))} (or the same with --resume)"
        remark = None if place is None else f"continue with: {again}"
        remark = getattr(options, "after_stop", remark)
        print("e2fl: stopped" + ("" if remark is None else f"; {remark}"), file=sys.stderr)
        return 130


def _fail(message: str) -> int:
    print(f"e2fl: {message}", file=sys.stderr)
    return 2
