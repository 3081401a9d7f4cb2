"""A study as one HTML page: nothing is fetched, nothing is evaluated, every name is escaped."""

import json
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup

from e2fl.errors import ReportError, StorageError
from e2fl.files import write_text
from e2fl.metrics import DEFINITIONS
from e2fl.report.chart import Plot, safe_name
from e2fl.report.dotplot import LINE, DotPlot
from e2fl.report.figures import key_figures
from e2fl.report.section import Section
from e2fl.report.sections import sections
from e2fl.report.study import Study
from e2fl.report.table import METHOD, SHOWN, Column, Table
from e2fl.report.theme import MARKS, ON_PAGE, shape_of
from e2fl.report.verdict import verdict
from e2fl.templates import asset, digest, environment
from e2fl.version import __version__

MANY = 6  # with more methods, the legend does not stay visible on a phone
STATIC = (
    460  # pixels: width of a plot that is drawn before any script runs; it can be read on a phone
)


def page(study: Study, *, reload: int = 0) -> str:
    """Return the whole page; with `reload`, one that reloads after so many seconds.

    A page that reloads is drawn by scripts only.
    """
    parts = sections(study, ON_PAGE)
    library, start = bundle(), asset("e2fl.report", "page.js")
    specs = {
        f"plot-{plot.key}": plot.spec
        for part in parts
        for plot in part.plots
        if isinstance(plot, Plot)
    }
    templates = environment()
    templates.tests["dots"] = lambda plot: isinstance(plot, DotPlot)
    return templates.from_string(asset("e2fl.report", "page.html.j2")).render(
        study=study,
        sections=parts,
        verdict=verdict(study),
        figures=key_figures(study),
        legend=_legend(study),
        many=len(study.methods) > MANY,
        runs=_run_table(study),
        environments=_environments(study),
        commands=list(dict.fromkeys(run["command"] for run in study.runs if run["command"])),
        definitions={key: DEFINITIONS[key] for key in DEFINITIONS if key in _needed(study, parts)},
        still={} if reload else {name: Markup(_still(name, spec)) for name, spec in specs.items()},
        line=LINE,
        shown=SHOWN,
        reload=reload,
        version=__version__,
        policy=_policy(library, start),
        plots=Markup(_json(specs)),
        library=Markup(library),
        start=Markup(start),
        style=Markup(asset("e2fl.report", "style.css")),
        licences=asset("e2fl.report", "licences.txt"),
    )


def write(study: Study, out: Path, *, reload: int = 0) -> None:
    """Write the page atomically."""
    write_text(out, page(study, reload=reload))


@cache
def bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, kept in the user's cache."""
    from e2fl.data.files import cache_directory

    kept = cache_directory() / f"vega-{version('vl-convert-python')}.js"
    try:
        known, _, text = kept.read_text(encoding="utf-8").partition("\n")
        if known == digest(text):
            return _contained(text)
    except (OSError, ValueError):
        pass  # not made yet, or damaged
    text = _contained(str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")))
    with suppress(StorageError):  # a cache that cannot be written costs time only
        write_text(kept, f"{digest(text)}\n{text}")
    return text


def _contained(text: str) -> str:
    """Return a script that cannot close the element that contains it."""
    if "</script" in text.lower() or "<!--" in text:
        raise ReportError(
            "the plotting library cannot be embedded in a page; "
            "please report this with the version of vl-convert"
        )
    return text


def _policy(*scripts: str) -> str:
    """Return the content security policy: only these scripts may run; nothing may be fetched."""
    allowed = " ".join(f"'sha256-{digest(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """Return JSON that cannot close the element that contains it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _still(name: str, spec: dict[str, Any]) -> str:
    """Return the plot as SVG, for readers without scripts; ids of clips are unique on the page."""
    svg = str(vl_convert.vegalite_to_svg(spec | {"width": STATIC}))
    return svg.replace('id="clip', f'id="{name}-clip').replace("url(#clip", f"url(#{name}-clip")


def _legend(study: Study) -> list[dict[str, str]]:
    """Return the mark of each method."""
    return [
        {
            "label": method.label,
            "own": safe_name(method.label),
            "mark": MARKS[shape_of(place)],
            "colour": ON_PAGE.colour(place),
        }
        for place, method in enumerate(study.methods)
    ]


def _needed(study: Study, parts: list[Section]) -> set[str]:
    """Return the definitions that the page refers to."""
    tables = [table for part in parts for table in (*part.tables, *part.behind)]
    needed = {"accuracy", "interval"} | {
        column.definition for table in tables for column in table.columns
    }
    needed |= {"chance"} if any(method.chance for method in study.methods) else set()
    needed |= {"view"} if any(method.view for method in study.methods) else set()
    return needed | ({"found"} if study.groups_found else set())


def _run_table(study: Study) -> Table:
    """Return a table of the runs behind the page."""
    columns = (
        METHOD,
        Column("seed", "seed", 0),
        Column("rounds", "rounds", 0),
        Column("seconds", "seconds", 1),
        Column("version", "e2fl"),
        Column("folder", "folder"),
    )
    rows = [run | {"method": run["label"]} for run in study.runs]
    return Table.of("runs", "The runs", columns, rows)


def _environments(study: Study) -> list[str]:
    found = (
        ", ".join(f"{key} {value}" for key, value in run["environment"].items())
        for run in study.runs
    )
    return list(dict.fromkeys(text for text in found if text))
