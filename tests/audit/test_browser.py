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
ORDER = """() => [...document.querySelector('#group-2 svg.dots').querySelectorAll('g.row')]
    .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
    .map((row) => row.dataset.name)"""
CONTRAST = """() => {
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
    """The page, and what it says and asks for."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
    )
    page, told = context.new_page(), []
    for event in ("console", "pageerror", "dialog", "request"):
        page.on(event, lambda what, event=event: told.append(event))
    page.goto(path.as_uri())
    yield page, told
    context.close()


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1000, "dark"), (390, "light")])
def test_the_page_fits_the_screen_and_complains_of_nothing(browser, pages, name, width, scheme):
    with opened(browser, pages / f"{name}.html", width=width, scheme=scheme) as (page, told):
        width = "document.documentElement.{}Width"
        assert page.evaluate(width.format("scroll")) <= page.evaluate(width.format("client"))
        assert told == ["request"]
        assert page.title() == "Fairness audit: DataFrame"


@pytest.mark.parametrize("width", [1440, 390])
def test_every_group_is_drawn_and_readable_without_scripts(browser, pages, width):
    with opened(browser, pages / "plain.html", width=width, scripts=False) as (page, _):
        plots = page.locator("#group-3 svg.dots")
        assert plots.count() == 5
        for place in range(5):
            labels = plots.nth(place).locator("g.row text:first-of-type")
            assert labels.count() == 12
            assert labels.nth(0).is_visible()
            assert labels.nth(0).bounding_box()["height"] >= 10  # text is not scaled down


def test_groups_can_be_put_in_another_order(browser, pages):
    with opened(browser, pages / "plain.html") as (page, _):
        before = page.evaluate(ORDER)
        for order, expected in (("by name", sorted(before)), ("by value", before)):
            page.locator("#group-2 .order button", has_text=order).click()
            assert page.evaluate(ORDER) == expected
        page.locator("#group-2 table.sortable thead button", has_text="Accuracy").first.click()
        cells = page.locator("#group-2 table.sortable").first.locator("tbody tr td:nth-child(4)")
        shown = [cells.nth(place).get_attribute("data-value") for place in range(cells.count())]
        assert shown == sorted(shown, key=float)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plain_text_has_enough_contrast(browser, pages, scheme):
    """Every colour of text against the page: at least 4.5 to 1."""
    with opened(browser, pages / "plain.html", scheme=scheme) as (page, _):
        assert min(page.evaluate(CONTRAST)) >= 4.5
