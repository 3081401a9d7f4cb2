"""The command `e2fl`: turns arguments into calls."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.auditing import command as audit
from e2fl.errors import E2flError, is_out_of_memory
from e2fl.reproduce import arguments as reproduce_arguments
from e2fl.version import __version__

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment

EXAMPLES = """examples:
  e2fl run demo                                     E2FL on bundled data, no download
  e2fl run demo --algorithm fedavg --set rounds=20
  e2fl run my.toml --out runs/mine                  stop it with Ctrl-C, then continue it:
  e2fl resume runs/mine
  e2fl resume runs/mine --set rounds=3000           more rounds for a finished run
  e2fl compare demo --algorithms local,fedavg,e2fl --seeds 0,1,2
  e2fl sweep demo --grid learner.learning_rate=0.05,0.1 --seeds 0,1,2
  e2fl run demo --watch                             a page that follows the training
  e2fl report runs/demo-compare-1 --export figures  the page again, and its tables and plots as files
  e2fl audit predictions.csv --group sex,race       a fairness audit of any table of predictions or scores
  e2fl predict runs/mine new.csv --group north      predictions for the rows of a table
  e2fl export runs/mine --group north --out north.safetensors
  e2fl data show adult                              a picture of a data set
  e2fl groups demo --from 2 --to 12                 how many groups of clients there are
  e2fl list                                         algorithms, groupings, data sets, models, experiments
  e2fl list e2fl                                    every setting of one of them
  e2fl show table1                                  a shipped experiment, to start from
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
        # The reader of the output, such as `head`, has seen enough. Python must not try to flush again at exit.
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
    """What to do after Ctrl-C, for commands that can be continued."""
    if options.act not in (_run, _compare, _sweep, _resume):
        return ""
    place = getattr(options, "folder", None)
    return (
        "" if place is None else f"; continue with: e2fl resume {shlex.quote(str(place))} (or the same with --resume)"
    )


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
    run.add_argument("--algorithm", metavar="NAME", help="another algorithm, or a variant of the experiment")
    run.add_argument("--out", type=Path, metavar="DIR", help="where to store the run; default: a new folder in runs/")
    run.add_argument(
        "--resume", action="store_true", help="continue the run in --out DIR: interrupted, or with more rounds"
    )
    _add_watching(run)
    run.set_defaults(act=_run)

    compare = commands.add_parser(
        "compare",
        help="run several algorithms on the same experiment",
        description="Run several algorithms, or variants of the experiment, on the same data with the same draws.",
    )
    _add_config(compare)
    compare.add_argument("--algorithms", required=True, metavar="A,B,...", help="algorithms or variants to compare")
    compare.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds to repeat with; default: one")
    compare.add_argument(
        "--out", type=Path, metavar="DIR", help="where to store the runs; default: a new folder in runs/"
    )
    compare.add_argument("--resume", action="store_true", help="continue an interrupted comparison in --out DIR")
    _add_watching(compare)
    compare.set_defaults(act=_compare)

    _add_sweep(commands)
    resume = commands.add_parser(
        "resume",
        help="continue an interrupted run, comparison or sweep, or give a finished run more rounds",
        description="Continue the run, comparison or sweep in a folder with the command that started it.",
    )
    resume.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run, a comparison or a sweep")
    _add_set(resume, "change a setting that does not change results, or rounds, such as rounds=3000")
    _add_watching(resume)
    resume.set_defaults(act=_resume)

    report = commands.add_parser(
        "report",
        help="make the page of runs that are on disk",
        description="Make one self-contained HTML page of all finished runs in these folders, or below them.",
    )
    report.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="the folder of a run, or one that holds some")
    _add_page(report, "default: report.html in the first DIR")
    report.set_defaults(act=_report)

    _add_models(commands)
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

    reproduce = commands.add_parser(
        "reproduce", help="the paper's tables beside ours", description=reproduce_arguments.DESCRIPTION
    )
    reproduce_arguments.add_arguments(reproduce)
    reproduce.set_defaults(act=_reproduce)

    listing = commands.add_parser(
        "list",
        help="what there is to choose from, and every setting",
        description="List algorithms, groupings, data sets, models and experiments, or every setting of one of them.",
    )
    listing.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="algorithms, groupings, datasets, models, experiments; or a name, such as e2fl, learner or experiment",
    )
    listing.set_defaults(act=_list)
    show = commands.add_parser(
        "show", help="print a shipped experiment", description="Print a shipped experiment as TOML, to start from."
    )
    show.add_argument("name", metavar="NAME", help="an experiment; `e2fl list experiments` names them")
    show.set_defaults(act=_show)

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


