"""The command `e2fl`: arguments into calls, nothing else."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from e2fl.auditing import command as audit
from e2fl.errors import E2flError
from e2fl.version import __version__

EXAMPLES = """examples:
  e2fl run demo                                     E2FL on bundled data, no download
  e2fl run demo --algorithm fedavg --set rounds=20
  e2fl run my.toml --out runs/mine                  stop it with Ctrl-C, then go on:
  e2fl run my.toml --out runs/mine --resume
  e2fl compare demo --algorithms local,fedavg,e2fl --seeds 0,1,2
  e2fl run demo --watch                             a page that follows the training
  e2fl report runs/demo-compare-1 --export figures  the page again, and its tables and plots as files
  e2fl audit predictions.csv --group sex,race       a fairness audit of any table of predictions or scores
  e2fl data show adult                              a picture of a data set
  e2fl groups demo --from 2 --to 12                 how many groups of clients there are
  e2fl list                                         algorithms, groupings, data sets, models, experiments
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 is success, 2 a mistake that the message explains, 130 an interruption."""
    parser = _parser()
    options = parser.parse_args(arguments)
    options.command = shlex.join(["e2fl", *(sys.argv[1:] if arguments is None else arguments)])
    if not hasattr(options, "act"):
        parser.print_help()
        return 2
    act: Callable[[argparse.Namespace], int] = options.act
    sys.path.append(os.getcwd())  # where "mine:MyAlgorithm" is looked for, after everything installed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being ended is like Ctrl-C: leave a checkpoint
    try:
        return act(options)
    except E2flError as error:
        print(f"e2fl: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = {"torch": "train", "numba": "train", "pandas": "audit", "jinja2": "audit"}.get(error.name or "")
        if extra is None:
            raise
        print(f"e2fl: this command needs {error.name}: pip install 'e2fl[{extra}]'", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"e2fl: {error}; nothing that was written before is lost", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("e2fl: stopped; the same command with --resume goes on from here", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="e2fl",
        description="Equal and equitable federated learning: run, compare and measure fair algorithms.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"e2fl {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    run = commands.add_parser("run", help="run one experiment", description="Run one experiment.")
    _add_config(run)
    run.add_argument("--algorithm", metavar="NAME", help="another algorithm, or a variant the experiment names")
    run.add_argument("--out", type=Path, metavar="DIR", help="where to keep the run; default: a new folder in runs/")
    run.add_argument("--resume", action="store_true", help="go on with an interrupted run in --out DIR")
    _add_watching(run)
    run.set_defaults(act=_run)

    compare = commands.add_parser(
        "compare",
        help="run several algorithms on the same experiment",
        description="Run several algorithms, or variants the experiment names, on the same data with the same draws.",
    )
    _add_config(compare)
    compare.add_argument("--algorithms", required=True, metavar="A,B,...", help="algorithms or variants to compare")
    compare.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds to repeat with; default: one")
    compare.add_argument(
        "--out", type=Path, metavar="DIR", help="where to keep the runs; default: a new folder in runs/"
    )
    compare.add_argument("--resume", action="store_true", help="go on with an interrupted comparison in --out DIR")
    _add_watching(compare)
    compare.set_defaults(act=_compare)

    report = commands.add_parser(
        "report",
        help="make the page of runs that are on disk",
        description="Make one self-contained HTML page of all finished runs in these folders, or below them.",
    )
    report.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="the folder of a run, or one that holds some")
    _add_page(report, "default: report.html in the first DIR")
    report.set_defaults(act=_report)

    audit.add_parser(commands)

    groups = commands.add_parser(
        "groups",
        help="how many groups of clients there are",
        description="Cluster the clients' rankings into several numbers of groups, and say which number fits.",
    )
    _add_config(groups)
    groups.add_argument("--from", type=int, default=2, metavar="N", dest="first", help="fewest groups; default: 2")
    groups.add_argument("--to", type=int, default=12, metavar="N", dest="last", help="most groups; default: 12")
    groups.set_defaults(act=_groups)

    listing = commands.add_parser("list", help="what there is to choose from", description="Show what can be named.")
    listing.add_argument("what", nargs="?", metavar="WHAT", help="algorithms, groupings, datasets, models, experiments")
    listing.set_defaults(act=_list)

    _add_data(commands.add_parser("data", help="fetch, check, draw and convert data sets", description="Data sets."))
    _add_flower(commands)
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", title="actions", required=True)
    known = actions.add_parser("list", help="what is here, what is missing, how large, and its licence")
    known.set_defaults(act=_data_list)
    get = actions.add_parser("get", help="download a data set into E2FL_DATA, or into this user's cache")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(act=_data_get)
    check = actions.add_parser("check", help="compare files with what was published")
    check.add_argument("name", metavar="NAME")
    check.set_defaults(act=_data_check)
    show = actions.add_parser("show", help="draw samples of each group, clients per group, and labels of each client")
    show.add_argument("name", metavar="NAME", help="a data set; `e2fl list datasets` names them")
    show.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="a setting of it")
    show.add_argument("--out", type=Path, metavar="FILE", help="an .svg file; default: NAME.svg")
    show.set_defaults(act=_data_show)
    convert = actions.add_parser("convert", help="make one compact .npz of FEMNIST from LEAF's or TFF's files")
    convert.add_argument("source", type=Path, metavar="FOLDER", help="LEAF's all_data_*.json, or fed_emnist_*.h5")
    convert.add_argument("target", type=Path, metavar="FILE.npz")
    convert.set_defaults(act=_data_convert)


def _add_flower(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    flower = commands.add_parser(
        "flower", help="run on many machines, with Flower", description="Run an experiment with Flower: docs/flower.md."
    )
    actions = flower.add_subparsers(metavar="ACTION", title="actions", required=True)
    export = actions.add_parser("export", help="an experiment as an app folder for flwr run")
    _add_config(export)
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    export.set_defaults(act=_flower_export)
    keys = actions.add_parser("keys", help="certificates for the server and a key for each node")
    keys.add_argument("--nodes", type=int, default=3, metavar="N", help="how many nodes; default: 3")
    keys.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        dest="hosts",
        help="name or address nodes reach the server by; may be repeated; default: 127.0.0.1 and localhost",
    )
    keys.add_argument(
        "--out", type=Path, default=Path("keys"), metavar="DIR", help="the folder to write; default: keys"
    )
    keys.set_defaults(act=_flower_keys)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a TOML file, or the name of a shipped experiment")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting, such as rounds=20 or data.samples_per_client=60; may be repeated, and has the last "
        "word: over the file, and over what it says of single algorithms",
    )


def _add_watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="keep report.html up to date while training goes on")
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="TRACKER",
        help="also write to a tracker in --out DIR: tensorboard or mlflow; may be repeated",
    )


def _add_page(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"where to write the page; {default}")
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="also write tables as CSV and LaTeX, plots as PNG and SVG, all as JSON",
    )


# What the commands need is imported when they run: `e2fl --help` should not wait for torch.


def _run(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.runs.runner import run_experiment
    from e2fl.runs.watchers import finish, watching

    experiment = load(options.config, options.changes, algorithm=options.algorithm)
    out = options.out or _new_folder(f"{experiment.name}-{experiment.label}", options.resume)
    with watching(out, live=options.watch, track=options.track) as watcher:
        result = run_experiment(experiment, out=out, resume=options.resume, watcher=watcher)
    finish([result], out, options.command)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import base_of
    from e2fl.config.overrides import typed
    from e2fl.runs.compare import compare, contenders
    from e2fl.runs.watchers import finish, watching

    names = [name for name in options.algorithms.split(",") if name]
    changes = typed(options.changes)
    found = contenders(base_of(options.config, changes), names, changes)
    first = next(iter(found.values()))
    seeds = _seeds(options.seeds, first.seed)
    out = options.out or _new_folder(f"{first.name}-compare", options.resume)
    with watching(out, live=options.watch, track=options.track) as watcher:
        runs = compare(found, seeds, out=out, resume=options.resume, watcher=watcher)
    finish(runs, out, options.command)
    return 0


def _report(options: argparse.Namespace) -> int:
    from e2fl.report import report_runs
    from e2fl.report.verdict import verdict

    out = options.out or options.runs[0] / "report.html"
    study = report_runs(options.runs, out, export_to=options.export)
    return _written(verdict(study), out, options.export)


def _written(words: str, out: Path, export_to: Path | None) -> int:
    print(f"{words}\n\nwritten to {out}{f' and {export_to}' if export_to else ''}")
    return 0


def _groups(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.runs.group_survey import survey
    from e2fl.runs.progress import timed_steps

    experiment = load(options.config, options.changes)
    found = survey(experiment, options.first, options.last, tell=timed_steps())
    print(found.table())
    print(f"\n{found.advice()}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from e2fl.config.listing import listing

    print(listing(options.what))
    return 0


def _data_list(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.listing())
    return 0


def _data_get(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.get(options.name))
    return 0


def _data_check(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.check(options.name))
    return 0


def _data_show(options: argparse.Namespace) -> int:
    from e2fl.config.overrides import lay, typed
    from e2fl.data import commands

    print(commands.show(options.name, lay(typed(options.changes), {}), options.out))
    return 0


def _data_convert(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.convert_femnist(options.source, options.target))
    return 0


def _flower_export(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.flower.export import export

    export(load(options.config, options.changes), options.out)
    print(f"written to {options.out}; {options.out / 'README.md'} says how to go on")
    return 0


def _flower_keys(options: argparse.Namespace) -> int:
    from e2fl.flower.certificates import make_keys

    for path in make_keys(options.out, options.nodes, options.hosts or ["127.0.0.1", "localhost"]):
        print(path)
    return 0


def _seeds(text: str | None, default: int) -> list[int]:
    from e2fl.errors import ConfigError

    try:
        return [default] if text is None else [int(part) for part in text.split(",") if part]
    except ValueError:
        raise ConfigError(f"--seeds takes whole numbers with commas, such as 0,1,2, not '{text}'") from None


def _new_folder(name: str, resume: bool) -> Path:
    """The first free folder in runs/, or, to go on, the last one that is there."""
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return Path("runs") / f"{name}-{number - 1}" if resume and number > 1 else path


if __name__ == "__main__":
    sys.exit(main())
