"""Everything on the page as files: tables as CSV and LaTeX, plots as PDF, PNG and SVG, and JSON."""

import json
from pathlib import Path

import vl_convert

from e2fl.report.dotplot import DotPlot
from e2fl.report.figures import key_figures
from e2fl.report.sections import sections
from e2fl.report.study import Study
from e2fl.report.table import METHOD, Column, Table
from e2fl.report.theme import IN_FILE
from e2fl.report.verdict import verdict
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
        put(f"{plot.key}.pdf", vl_convert.svg_to_pdf(svg))
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
        "settings": list(study.settings),
        "version": __version__,
        "tables": {table.key: table.json() for table in tables},
        "runs": list(study.runs),
    }
    put("report.json", json.dumps(everything, indent=1, allow_nan=False) + "\n")
    return written


def client_table(study: Study) -> Table:
    """Return a table of every client of every seed."""
    rows = [
        {"method": method.label, "seed": seed} | {str(key): cell for key, cell in row.items()}
        for method in study.methods
        for seed, clients in method.clients.items()
        for row in clients.to_dict("records")
    ]
    titles = ("seed", "client", "group", "n", "accuracy")
    columns = [METHOD, *(Column(title, title) for title in titles)]
    return Table.of("clients", "Every client", columns, rows)
