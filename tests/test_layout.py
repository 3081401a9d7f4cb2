"""Imports point one way, and heavy or optional libraries stay in their rooms."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "e2fl"
# From the ground up: a module imports from its own package and from the floors below, never sideways or up.
FLOORS = [
    {"errors", "version", "randomness", "metrics", "compiled", "experiments", "terminal", "csv_text", "templates"},
    {"construct", "ranking", "files"},
    {"tables"},
    {"models", "auditing", "ballots"},
    {"data", "wire"},
    {"evaluation"},
    {"learning", "participation"},
    {"e2fl_messages"},
    {"grouping"},
    {"algorithms"},
    {"rounds"},
    {"config"},
    {"simulation"},
    {"runs"},
    {"testing", "report"},
    {"results", "sweeps"},
    {"api", "flower", "reproduce", "tuning"},
    {"commands"},
    {"cli"},
]


def floor_of(name):
    for place, floor in enumerate(FLOORS):
        if name in floor:
            return place
    return pytest.fail(f"FLOORS does not list {name}: add it to the lowest floor above everything it imports")


def room(name):
    return name.split(".")[1] if name.startswith("e2fl.") else None


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"e2fl.{alias.name}" for alias in node.names] if node.module == "e2fl" else [node.module])


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")


def test_every_package_is_on_one_floor():
    listed = [name for floor in FLOORS for name in floor]
    present = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES}
    for name in present:
        floor_of(name)
    assert sorted(listed) == sorted(present), "FLOORS lists a package twice, or one that does not exist"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "experiments":
        return
    for name in imports(path):
        other = room(name)
        if other is not None and other != own and (SOURCE / other).exists() | (SOURCE / f"{other}.py").exists():
            assert floor_of(other) < floor_of(own), f"{own} imports {other}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_optional_libraries_stay_in_their_rooms(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    roots = {name.split(".")[0] for name in imports(path)}
    assert "flwr" not in roots or own == "flower"
    assert "optuna" not in roots or own == "tuning"
    assert "vl_convert" not in roots or own == "report"
    if own == "metrics":
        assert roots <= {"math", "collections", "typing", "dataclasses", "numpy", "scipy", "e2fl"}


def test_no_unsafe_loading():
    for path in MODULES:
        text = path.read_text()
        for word in ("import pickle", "torch.load(", "allow_pickle=True", " eval(", " exec("):
            assert word not in text, (path.name, word)


def test_training_needs_pandas_for_tables_only(tmp_path):
    (tmp_path / "t.csv").write_text("who,k,y\na,1,0\n")
    code = (
        "import sys; sys.modules['pandas'] = None; import e2fl.data, e2fl.runs.runner\n"
        f"try: e2fl.data.from_table(path={str(tmp_path / 't.csv')!r}, client='who', label='y')\n"
        "except e2fl.errors.DataError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert shown.stdout.strip() == "tables need the package pandas: pip install 'e2fl[tables]'"


def test_help_does_not_wait_for_torch():
    code = "import sys; import e2fl.cli; print('torch' in sys.modules, 'numba' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert shown.stdout.split() == ["False", "False"]
