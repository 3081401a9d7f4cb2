"""A study as one HTML page: nothing is fetched, nothing is evaluated, everything foreign is escaped."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from e2fl.errors import ReportError
from e2fl.report import contents
from e2fl.report.chart import own_name
from e2fl.report.definitions import DEFINITIONS
from e2fl.report.sections import Section, sections
from e2fl.report.study import Study
from e2fl.report.table import Table
from e2fl.report.theme import ON_PAGE, shape_of
from e2fl.report.verdict import verdict
from e2fl.runs.records import finite
from e2fl.version import __version__

WIDE = ("groups",)  # sections whose plots need the whole width
MANY = 6  # names after which a legend does not stay in sight on a phone
LONG = 12  # rows after which a table behind a plot scrolls

MARKS = {
    "circle": '<circle cx="8" cy="8" r="6"/>',
    "square": '<path d="M2.5 2.5h11v11h-11z"/>',
    "triangle-up": '<path d="M8 1.5 15 14H1z"/>',
    "diamond": '<path d="M8 .5 15 8 8 15.5 1 8z"/>',
    "cross": '<path d="M5.5 1h5v4.5H15v5h-4.5V15h-5v-4.5H1v-5h4.5z"/>',
    "triangle-down": '<path d="M1 2h14L8 14.5z"/>',
    "triangle-right": '<path d="M2 1v14l12.5-7z"/>',
    "triangle-left": '<path d="M14 1v14L1.5 8z"/>',
}


@cache
def script() -> str:
    """The plotting library, whole: Vega, Vega-Lite and Vega-Embed."""
    try:
        import vl_convert
    except ImportError as error:
        raise ReportError("the page needs the plotting library; get it with: pip install 'e2fl[report]'") from error
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in bundle.lower() or "<!--" in bundle:
        raise ReportError("the plotting library cannot stand inside a page; please report the version of vl-convert")
    return bundle


def page(study: Study, *, reload: int = 0) -> str:
    """The whole page; with `reload`, one that loads itself anew after so many seconds."""
    parts = sections(study, ON_PAGE)
    specs = {f"plot-{plot.key}": plot.spec for part in parts for plot in part.plots}
    library, start = script(), _asset("page.js")
    title = f"Fairness report: {study.title}"
    body = "".join(_section(part, study) for part in parts) + _made(study)
    refresh = f'<noscript><meta http-equiv="refresh" content="{reload}"></noscript>' if reload else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(library, start)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="e2fl {__version__}">
<link rel="icon" href="data:,">
{refresh}<title>{escape(title)}</title>
<style>{_asset("style.css")}</style>
</head>
<body data-reload="{reload}">
<header>
<p class="kicker">Fairness report</p>
<h1>{escape(study.title)}</h1>
<p class="subtitle">{escape(study.subtitle)}</p>
<p class="verdict" id="verdict">{escape(verdict(study))}</p>
{_cautions(study.cautions)}
<nav aria-label="Contents"><ul class="contents">{_menu(parts)}</ul></nav>
</header>
{_legend(study)}
<main>
{body}
{_definitions(body, study)}
</main>
<footer>{_footer()}</footer>
<script type="application/json" id="plots">{_json(specs)}</script>
<script>{library}</script>
<script>{start}</script>
</body>
</html>
"""


def write(study: Study, out: Path, *, reload: int = 0) -> None:
    """Put the page in place, whole or not at all."""
    text = page(study, reload=reload)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)


def _menu(parts: Sequence[Section]) -> str:
    places = [(part.key, part.title) for part in parts]
    places += [("made", "How it was made"), ("definitions", "Definitions")]
    return "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in places)


