"""What is published, and what builds it: versions, pinned actions, the lock, the distributions."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from e2fl.version import __version__
from hatch_build import LINK, address, readme_for_index

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_citation_names_the_version_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in text
    assert "https://arxiv.org/abs/2205.10454" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_named_by_commit(path):
    """A tag can be moved to other code; a commit cannot."""
    used = re.findall(r"uses:\s*(\S+)", path.read_text())
    assert used
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in used)


def test_only_the_publishing_job_may_ask_for_an_identity():
    for path in WORKFLOWS:
        text = path.read_text()
        assert "permissions:\n  contents: read\n" in text
        assert text.count("id-token: write") == (path.name == "release.yml")


def test_the_lock_pins_every_package_and_says_why_it_has_no_hashes():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    comment = " ".join(line for line in lines if line.startswith("#"))
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", pin) for pin in pins)
    assert "torch==2.13.0" in pins
    assert "no hashes" in comment


def test_the_tests_do_not_install_ray_and_trackers():
    makefile = (ROOT / "Makefile").read_text()
    (extras,) = re.findall(r"^EXTRAS := (.*)$", makefile, re.M)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(known["optional-dependencies"]) - {"ray", "track"}


def test_the_readme_on_an_index_has_no_relative_link(monkeypatch):
    """They break there: links lead to the repository that built it, or there are none."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = [path for _, _, path in LINK.findall(text)]
    assert all((ROOT / path).exists() for path in paths)
    for name, value in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "o/r")):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    made = readme_for_index(text, address(), "1.2.3")
    assert all(f"(https://github.com/o/r/blob/v1.2.3/{path})" in made for path in paths[:1])
    assert "![The report of the demo](https://github.com/o/r/raw/v1.2.3/docs/report.png)" in made
    monkeypatch.delenv("GITHUB_REPOSITORY")
    plain = readme_for_index(text, address(), "1.2.3")
    assert not LINK.findall(made)
    assert not LINK.findall(plain)
    assert "All results, also" in plain


@pytest.mark.slow
def test_the_wheel_has_the_files_that_are_read_at_run_time(tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    built = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "e2fl"
    files = {path for path in package.rglob("*.*") if "__pycache__" not in path.parts}
    assert {str(path.relative_to(package.parent)) for path in files} <= built
