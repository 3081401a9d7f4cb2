"""Exports an experiment as a Flower app: a folder for `flwr run`, with scripts and node keys."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError
from e2fl.flower.run_config import RunConfig
from e2fl.version import __version__

PACKAGE = "federation"
SCRIPTS = ("environment", "superlink", "register", "supernode", "run", "simulate")


def export(experiment: Experiment, out: Path) -> list[Path]:
    """Write the app to a new folder; return the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another folder with --out")
    clients = len(experiment.build_data().population)
    words = "".join(char if char.isalnum() else "-" for char in experiment.name.lower())
    name = words.strip("-") or "experiment"
    values = {"name": name, "clients": str(clients), "version": __version__}
    contents = {
        "pyproject.toml": tomli_w.dumps(_project(name)),
        f"{PACKAGE}/experiment.toml": experiment.to_toml(),
        f"{PACKAGE}/__init__.py": "",
    }
    for source, target in (
        ("server_app.py", f"{PACKAGE}/server_app.py"),
        ("client_app.py", f"{PACKAGE}/client_app.py"),
        ("README.md", "README.md"),
        ("gitignore", ".gitignore"),
        *((f"{script}.sh", f"scripts/{script}") for script in SCRIPTS),
    ):
        contents[target] = _template(source, values)
    written = []
    for target, text in contents.items():
        path = out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if target.startswith("scripts/"):
            path.chmod(0o755)
        written.append(path)
    return written


def _template(name: str, values: Mapping[str, str]) -> str:
    text = (files("e2fl.flower") / "app" / f"{name}.txt").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _project(name: str) -> dict[str, object]:
    defaults = asdict(RunConfig(out=f"runs/{name}", pins="required"))
    config = {"set": "", **{key.replace("_", "-"): value for key, value in defaults.items()}}
    return {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": f"e2fl-{name}",
            "version": "1.0.0",
            "description": f"The e2fl experiment {name} on Flower",
            "license": "Apache-2.0",
            "requires-python": ">=3.11",
            "dependencies": [f"e2fl[flower]>={__version__}"],
        },
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": [PACKAGE]}}}},
            "flwr": {
                "app": {
                    "publisher": "e2fl",
                    "fab-include": [f"{PACKAGE}/*.py", f"{PACKAGE}/*.toml"],
                    "components": {
                        "serverapp": f"{PACKAGE}.server_app:app",
                        "clientapp": f"{PACKAGE}.client_app:app",
                    },
                    "config": config,
                }
            },
        },
    }