def _add_sweep(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "sweep",
        help="run a grid of settings and choose the best on validation data",
        description="Run every point of a grid of settings, choose the best on validation data, and test it once.",
    )
    _add_config(parser)
    parser.add_argument(
        "--grid",
        action="append",
        required=True,
        metavar="KEY=A,B,...",
        help="a setting and the values to try, such as learner.learning_rate=0.05,0.1; may be repeated",
    )
    parser.add_argument("--algorithm", metavar="NAME", help="another algorithm, or a variant of the experiment")
    parser.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds to repeat with; default: one")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, in processes; default: 1")
    parser.add_argument(
        "--pick",
        metavar="MEASURE",
        help="the validation measure to choose by, such as user/mean; default: group/worst10, or user/worst10 where "
        "the data declares no groups",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to store it; default: a new folder in runs/")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted sweep in --out DIR")
    parser.set_defaults(act=_sweep)


def _add_models(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    predict = commands.add_parser(
        "predict",
        help="predict the rows of a table with a finished run",
        description="Predict the rows of a table, or of an array of inputs, with the model of a finished run.",
    )
    predict.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    predict.add_argument("table", type=Path, metavar="DATA", help="a CSV or Parquet file, or inputs in an .npy file")
    choice = predict.add_mutually_exclusive_group()
    _add_group(choice)
    choice.add_argument("--find-group", action="store_true", help="let the algorithm find the group of these rows")
    predict.add_argument("--out", type=Path, metavar="FILE", help="a CSV file; default: print the predictions")
    predict.set_defaults(act=_predict)
    export = commands.add_parser(
        "export",
        help="write a model of a finished run as a plain torch module",
        description="Write the model of a group as a plain torch module, with a model card beside it.",
    )
    export.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    _add_group(export)
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="NAME.safetensors or NAME.pt2")
    export.set_defaults(act=_export)


def _add_group(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--group", metavar="G", help="whose model: the name or number of a group, or global; default: the only model"
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a TOML file, or the name of a shipped experiment")
    _add_set(
        parser,
        "change a setting, such as rounds=20 or data.samples_per_client=60; may be repeated; overrides the file and "
        "its variants",
    )


def _add_set(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help=words)


def _add_watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="keep report.html up to date during training")
    parser.add_argument(
        "--keep-client-models",
        action="store_true",
        help="keep the models that clients keep (Local, Ditto) when a run is done; they take much space",
    )
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


# The commands import what they need when they run: `e2fl --help` should not wait for torch.


