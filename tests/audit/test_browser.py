"""The audit's page in a browser: it fits every screen, needs no scripts, runs nothing foreign."""

import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from e2fl_audit import audit
from tests.audit.tables import people
from tests.audit.test_output import evil_table

playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
]
OFFLINE = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update"


@pytest.fixture(scope="module")
def browser():
    options = [*OFFLINE.split(), "--disable-sync", "--no-first-run"]
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A table of twelve crossed groups, and one whose every name tries to be something else."""
    folder = tmp_path_factory.mktemp("pages")
    races = ["White", "Black", "Hispanic", "Asian", "Native American", "Pacific Islander"]
    frame = people(6000, groups=["Female", "Male"], clients=80)
    frame["race"] = np.random.default_rng(1).choice(races, 6000)
    frame["y_hat"] = frame["y_hat"].where(frame.sex == "Male", frame["y"])
    audit(frame).save(folder / "plain.html")
    audit(evil_table()).save(folder / "hostile.html")
    return folder


@contextmanager
def opened(browser, path, *, width=1440, scheme="light", scripts=True):
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
    )
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append((message.type, message.text)))
    page.on("pageerror", lambda error: said.append(("error", str(error))))
    page.on("dialog", lambda dialog: (said.append(("dialog", dialog.message)), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    try:
        yield page, said, asked
    finally:
        context.close()


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1000, "dark"), (390, "light")])
def test_the_page_fits_the_screen_and_complains_of_nothing(browser, pages, name, width, scheme):
    with opened(browser, pages / f"{name}.html", width=width, scheme=scheme) as (page, said, asked):
        width = "document.documentElement.{}Width"
        assert page.evaluate(width.format("scroll")) <= page.evaluate(width.format("client"))
        assert said == []
        assert len(asked) == 1
        assert page.title() == "Fairness audit: DataFrame"


@pytest.mark.parametrize(("width", "kind"), [(1440, "wide"), (390, "narrow")])
@pytest.mark.parametrize("scripts", [True, False])
def test_every_group_is_drawn_and_readable_at_each_width(browser, pages, width, kind, scripts):
    with opened(browser, pages / "plain.html", width=width, scripts=scripts) as (page, _, _):
        plots = page.locator(f"#group-3 svg.{kind}")
        assert plots.count() == 5
        for place in range(5):
            plot = plots.nth(place)
            assert plot.is_visible()
            labels = plot.locator("g.row text:first-of-type")
            assert labels.count() == 12
            box, first = plot.bounding_box(), labels.nth(0).bounding_box()
            assert first["height"] >= 10  # text is not scaled down
            assert first["x"] >= box["x"] - 1
        other = "narrow" if kind == "wide" else "wide"
        assert not page.locator(f"svg.{other}").first.is_visible()


def test_groups_can_be_put_in_another_order(browser, pages):
    with opened(browser, pages / "plain.html") as (page, _, _):

        def names():
            return page.evaluate(
                """() => [...document.querySelector('#group-2 svg.wide')
                .querySelectorAll('g.row')]
                .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
                .map((row) => row.dataset.name)"""
            )

        before = names()
        page.locator("#group-2 .order button", has_text="by name").click()
        assert names() == sorted(before)
        page.locator("#group-2 .order button", has_text="by value").click()
        assert names() == before
        page.locator("#group-2 table.sortable thead button", has_text="Accuracy").first.click()
        cells = page.locator("#group-2 table.sortable").first.locator("tbody tr td:nth-child(4)")
        shown = [cells.nth(place).get_attribute("data-value") for place in range(cells.count())]
        assert shown == sorted(shown, key=float)


def test_plain_text_has_enough_contrast_in_both_schemes(browser, pages):
    """Every colour of text against the page: at least 4.5 to 1."""
    ratio = """() => {
        const luminance = (colour) => {
            const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
                const c = part / 255;
                return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const page = luminance(getComputedStyle(document.body).backgroundColor);
        const shown = ['h1', '.subtitle', '.figure .title', 'a', '.interval', 'thead th', 'dt'];
        return shown.map((which) => {
            const text = luminance(getComputedStyle(document.querySelector(which)).color);
            return (Math.max(page, text) + 0.05) / (Math.min(page, text) + 0.05);
        });
    }"""
    for scheme in ("light", "dark"):
        with opened(browser, pages / "plain.html", scheme=scheme) as (page, _, _):
            assert min(page.evaluate(ratio)) >= 4.5
