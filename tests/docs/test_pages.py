"""Pages: links lead somewhere, commands are valid, paths exist, and the length is held."""

import argparse
import re
import shlex

import pytest

import e2fl.errors
from e2fl.cli import build_parser
from e2fl_audit.command import add_arguments
from tests.docs.pages import DOCS, GENERATED, ROOT, blocks, read

SOURCE = ROOT / "src" / "e2fl"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name not in GENERATED)
WORDS = 12_500  # of all pages, without code


def test_links_lead_to_files_that_exist():
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_there_are_fifteen_pages_of_a_limited_length():
    assert len(PAGES) == 15
    assert sum(_words(page.read_text(encoding="utf-8")) for page in PAGES) <= WORDS


def _words(text):
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    return sum(bool(re.search(r"\w", word)) for word in prose.split())


def test_the_options_that_the_page_on_audits_names_exist():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", read("docs/audit.md")))
    assert len(named) > 10
    assert named <= set(parser._option_string_actions)


def test_the_files_that_the_architecture_names_exist():
    paths = re.findall(r"`([\w/]+(?:\.py|\.toml|/))`", read("docs/architecture.md"))
    missing = [
        path
        for path in paths
        if "mine" not in path and not (SOURCE / path).exists() and not (ROOT / path).exists()
    ]
    assert len(paths) > 40
    assert not missing


def test_every_public_name_is_on_the_page_of_the_api():
    page = read("docs/api.md")
    shown = {*re.findall(r"^::: [\w.]+\.(\w+)$", page, re.M), *re.findall(r"`e2fl\.(\w+)`", page)}
    shown |= {name for name in vars(e2fl.errors) if "::: e2fl.errors\n" in page}
    assert set(e2fl.__all__) <= shown


def _commands():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for block in blocks(page.relative_to(ROOT), "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("e2fl "):
                    yield page.name, line


@pytest.mark.parametrize(("page", "line"), list(_commands()))
def test_a_command_is_accepted(page, line):
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    if words != ["--help"]:
        assert build_parser().parse_args(words).act


def test_the_version_is_written_in_one_place():
    """Other files must read it, or they would be forgotten at a release."""
    for name in ("pyproject.toml", "README.md"):
        assert not re.search(rf"version\s*[:=]\s*\"?{re.escape(e2fl.__version__)}", read(name))


def test_every_make_target_of_the_contributors_page_exists():
    targets = set(re.findall(r"make ([a-z-]+)", read("CONTRIBUTING.md")))
    assert {"test", "test-all", "check", "soak", "coverage"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", read("Makefile"), flags=re.M), target
