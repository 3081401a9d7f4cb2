"""Everything on the page as files: tables as CSV and LaTeX, plots as PNG and SVG, all of it as JSON."""

import json
from pathlib import Path

import vl_convert

from e2fl.report.dotplot import DotPlot
from e2fl.report.section import METHOD
from e2fl.report.sections import sections
from e2fl.report.study import Study
from e2fl.report.table import Column, Table, cells
from e2fl.report.theme import IN_FILE
from e2fl.report.verdict import key_figures, verdict
from e2fl.version import __version__

SHARPNESS = 2.0  # pixels of a PNG for one on the page


def export(study: Study, folder: Path) -> list[Path]:
    """Write all files into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []

    def put(name: str, content: str | bytes) -> None:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        written.append(path)

    parts = sections(study, IN_FILE)
    for shown in (plot for part in parts for plot in part.plots):
        plot = shown.plot(study, IN_FILE) if isinstance(shown, DotPlot) else shown
        svg = vl_convert.vegalite_to_svg(plot.spec)
        put(f"{plot.key}.svg", svg)
        put(f"{plot.key}.png", vl_convert.svg_to_png(svg, scale=SHARPNESS))
    tables = [table for part in parts for table in (*part.tables, *part.behind)]
    for table in tables:
        put(f"{table.key}.csv", table.csv())
        put(f"{table.key}.tex", table.latex())
    put("clients.csv", client_table(study).csv())
    everything = {
        "title": study.title,
        "verdict": verdict(study),
        "key_figures": [vars(figure) for figure in key_figures(study)],
        "warnings": list(study.warnings),
        "version": __version__,
        "tables": {table.key: table.json() for table in tables},
        "runs": list(study.runs),
    }
    put("report.json", json.dumps(everything, indent=1, allow_nan=False) + "\n")
    return written


def client_table(study: Study) -> Table:
    """Return a table of every client of every seed."""
    rows = []
    for method in study.methods:
        for outcome in method.outcomes:
            known = outcome.clients
            if known is None:
                continue
            groups = known.groups.tolist() if known.groups is not None else [""] * len(known)
            columns = (known.names.tolist(), groups, known.n.tolist(), known.accuracy.tolist())
            rows += [cells([method.label, outcome.seed, *values]) for values in zip(*columns, strict=True)]
    titles = ("seed", "client", "group", "n", "accuracy")
    return Table("clients", "Every client", (METHOD, *(Column(title, title) for title in titles)), tuple(rows))
