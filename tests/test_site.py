"""The documentation site: generated pages are complete, commands are valid, examples run, and the site builds."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2fl.cli import build_parser
from e2fl.config.listing import entries

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_setting_appears_in_the_reference_below_what_it_belongs_to():
    sections = re.split(r"^#+ ", generator().settings_reference(), flags=re.M)[1:]
    for entry in entries():
        if entry.kind == entry.name:
            (section,) = [part for part in sections if part.splitlines()[0].endswith(entry.name)]
        else:
            (section,) = [part for part in sections if f"{{ #{entry.kind}-{entry.name} }}" in part]
        for setting in entry.settings:
            assert f"| `{setting.name}` |" in section, (entry.name, setting.name)


def test_every_data_set_has_a_validation_share():
    sets = [entry for entry in entries() if entry.kind == "datasets"]
    assert all("validation_share" in {setting.name for setting in entry.settings} for entry in sets)


def test_a_row_of_the_reference_has_as_many_cells_as_its_header():
    for row in [*generator().settings_reference().splitlines(), *generator().command_reference().splitlines()]:
        if row.startswith("|"):
            assert len(re.split(r"(?<!\\)\|", row)) in (4, 6), row


def test_every_command_and_option_appears_in_the_reference():
    page = generator().command_reference()
    for words in (
        ["run"],
        ["compare"],
        ["resume"],
        ["sweep"],
        ["tune"],
        ["predict"],
        ["export"],
        ["data", "get"],
        ["flower", "keys"],
    ):
        assert f"## e2fl {' '.join(words)}\n" in page
    for option in ("--watch", "--track TRACKER", "--grid KEY=A,B,...", "--find-group", "--keep-client-models"):
        assert f"`{option}`" in page


def commands():
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("e2fl "):
                    yield page.name, line


@pytest.mark.parametrize(("page", "line"), list(commands()))
def test_commands_of_the_documentation_are_accepted(page, line):
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    if words != ["--help"]:
        assert build_parser().parse_args(words).act


@pytest.mark.parametrize("word", ["variants", "label", "--watch", "--track", "E2FL_DATA", "read_run", '"__main__:'])
def test_the_pages_explain(word):
    assert any(word in page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart.md", "python.md", "predicting.md"])
def test_the_python_of_a_page_runs_from_top_to_bottom(name, tmp_path):
    pytest.importorskip("mlxtend")
    pytest.importorskip("altair")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    paths = []
    for place, block in enumerate(python_blocks(name)):
        paths.append(f"block{place}.py")
        (tmp_path / paths[-1]).write_text(block, encoding="utf-8")
    code = (
        f"import runpy\nfor path in {paths}: runpy.run_path(path, run_name='__main__')"  # each as a script of its own
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}:\n{done.stderr}"


def build(folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_builds_and_a_broken_link_fails_it(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "learning_rate" in (tmp_path / "site" / "settings" / "index.html").read_text(encoding="utf-8")
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](quickstart.md#no-such-heading)\n")
    done = build(tmp_path)
    assert done.returncode != 0
    assert "no-such-heading" in done.stderr