def _policy(*scripts: str) -> str:
    """Only the two scripts below may run; nothing may be fetched."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _asset(name: str) -> str:
    return (files("e2fl.report") / name).read_text(encoding="utf-8")


def _cautions(cautions: Sequence[str]) -> str:
    if not cautions:
        return ""
    return f'<ul class="cautions">{"".join(f"<li>{escape(caution)}</li>" for caution in cautions)}</ul>'


def _legend(study: Study) -> str:
    """One legend for all plots, which stays in sight; a name pressed is brought forward everywhere."""
    if len(study.contenders) < 2:
        return ""
    buttons = []
    for place, contender in enumerate(study.contenders):
        mark = MARKS[shape_of(place)]
        colour = ON_PAGE.colour(place)
        label = escape(contender.label)
        buttons.append(
            f'<button type="button" aria-pressed="false" data-label="{escape(own_name(contender.label))}">'
            f'<svg viewBox="0 0 16 16" aria-hidden="true" style="fill:{colour}">{mark}</svg>{label}</button>'
        )
    hint = '<span class="hint">Press a name to bring it forward in every plot.</span>'
    many = " many" if len(buttons) > MANY else ""
    return f'<div class="legend{many}" role="group" aria-label="Algorithms"><div>{"".join(buttons)}{hint}</div></div>'


def _section(part: Section, study: Study) -> str:
    figures = [_figure(plot.key, plot.title, plot.caption, plot.alt) for plot in part.plots]
    body = "".join(figures) if len(figures) < 2 or part.key in WIDE else f'<div class="pair">{"".join(figures)}</div>'
    samples = _samples(study) if part.key == "data" else ""
    behind = ""
    if part.behind:
        tables = "".join(_behind(table) for table in part.behind)
        behind = (
            f'<details class="behind" id="behind-{part.key}"><summary>The numbers behind</summary>{tables}</details>'
        )
    return (
        f'<section id="{part.key}" aria-labelledby="head-{part.key}"><h2 id="head-{part.key}">{escape(part.title)}</h2>'
        f"<p>{escape(part.intro)}</p>{''.join(table.html() for table in part.tables)}{samples}{body}{behind}</section>"
    )


def _behind(table: Table) -> str:
    text = table.html()
    return text.replace('class="scroll"', 'class="scroll long"', 1) if len(table.rows) > LONG else text


def _figure(key: str, title: str, caption: str, alt: str) -> str:
    return (
        f"<figure><h3>{escape(title)}</h3>"
        f'<div class="plot" id="plot-{key}" role="img" aria-label="{escape(alt)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _samples(study: Study) -> str:
    """Examples of each group, as they are."""
    data = study.data or {}
    if "missing" in data:
        return f'<p class="note">No picture of the data could be drawn here ({escape(data["missing"])}).</p>'
    images = data.get("images") or {}
    if not images:
        return ""
    shown = []
    for group, address in images.items():
        count = data["sizes"].get(group, 0)
        about = f"{group}: 1 client" if count == 1 else f"{group}: {count:,} clients"
        alt = f"Training examples of {group}"
        image = f'<img src="{escape(address)}" alt="{escape(alt)}">'
        shown.append(f"<figure>{image}<figcaption>{escape(about)}</figcaption></figure>")
    return f'<div class="samples">{"".join(shown)}</div>'


def _made(study: Study) -> str:
    """Everything needed to do it again."""
    if study.source == "table":
        files_read = "".join(f"<li>{escape(fact['about'])}</li>" for fact in study.facts)
        return (
            '<section id="made"><h2>How it was made</h2><p>From tables of scores made elsewhere; '
            f"how they were measured is not known to this page.</p><ul>{files_read}</ul></section>"
        )
    commands = list(dict.fromkeys(fact["command"] for fact in study.facts if fact["command"]))
    again = "\n".join(commands)
    head = f"<p>To repeat all of it:</p><pre><code>{escape(again)}</code></pre>" if commands else ""
    configs = []
    for fact in study.facts:
        name = escape(f"Configuration of {fact['label']}, seed {fact['seed']}")
        configs.append(f"<details><summary>{name}</summary><pre><code>{escape(fact['config'])}</code></pre></details>")
    return (
        f'<section id="made"><h2>How it was made</h2>{head}{contents.fact_table(study).html()}'
        "<p>To repeat one run, save its configuration as config.toml and run it: "
        f"<code>e2fl run config.toml</code>. The same seed gives the same bits.</p>{''.join(configs)}</section>"
    )


def _definitions(body: str, study: Study) -> str:
    """What the page so far refers to, explained."""
    needed = {"accuracy"}
    needed |= {"interval"} if len(study.seeds) > 1 else set()
    needed |= {"view"} if any(contender.view for contender in study.contenders) else set()
    entries = "".join(
        f'<dt id="def-{key}">{escape(title)}</dt><dd>{escape(text)}</dd>'
        for key, (title, text) in DEFINITIONS.items()
        if key in needed or f'href="#def-{key}"' in body
    )
    return f'<section id="definitions"><h2>Definitions</h2><dl>{entries}</dl></section>'


def _footer() -> str:
    return (
        f"<p>Made by e2fl {__version__} from measurements on disk. The verdict is computed; nobody wrote it.</p>"
        f"<details><summary>Licences of what is inside this page</summary>"
        f"<pre>{escape(_asset('licences.txt'))}</pre></details>"
    )
