"""What docs/extending.md shows really runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2fl.cli import main

ROOT = Path(__file__).parent.parent


def blocks(language):
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    section = page.split("## Your own data")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


@pytest.mark.slow
def test_the_worked_example_of_your_own_data(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    table, later, arrays, datasets = blocks("python")

    def said(script):
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    said(table)
    assert "9 clients" in said(arrays)
    assert said(datasets).split() == ["3", "clients", "4", "clients"]
    (config,) = blocks("toml")
    (tmp_path / "hospitals.toml").write_text(config)
    assert main(["run", "hospitals.toml", "--set", "rounds=2", "--out", "runs/hospitals"]) == 0
    assert "e2fl" in capsys.readouterr().out
    (tmp_path / "new.csv").write_text("\n".join((tmp_path / "cancer.csv").read_text().splitlines()[:4]) + "\n")
    assert said(later).count("'") == 6  # three words
    lines = [line.split(",") for line in (tmp_path / "new.csv").read_text().splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(",".join(line[:2] + line[3:]) for line in lines) + "\n")  # no finding
    assert said(later).count("'") == 6
