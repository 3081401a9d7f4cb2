"""A browser for the tests of pages, which are slow: what a page says and asks for, its contrast."""

import shutil
from contextlib import contextmanager

import pytest
from playwright import sync_api as playwright

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="install Debian's package chromium"),
]
OFFLINE = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update"


@pytest.fixture(scope="module")
def browser():
    options = [*OFFLINE.split(), "--disable-sync", "--no-first-run"]
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@contextmanager
def opened(browser, path, *, width=1280, scheme="light", scripts=True):
    """The page, what it complains about, and what it asks for."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
    )
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append((message.type, message.text)))
    page.on("pageerror", lambda error: said.append(("error", str(error))))
    page.on("dialog", lambda dialog: (said.append(("dialog", dialog.message)), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    try:
        yield page, said, asked
    finally:
        context.close()


def contrast(page, selector):
    """Of a text against the page behind it, as WCAG reckons."""
    return page.evaluate(
        """(selector) => {
            const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            const light = (text) => {
                const [r, g, b] = text.match(/[\\d.]+/g).map((v) => linear(v / 255));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            let back = document.querySelector(selector), ink = light(getComputedStyle(back).color);
            while (getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)')
                back = back.parentElement;
            const ground = light(getComputedStyle(back).backgroundColor);
            return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05); }""",
        selector,
    )
