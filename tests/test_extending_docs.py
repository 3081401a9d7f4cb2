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
    said = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
        ).stdout
        for script in blocks("python")
    ]
    assert "9 clients" in said[1]
    (config,) = blocks("toml")
    (tmp_path / "hospitals.toml").write_text(config)
    assert main(["run", "hospitals.toml", "--set", "rounds=2", "--out", "run"]) == 0
    assert "e2fl" in capsys.readouterr().out