def _run(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.runs.runner import run_experiment
    from e2fl.watching import finish, watching

    experiment = load(options.config, _changes(options), algorithm=options.algorithm)
    _tell_imports([experiment], [*options.changes, str(options.algorithm)], options.config)
    with (
        _folder(options, f"{experiment.name}-{experiment.label}") as out,
        watching(out, command=options.command, live=options.watch, track=options.track) as watcher,
    ):
        result = run_experiment(experiment, out=out, resume=options.resume, watcher=watcher)
    finish([result], out)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import base_of
    from e2fl.config.overrides import typed
    from e2fl.runs.compare import compare, methods
    from e2fl.watching import finish, watching

    names = [name for name in options.algorithms.split(",") if name]
    changes = typed(_changes(options))
    found = methods(base_of(options.config, changes), names, changes)
    _tell_imports(list(found.values()), [*options.changes, options.algorithms], options.config)
    first = next(iter(found.values()))
    seeds = _seeds(options.seeds, first.seed)
    with (
        _folder(options, f"{first.name}-compare") as out,
        watching(out, command=options.command, live=options.watch, track=options.track) as watcher,
    ):
        runs = compare(found, seeds, out=out, resume=options.resume, watcher=watcher)
    finish(runs, out)
    return 0


def _sweep(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.sweeps.command import run_sweep

    experiment = load(options.config, options.changes, algorithm=options.algorithm)
    _tell_imports([experiment], [*options.changes, *options.grid, str(options.algorithm)], options.config)
    seeds = _seeds(options.seeds, experiment.seed)
    with _folder(options, f"{experiment.name}-{experiment.label}-sweep") as out:
        return run_sweep(
            experiment,
            options.grid,
            seeds,
            out=out,
            pick=options.pick,
            jobs=options.jobs,
            resume=options.resume,
            command=options.command,
        )


def _resume(options: argparse.Namespace) -> int:
    """Continue a run by its config.toml, or a comparison or a sweep by the command that started it."""
    from e2fl.errors import RunError
    from e2fl.watching import COMMAND

    if (options.folder / "config.toml").is_file():
        options.config, options.algorithm = options.folder / "config.toml", None
        options.out, options.resume = options.folder, True
        return _run(options)
    try:
        words = shlex.split((options.folder / COMMAND).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{options.folder} holds no run and no comparison: {COMMAND} cannot be read") from error
    if words[:2] not in (["e2fl", "compare"], ["e2fl", "sweep"]):
        raise RunError(f"{options.folder} was not made by e2fl run, e2fl compare or e2fl sweep")
    changes = [word for change in options.changes for word in ("--set", change)]
    again = _parser().parse_args([*words[1:], *changes, "--out", str(options.folder), "--resume"])
    again.command, again.watch, again.track = options.command, options.watch, options.track
    if words[1] == "sweep":
        return _sweep(again)
    again.keep_client_models = again.keep_client_models or options.keep_client_models
    return _compare(again)


def _changes(options: argparse.Namespace) -> list[str]:
    return [*options.changes, *(["keep_client_models=true"] if options.keep_client_models else [])]


def _tell_imports(experiments: "Sequence[Experiment]", typed: Sequence[str], source: object) -> None:
    """Say which code a configuration file brings in; names on the command line were the user's own choice."""
    names = dict.fromkeys(name for experiment in experiments for name in experiment.imports())
    from_file = [name for name in names if not any(name in words for words in typed)]
    if from_file:
        print(f"e2fl: {source} names code that is imported and run: {', '.join(from_file)}", file=sys.stderr)


def _report(options: argparse.Namespace) -> int:
    from e2fl.report import report_runs
    from e2fl.report.verdict import verdict

    out = options.out or options.runs[0] / "report.html"
    study = report_runs(options.runs, out, export_to=options.export)
    return _written(verdict(study), out, options.export)


def _written(words: str, out: Path, export_to: Path | None) -> int:
    print(f"{words}\n\nwritten to {out}{f' and {export_to}' if export_to else ''}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from e2fl.files import write_text
    from e2fl.runs.predict import predict_file

    found = predict_file(options.run, options.table, group=options.group, find_group=options.find_group)
    if options.out is None:
        print(found.to_csv(), end="")
        return 0
    write_text(options.out, found.to_csv())
    used = f" with the model {found.model}" if found.model else ""
    print(f"predicted {len(found.classes):,} rows{used}; written to {options.out}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from e2fl.runs.export import export_model

    model, card = export_model(options.run, options.group, options.out)
    print(f"written to {model}; its card: {card}")
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


def _reproduce(options: argparse.Namespace) -> int:
    from e2fl.reproduce.command import reproduce

    return reproduce(options)


def _list(options: argparse.Namespace) -> int:
    from e2fl.config.listing import listing

    print(listing(options.what))
    return 0


def _show(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import shipped_text

    print(shipped_text(options.name), end="")
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
    print(f"written to {options.out}; {options.out / 'README.md'} says how to run it")
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


@contextmanager
def _folder(options: argparse.Namespace, name: str) -> Iterator[Path]:
    """The folder asked for; by default a new one in runs/ or, to resume, the newest of that name.

    Making the folder claims its number: of several processes started at once, each gets its own.
    """
    runs, number = Path("runs"), 1
    made = False
    path = options.out
    if path is None and options.resume:
        while (runs / f"{name}-{number + 1}").exists():
            number += 1
        path = runs / f"{name}-{number}"
    while path is None:
        try:
            (runs / f"{name}-{number}").mkdir(parents=True)
            path, made = runs / f"{name}-{number}", True
        except FileExistsError:
            number += 1
    options.folder = path
    try:
        yield path
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise


if __name__ == "__main__":
    sys.exit(main())
