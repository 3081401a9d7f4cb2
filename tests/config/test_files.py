"""Experiments as files."""

import subprocess
import sys

from e2fl.config.experiment import load


def test_paths_in_a_toml_are_relative_to_the_toml(toy, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "rows.csv").write_text("x,y\n1,0\n")
    variants = {"other": {"data": {"path": "rows.csv", "dir": "elsewhere"}}}
    values = toy.to_dict() | {"data": {"name": "table", "path": "rows.csv", "label": "y"}}
    text = toy.__class__(**values | {"variants": variants}).to_toml()
    (folder / "mine.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert load("project/mine.toml").data["path"] == "project/rows.csv"
    other = load("project/mine.toml").variant("other")
    assert other.data["path"] == "project/rows.csv"
    assert other.data["dir"] == "elsewhere"  # not beside the file: as seen from this folder
    (tmp_path / "run").mkdir()
    stored = load("project/mine.toml").to_toml()
    (tmp_path / "run" / "config.toml").write_text(stored)
    assert load("run/config.toml").data["path"] == "project/rows.csv"
    monkeypatch.chdir(folder)
    assert load("mine.toml").data["path"] == "rows.csv"


def test_showing_a_shipped_experiment_imports_no_torch():
    code = (
        "import sys; from e2fl.cli import main; main(['show', 'demo']);"
        "main(['list', 'experiments']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "fair_mnist_rotate" in done.stdout
