"""A study as one HTML page: nothing is fetched, nothing is evaluated, every name is escaped.

`export` writes everything on the page as files.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pooch
import vl_convert
from markupsafe import Markup

from e2fl.errors import StorageError
from e2fl.files import write_text
from e2fl.metrics import DEFINITIONS
from e2fl.report.charts import STYLE, THEME, Plot, colour_of, safe_name, shape_of
from e2fl.report.sections import Section, sections
from e2fl.report.study import Study
from e2fl.report.table import METHOD, Column, Table, environment
from e2fl.report.verdict import verdict
from e2fl.version import __version__

STATIC_WIDTH = 460  # pixels of a plot drawn before any script runs; it can be read on a phone
MAX_SHOWN_ROWS = 200  # rows of a table on the page; files have all
MAX_CSV_LINK = 200_000  # characters of a CSV to save from the page; longer ones are only exported
PNG_SCALE = 2.0  # pixels of a PNG for one on the page


def write_report(study: Study, out: Path, *, export_to: Path | None = None) -> None:
    """Write the page of a study and, if asked, its tables and plots as files."""
    parts = sections(study)
    write_text(out, page(study, parts))
    if export_to is not None:
        export(study, parts, export_to)


def page(study: Study, parts: Sequence[Section] | None = None, *, reload: int = 0) -> str:
    """Return the whole page; with `reload`, one that reloads after so many seconds.

    A page that reloads is drawn by scripts only. parts: its sections, if they were made before.
    """
    parts = sections(study) if parts is None else parts
    drawn = [plot for part in parts for plot in part.plots]
    library, start = bundle(), _asset("page.js")
    plots = {f"plot-{plot.key}": plot.for_page() for plot in drawn}
    template = environment("e2fl.report").get_template("page.html.j2")
    return template.render(
        study=study,
        sections=parts,
        verdict=verdict(study),
        legend=_legend(study),
        runs=_run_table(study),
        definitions=DEFINITIONS,
        still={} if reload else {plot.key: Markup(_still(plot)) for plot in drawn},
        link=_link,
        shown=MAX_SHOWN_ROWS,
        reload=reload,
        version=__version__,
        policy=_policy(library, start),
        # JSON that cannot close the element that contains it.
        plots=Markup(json.dumps(plots, allow_nan=False).replace("<", "\\u003c")),
        library=Markup(library),
        start=Markup(start),
        style=Markup(STYLE),
        licences=_asset("licences.txt"),
    )


def export(study: Study, parts: Sequence[Section], folder: Path) -> None:
    """Write all tables as CSV and LaTeX, all plots as SVG, PNG and PDF, and all of it as JSON."""
    said = verdict(study)
    tables = [table for part in parts for table in (*part.tables, *part.behind)]
    for plot in (plot for part in parts for plot in part.plots):
        svg = vl_convert.vegalite_to_svg(plot.for_file())
        write_text(folder / f"{plot.key}.svg", svg)
        (folder / f"{plot.key}.png").write_bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))
        (folder / f"{plot.key}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))
    for table in tables:
        table.write(folder, table.key)
    everything = {
        "title": study.title,
        "verdict": said.text,
        "key_figures": [figure._asdict() for figure in said.figures],
        "warnings": study.warnings,
        "settings": study.settings,
        "version": __version__,
        "tables": {table.key: table.json() for table in tables},
        "runs": study.runs,
    }
    write_text(folder / "report.json", json.dumps(everything, indent=1, allow_nan=False) + "\n")


@cache
def bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, kept in the user's cache."""
    cached = Path(pooch.os_cache("e2fl")) / f"vega-embed-{version('vl-convert-python')}.js"
    with suppress(OSError, ValueError):
        return cached.read_text(encoding="utf-8")
    text = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    text = text.replace("</script", r"<\/script").replace("<!--", r"<\!--")
    with suppress(StorageError):  # a cache that cannot be written costs time only
        write_text(cached, text)
    return text


def _asset(name: str) -> str:
    return (files("e2fl.report") / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Return the content security policy: only these scripts may run; nothing may be fetched."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts)
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _still(plot: Plot) -> str:
    """Return the plot as SVG, for readers without scripts; ids of clips are unique on the page."""
    svg = str(vl_convert.vegalite_to_svg(plot.for_page(STATIC_WIDTH)))
    return svg.replace('id="clip', f'id="{plot.key}-clip').replace("(#clip", f"(#{plot.key}-clip")


def _link(table: Table) -> str:
    """Return the CSV of a table as a data URL; empty if the table is too long."""
    text = table.csv()
    data = base64.b64encode(text.encode()).decode()
    return f"data:text/csv;base64,{data}" if len(text) <= MAX_CSV_LINK else ""


def _legend(study: Study) -> list[dict[str, str]]:
    """Return the mark of each method."""
    return [
        {"label": method.label, "own": safe_name(method.label)}
        | {"mark": THEME["marks"][shape_of(position)], "colour": colour_of(position)}
        for position, method in enumerate(study.methods)
    ]


def _run_table(study: Study) -> Table:
    """Return a table of the runs behind the page."""
    digits: dict[str, Any] = {"seed": 0, "rounds": 0, "seconds": 1}
    columns = [METHOD, *(Column(key, key, places) for key, places in digits.items())]
    columns += [Column("version", "e2fl"), Column("folder", "folder")]
    return Table("runs", "The runs", columns, study.runs)
