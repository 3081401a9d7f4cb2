"""The page in a browser: it draws everything, fetches and runs nothing foreign, fits the screen."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from e2fl.report.page import write_report
from tests import browsing
from tests.browsing import contrast
from tests.report.studies import method, study

pytestmark = browsing.MARKS
browser = browsing.browser

UNFOLD = "() => document.querySelectorAll('details.fold').forEach((d) => { d.open = true; })"
DRAWN = "() => [...document.querySelectorAll('.plot')].every((p) => p.dataset.drawn)"


@contextmanager
def opened(*where, unfold=True, scripts=True, **how):
    """The page after all plots were tried, with what it asked for and complained about."""
    with browsing.opened(*where, scripts=scripts, **how) as (page, said, asked):
        if scripts:
            page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)
            if unfold:
                page.evaluate(UNFOLD)
                page.wait_for_function(DRAWN, timeout=60_000)
        yield page, said, asked


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A study whose every name tries to be something else."""
    names = [
        "<script>document.title='owned'</script>",
        '"><img src=x onerror="document.title=\'owned\'">',
        "javascript:alert(1)",
        "{{constructor.constructor('alert(1)')()}}",
        "__proto__",
        "constructor",
        "a/b\\c\u202ed",
        "x" * 300,
    ]
    rng = np.random.default_rng(0)
    made = [
        method(
            label, {n: rng.uniform(40, 90, 6).tolist() for n in names}, alone=label == "toString"
        )
        for label in ("toString", names[0], names[4], names[1])
    ]
    out = tmp_path_factory.mktemp("hostile") / "out.html"
    write_report(replace(study(*made), title=names[1], warnings=tuple(names)), out)
    return out


def drawn(page):
    """For each plot: how many marks it has, and whether they have an extent."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.plot')].map((plot) => {
            const marks = [...plot.querySelectorAll('svg .mark-rect path, svg .mark-symbol path,'
                + ' svg .mark-line path, svg .mark-rule line, svg .mark-area path')];
            const box = (mark) => mark.getBoundingClientRect();
            const seen = marks.filter((mark) => box(mark).width + box(mark).height > 0).length;
            const state = plot.dataset.drawn, width = plot.getBoundingClientRect().width;
            return [plot.id, {state, marks: seen, width}];
        }))"""
    )


def foreign(asked):
    return [address for address in asked if not address.startswith(("file:", "data:"))]


def test_every_plot_is_drawn_and_nothing_is_asked_for_or_complained_of(browser, made):
    with opened(browser, made / "report.html") as (page, said, asked):
        plots = drawn(page)
        assert len(plots) >= 7
        for name, plot in plots.items():
            assert plot["state"] == "yes", name
            assert plot["marks"] >= 2, name
            assert plot["width"] > 200, name
        page.hover("#plot-distribution .mark-symbol path >> nth=0")
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert "method" in page.inner_text("#vg-tooltip-element")
        for name, spec in json.loads(page.locator("#plots").inner_text()).items():
            assert page.get_attribute(f"#{name}", "aria-label") == spec["description"], name
        assert said == []
        assert foreign(asked) == []
        page.evaluate(
            """() => {
                const s = document.createElement('script');
                s.textContent = "document.title = 'owned'";
                document.body.append(s); }"""
        )
        assert page.title() == "Fairness report: toy"
        assert any("Content Security Policy" in text for _, text in said)


def test_outcome_groups_and_clients_are_open_and_a_link_opens_the_rest(browser, made):
    with opened(browser, made / "report.html", unfold=False) as (page, said, _):
        for shown in ("#table-main", "#plot-group-accuracy", "#plot-distribution"):
            assert page.locator(shown).is_visible()
        assert page.locator("#plot-curve-mean-round").is_hidden()
        page.click('.contents a[href="#curves"]')
        page.wait_for_selector("#plot-curve-mean-round[data-drawn=yes] svg", state="visible")
        page.click('#table-main a[href="#def-variance"]')
        assert page.locator("#def-variance").is_visible()
        assert said == []


