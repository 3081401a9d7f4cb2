"""Everything on the page as files: tables as CSV and LaTeX, plots as PNG and SVG, all of it as JSON."""

import json
from pathlib import Path

from e2fl.errors import ReportError
from e2fl.report import contents
from e2fl.report.sections import sections
from e2fl.report.study import Json, Study
from e2fl.report.table import Table
from e2fl.report.theme import IN_FILE
from e2fl.report.verdict import verdict
from e2fl.runs.records import finite
from e2fl.version import __version__

SHARPNESS = 2.0  # pixels of a PNG for one on the page


def export(study: Study, folder: Path) -> list[Path]:
    """Write all files into a folder, and say which."""
    try:
        import vl_convert
    except ImportError as error:
        raise ReportError(
            "exporting plots needs the plotting library; get it with: pip install 'e2fl[report]'"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []

    def put(name: str, content: str | bytes) -> None:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        written.append(path)

    parts = sections(study, IN_FILE)
    for part in parts:
        for plot in part.plots:
            svg = vl_convert.vegalite_to_svg(plot.spec)
            put(f"{plot.key}.svg", svg)
            put(f"{plot.key}.png", vl_convert.svg_to_png(svg, scale=SHARPNESS))
    tables = [table for part in parts for table in (*part.tables, *part.behind)]
    if study.source == "runs":
        tables.append(contents.fact_table(study))
    for table in tables:
        put(f"{table.key}.csv", table.csv())
        put(f"{table.key}.tex", table.latex())
    clients = contents.client_table(study)
    put(f"{clients.key}.csv", clients.csv())
    put("report.json", json.dumps(finite(_everything(study, tables)), indent=1, allow_nan=False) + "\n")
    return written


def _everything(study: Study, tables: list[Table]) -> Json:
    return {
        "title": study.title,
        "verdict": verdict(study),
        "cautions": list(study.cautions),
        "version": __version__,
        "tables": {table.key: table.json() for table in tables},
        "runs": list(study.facts),
    }
