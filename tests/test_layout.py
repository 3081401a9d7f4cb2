"""Imports point one way, and heavy or optional libraries stay in their rooms."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "e2fl"
# From the ground up: a module imports from its own package and from the floors below, never
# sideways or up.
FLOORS = [
    {"errors"},
    {
        "version",
        "randomness",
        "metrics",
        "experiments",
        "text",
        "torch_streams",
    },
    {"construct", "kernels", "files"},
    {"rankings", "codec"},
    {"models", "networks"},
    {"data", "wire"},
    {"evaluation"},
    {"learning", "participation"},
    {"rankings.messages"},
    {"grouping"},
    {"algorithms", "attacks"},
    {"rounds"},
    {"config"},
    {"simulation"},
    {"runs"},
    {"testing", "report"},
    {"results"},
    {"flower", "search"},
    {"commands"},
    {"cli"},
    {"__main__"},
]


PLACES = {name: place for place, floor in enumerate(FLOORS) for name in floor}


def on_floor(name):
    """Return the name under which FLOORS lists a module: its package, or the module itself."""
    parts = name.removeprefix("e2fl.").split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in PLACES else parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                [f"e2fl.{alias.name}" for alias in node.names]
                if node.module == "e2fl"
                else [node.module]
            )


MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
    if path != SOURCE / "__init__.py"
}


MOST_LINES, MOST_FILES = 25_010, 160


def test_the_package_stays_small():
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES
    assert len(texts) <= MOST_FILES


def test_imports_point_one_way():
    assert {on_floor(name) for name in MODULES} == set(PLACES), (
        "FLOORS lists a package that does not exist, or lacks one: "
        "add it to the lowest floor above everything it imports"
    )
    wrong = []
    for name, path in MODULES.items():
        own = on_floor(name)
        for other in imports(path):
            inside = other not in MODULES or own in ("experiments", on_floor(other))
            if not inside and PLACES[on_floor(other)] >= PLACES[own]:
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_optional_libraries_stay_in_their_rooms():
    rooms = {"flwr": "flower", "optuna": "search", "ray": "simulation", "vl_convert": "report"}
    for name, path in MODULES.items():
        own = on_floor(name)
        roots = {other.split(".")[0] for other in imports(path)}
        for library, room in rooms.items():
            assert library not in roots or own == room, name
        if own == "metrics":
            assert not roots & {"torch", "pandas", "altair", "sklearn"}, name


def test_no_unsafe_loading():
    for path in MODULES.values():
        text = path.read_text()
        for word in ("import pickle", "torch.load(", "allow_pickle=True", " eval(", " exec("):
            assert word not in text, (path.name, word)


def test_commands_that_train_nothing_do_not_wait_for_torch(tmp_path):
    (tmp_path / "own.csv").write_text("client,label,size\n" + "a,0,1\na,1,2\nb,0,3\nb,1,5\n" * 3)
    (tmp_path / "own.toml").write_text(
        "data = { name = 'table', path = 'own.csv', client = 'client', label = 'label' }"
    )
    kinds = [[], ["algorithms"], ["datasets"], ["experiments"], ["learner"], ["e2fl"], ["demo"]]
    commands = [["list", *kind] for kind in kinds]
    commands += [["show", "demo"], ["data", "list"], ["data", "show", "own.toml"]]
    code = (
        "import sys; from e2fl.cli import main\n"
        f"for words in {commands}:\n"
        "    assert main(words) == 0, words\n"
        "    assert not {'torch', 'numba'} & set(sys.modules), words"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=600)