def overflow(page):
    """Pixels by which the page is wider than the screen, and what sticks out of it."""
    return page.evaluate(
        """() => [document.documentElement.scrollWidth - document.documentElement.clientWidth,
            [...document.querySelectorAll('body *')]
                .filter((e) => !e.closest('.scroll, .aloud, svg, script')
                    && e.getBoundingClientRect().right > innerWidth + 1)
                .map((e) => e.outerHTML.slice(0, 80))]"""
    )


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_the_screen_and_names_every_group(browser, made, hostile, runs, width):
    summary = json.loads((runs / "e2fl-seed0" / "summary.json").read_text())
    for path in (made / "report.html", hostile):
        with opened(browser, path, width=width) as (page, _, _):
            page.evaluate(
                "() => document.querySelectorAll('details').forEach((d) => { d.open = true; })"
            )
            assert overflow(page) == [0, []]
            for name in summary["groups"] if path != hostile else ():
                box = page.get_by_text(f"{name} (").first.bounding_box()
                assert box["width"] > 5
                assert box["x"] + box["width"] <= width


def test_texts_and_marks_stand_out_on_light_and_dark_pages_whose_plots_follow(browser, made):
    colours = []
    for scheme in ("light", "dark"):
        with opened(browser, made / "report.html", scheme=scheme) as (page, _, _):
            texts = ("#verdict", ".subtitle", "figcaption", "td", "thead th", ".note", "summary")
            for selector in (*texts, "dd", "nav a"):
                assert contrast(page, selector) >= 4.5, (selector, scheme)
            for position in range(8):
                colour = f"document.querySelector('.subtitle').style.color = 'var(--c{position})'"
                page.evaluate(f"() => {{ {colour}; }}")
                assert contrast(page, ".subtitle") >= 3, (position, scheme)
            colours.append(
                page.evaluate(
                    """() => {
                        const style = (what) => getComputedStyle(document.querySelector(what));
                        return [style('body').backgroundColor,
                            style('#plot-distribution .mark-rect path').fill,
                            style('#plot-group-accuracy .mark-symbol path').fill,
                            style('#plot-distribution .role-axis-label text').fill];
                    }"""
                )
            )
    assert all(light != dark for light, dark in zip(*colours, strict=True))


def test_hostile_names_run_nothing(browser, hostile):
    with opened(browser, hostile) as (page, said, asked):
        page.hover("#plot-distribution .mark-symbol path >> nth=0")  # tooltips show names too
        page.wait_for_timeout(200)
        assert page.title().startswith("Fairness report")
        assert said == []
        assert foreign(asked) == []
        assert all(plot["state"] == "yes" for plot in drawn(page).values())
        # Vega writes names into attributes and texts; none of them became an element.
        elements = "document.querySelectorAll('main img, main script, svg image, b b').length"
        assert page.evaluate(f"() => {elements}") == 0


def test_a_name_pressed_dims_the_others_in_every_plot(browser, made):
    count = """() => [...document.querySelectorAll('#plot-distribution .mark-rect path')]
        .filter((path) => Number(getComputedStyle(path).opacity) < 0.2).length"""
    with opened(browser, made / "report.html") as (page, said, _):
        assert page.evaluate(count) == 0
        page.click(".legend button >> nth=0")
        page.wait_for_function(f"({count})() > 0")
        assert page.get_attribute(".legend button >> nth=0", "aria-pressed") == "true"
        page.click(".legend button >> nth=0")
        page.wait_for_function(f"({count})() === 0")
        assert said == []


def test_paper_gets_every_table_in_light_colours(browser, made, tmp_path):
    closed = "document.querySelectorAll('.behind:not([open]), .fold:not([open])').length"
    with opened(browser, made / "report.html", scheme="dark", unfold=False) as (page, _, _):
        page.emulate_media(media="print")
        background = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(f"() => {background}") == "rgb(255, 255, 255)"
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(f"() => {closed}") == 0
        assert page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_without_scripts_every_plot_and_every_group_is_there(browser, made, runs):
    with opened(browser, made / "report.html", width=390, scripts=False) as (page, _, _):
        for plot in page.locator(".plot").all():
            assert plot.locator("svg .mark-group").count() > 0
            assert plot.bounding_box() is None or plot.bounding_box()["width"] <= 390
        names = set(json.loads((runs / "e2fl-seed0" / "summary.json").read_text())["groups"])
        text = page.locator("#plot-group-accuracy svg").inner_html()
        assert all(f"{name} (" in text for name in {*names, "All clients"})
