"""The documentation site: generated parts are complete, and the site builds."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

from e2fl.config.listing import stored
from e2fl.metrics import DEFINITIONS, MEASURES
from tests.docs.pages import DOCS, ROOT


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_setting_appears_below_what_it_belongs_to(generate):
    sections = re.split(r"^#+ ", generate.settings_reference(), flags=re.M)[1:]
    for entry in stored():
        if entry.kind == entry.name:
            (section,) = [part for part in sections if part.splitlines()[0].endswith(entry.name)]
        else:
            (section,) = [part for part in sections if f"{{ #{entry.kind}-{entry.name} }}" in part]
        for setting in entry.settings:
            assert f"| `{setting.name}` |" in section, (entry.name, setting.name)


def test_a_row_has_as_many_cells_as_its_header(generate):
    pages = (generate.settings_reference(), generate.command_reference())
    for row in "\n".join(pages).splitlines():
        if row.startswith("|"):
            assert len(re.split(r"(?<!\\)\|", row)) in (4, 6), row


def test_every_command_and_option_appears(generate):
    page = generate.command_reference()
    commands = "run", "compare", "resume", "sweep", "tune", "predict", "export", "data get"
    for words in (*commands, "flower export"):
        assert f"## e2fl {words}\n" in page
    for option in ("--watch", "--track TRACKER", "--grid KEY=A,B,...", "--find-group", "--trust"):
        assert f"`{option}`" in page


def test_every_measure_and_definition_appears(generate):
    page = generate.measure_reference()
    for key in MEASURES:
        assert f"| `{key}` |" in page
    for key, definition in DEFINITIONS.items():
        assert f"## {definition.title} {{ #{key} }}" in page


def _build(folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "NO_MKDOCS_2_WARNING": "1"}
    generate = [sys.executable, "docs/generate.py", "build/docs"]
    subprocess.run(generate, cwd=folder, env=environment, check=True)
    return subprocess.run(
        [*command, "--site-dir", str(folder / "site")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_site_builds_and_a_broken_link_fails_it(tmp_path):
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = _build(tmp_path)
    assert done.returncode == 0, done.stderr
    settings = (tmp_path / "site" / "settings" / "index.html").read_text(encoding="utf-8")
    assert "learning_rate" in settings
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](running.md#no-such-heading)\n")
    done = _build(tmp_path)
    assert done.returncode != 0
    assert "no-such-heading" in done.stderr
