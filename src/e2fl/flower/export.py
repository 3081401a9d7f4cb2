"""An experiment as an app for `flwr run`, with scripts for keys, the server and the nodes."""

from pathlib import Path

import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError
from e2fl.flower.run_config import RunConfig
from e2fl.version import __version__

APP = Path(__file__).parent / "app"  # with ".txt" after the name of every file


def export(experiment: Experiment, out: Path) -> None:
    """Write the app to a new folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another folder with --out")
    words = "".join(char if char.isalnum() else "-" for char in experiment.name.lower())
    name = words.strip("-") or "experiment"
    settings = vars(RunConfig(out=f"runs/{name}", pins="required"))
    values = {
        "@name@": name,
        "@version@": __version__,
        "@clients@": str(len(experiment.build.data().population)),
        "@config@": tomli_w.dumps({key.replace("_", "-"): v for key, v in settings.items()}),
    }
    contents = {Path("federation/experiment.toml"): experiment.to_toml()}
    for source in APP.rglob("*.txt"):
        text = source.read_text(encoding="utf-8")
        for word, value in values.items():
            text = text.replace(word, value)
        contents[source.relative_to(APP).with_suffix("")] = text
    for target, text in contents.items():
        path = out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if path.parent.name == "scripts" else 0o644)
