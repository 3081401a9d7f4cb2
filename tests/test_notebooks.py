"""The notebooks in examples/ are shipped with their outputs and run from top to bottom."""

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
STEMS = ["audit_a_table", "first_run", "own_table_and_algorithm"]


def kinds(notebook):
    """Return what each cell shows: streams without progress bars, results by type."""
    return [
        [output.output_type for output in cell.outputs if output.get("name") != "stderr"]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebooks_have_outputs_without_errors_and_paths():
    assert [path.stem for path in NOTEBOOKS] == STEMS
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        outputs = [output for cell in cells for output in cell.outputs]
        assert len(outputs) >= len(cells) - 1, path.name
        assert not any(o.output_type == "error" or o.get("name") == "stderr" for o in outputs)
        assert str(Path.home()) not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    paths = [ROOT / "src", ROOT / "packages" / "audit" / "src", os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    notebook = nbformat.read(path, as_version=4)
    shipped = kinds(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert kinds(notebook) == shipped
