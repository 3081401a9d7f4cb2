"""The audit's page in a browser: it fits every screen, needs no scripts, runs nothing foreign."""

import numpy as np
import pytest

from e2fl_audit import audit
from tests import browsing
from tests.audit.tables import people
from tests.audit.test_output import evil_table
from tests.browsing import contrast, opened

pytestmark = browsing.MARKS
browser = browsing.browser
ORDER = """() => [...document.querySelector('#group-2 svg.dots').querySelectorAll('g.row')]
    .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
    .map((row) => row.dataset.name)"""


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


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1000, "dark"), (390, "light")])
def test_the_page_fits_the_screen_and_complains_of_nothing(browser, pages, name, width, scheme):
    with opened(browser, pages / f"{name}.html", width=width, scheme=scheme) as (page, said, asked):
        width = "document.documentElement.{}Width"
        assert page.evaluate(width.format("scroll")) <= page.evaluate(width.format("client"))
        assert (said, len(asked)) == ([], 1)
        assert page.title() == "Fairness audit: DataFrame"


@pytest.mark.parametrize("width", [1440, 390])
def test_every_group_is_drawn_and_readable_without_scripts(browser, pages, width):
    with opened(browser, pages / "plain.html", width=width, scripts=False) as (page, _, _):
        plots = page.locator("#group-3 svg.dots")
        assert plots.count() == 5
        for place in range(5):
            labels = plots.nth(place).locator("g.row text:first-of-type")
            assert labels.count() == 12
            assert labels.nth(0).is_visible()
            assert labels.nth(0).bounding_box()["height"] >= 10  # text is not scaled down


def test_groups_can_be_put_in_another_order(browser, pages):
    with opened(browser, pages / "plain.html") as (page, _, _):
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
    with opened(browser, pages / "plain.html", scheme=scheme) as (page, _, _):
        for text in ("h1", ".subtitle", ".figure .title", "a", ".interval", "thead th", "dt"):
            assert contrast(page, text) >= 4.5, text
