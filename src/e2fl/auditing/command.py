"""The command `e2fl audit`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

DESCRIPTION = """Audit a table of scores or predictions for fairness, and write one self-contained page.

One row per person: y (label), y_hat (prediction, probability or score), and columns that name groups, such as sex and
race; a client column where rows belong to clients. One row per client: accuracy (or --score COLUMN), group, n.
Columns with usual names are found without options. CSV, Parquet and xlsx are read. Two tables are compared.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "audit",
        help="audit a table of scores or predictions",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="a CSV, Parquet or xlsx file")
    columns = parser.add_argument_group("columns")
    columns.add_argument("--client", metavar="COLUMN", help="the client each row belongs to")
    columns.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="A,B",
        dest="groups",
        help="the attributes that make groups: each alone, then crossed; such as sex,race",
    )
    columns.add_argument("--y", metavar="COLUMN", help="the true label")
    columns.add_argument("--y-hat", metavar="COLUMN", help="the prediction: a label, probability or score")
    columns.add_argument(
        "--score", metavar="COLUMN", help="a score per person, or without labels any measure per client, such as auroc"
    )
    meaning = parser.add_argument_group("meaning of values")
    meaning.add_argument("--positive", metavar="LABEL", help="the label that counts as positive; default: 1, yes, ...")
    meaning.add_argument("--threshold", type=float, metavar="T", help="scores of T or more are positive; default: 0.5")
    meaning.add_argument(
        "--unit", choices=("percent", "fraction"), help="unit of accuracies; default: inferred from the values"
    )
    meaning.add_argument("--lower-is-better", action="store_true", help="--score is an error, such as rmse")
    meaning.add_argument("--drop-missing", action="store_true", help="leave out rows without a label or prediction")
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--reference",
        action="append",
        metavar="GROUP",
        help="compare with this group, with 'best' (default) or 'largest'; may be repeated for several attributes",
    )
    judging.add_argument(
        "--min-n", type=int, metavar="N", help="smaller groups are not judged; default: 30 rows or 5 clients"
    )
    judging.add_argument("--suppress-below", type=int, default=0, metavar="N", help="hide groups smaller than this")
    judging.add_argument("--profile", choices=("ll144",), help="ll144: the tables of New York City's Local Law 144")
    judging.add_argument("--resamples", type=int, default=400, metavar="N", help="bootstrap resamples; default: 400")
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="FILE", help="the page; default: TABLE-audit.html beside the table")
    output.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    output.add_argument("--pdf", type=Path, metavar="FILE", help="also print the page, with Chromium, Chrome or Edge")
    output.add_argument("--export", type=Path, metavar="DIR", help="also write tables as CSV and plots as SVG")
    for name in ("system", "purpose", "auditor"):
        output.add_argument(f"--{name}", default="", metavar="TEXT", help=f"fills in the field '{name}' of the page")
    parser.set_defaults(act=run)


def run(options: argparse.Namespace) -> int:
    """Audit the tables, write the files and print what was found; 130 if interrupted, with nothing left behind."""
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("e2fl: audit interrupted; nothing was written", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    from e2fl.auditing.export import exported
    from e2fl.auditing.judging import Judging
    from e2fl.auditing.output import require_free, write, write_pdf
    from e2fl.auditing.reader import read_table
    from e2fl.auditing.result import examine
    from e2fl.auditing.table import Options

    out = options.out or options.tables[0].with_name(f"{options.tables[0].stem}-audit.html")
    written = [path for path in (out, options.json, options.pdf) if path is not None]
    require_free(written, options.tables)
    groups = tuple(name.strip() for given in options.groups for name in given.split(",") if name.strip())
    reading = Options(**{field.name: getattr(options, field.name) for field in fields(Options)} | {"groups": groups})
    judging = Judging.of(
        options.reference,
        options.profile,
        min_n=options.min_n,
        suppress_below=options.suppress_below,
        resamples=options.resamples,
    )
    tables = []
    for path in options.tables:
        with _progress(f"reading {path.name}") as tell:
            tables.append(read_table(path, reading, tell))
    with _progress("resampling clients") as tell:
        audit = examine(tables, judging, options.profile, tell)
    audit.command = getattr(options, "command", "")
    audit.about = {name: getattr(options, name) for name in ("system", "purpose", "auditor") if getattr(options, name)}
    page = audit.to_html()
    files = {} if options.export is None else exported(audit, options.export)
    require_free([*written, *files], options.tables)
    write(out, page)
    if options.json is not None:
        write(options.json, audit.to_json())
    if options.pdf is not None:
        write_pdf(page, options.pdf)
    for path, content in files.items():
        write(path, content)
    print("\n".join(audit.sentences))
    print(f"\nwritten to {', '.join(map(str, written if options.export is None else [*written, options.export]))}")
    return 0


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on a terminal, if the step takes longer than two seconds."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    form = "{desc} {percentage:3.0f} %|{bar}| {remaining}"
    with tqdm(total=1, desc=title, delay=2, leave=False, file=sys.stderr, bar_format=form) as bar:

        def tell(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield tell
