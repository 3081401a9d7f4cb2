"""Exports an experiment as a Flower app: a folder for `flwr run`, with scripts and node keys."""

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError
from e2fl.flower.run_config import RunConfig
from e2fl.version import __version__

PACKAGE = "federation"
FILES = {  # by file in `app`, where the exported app has it
    "server_app.py": f"{PACKAGE}/server_app.py",
    "client_app.py": f"{PACKAGE}/client_app.py",
    "README.md": "README.md",
    "gitignore": ".gitignore",
} | {
    f"{script}.sh": f"scripts/{script}"
    for script in ("environment", "superlink", "register", "supernode", "run", "simulate")
}


def export(experiment: Experiment, out: Path) -> list[Path]:
    """Write the app to a new folder; return the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another folder with --out")
    words = "".join(char if char.isalnum() else "-" for char in experiment.name.lower())
    name = words.strip("-") or "experiment"
    clients = str(len(experiment.build_data().population))
    contents = {
        "pyproject.toml": tomli_w.dumps(_project(name)),
        f"{PACKAGE}/experiment.toml": experiment.to_toml(),
        f"{PACKAGE}/__init__.py": "",
    }
    for source, target in FILES.items():
        text = (files("e2fl.flower") / "app" / f"{source}.txt").read_text(encoding="utf-8")
        text = text.replace("@name@", name).replace("@clients@", clients)
        contents[target] = text.replace("@version@", __version__)
    for target, text in contents.items():
        path = out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if target.startswith("scripts/") else 0o644)
    return [out / target for target in contents]


def _project(name: str) -> dict[str, Any]:
    defaults = asdict(RunConfig(out=f"runs/{name}", pins="required"))
    app = {
        "publisher": "e2fl",
        "fab-include": [f"{PACKAGE}/*.py", f"{PACKAGE}/*.toml"],
        "components": {
            "serverapp": f"{PACKAGE}.server_app:app",
            "clientapp": f"{PACKAGE}.client_app:app",
        },
        "config": {"set": ""} | {key.replace("_", "-"): value for key, value in defaults.items()},
    }
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
            "flwr": {"app": app},
        },
    }
