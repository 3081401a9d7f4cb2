"""Models of a finished run in files of their own, each with a card beside it."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import torch
from safetensors.torch import save_file
from torch import nn

from e2fl.errors import ConfigError
from e2fl.files import replacing, write_text
from e2fl.models import storable
from e2fl.runs.store import ENCODING
from e2fl.runs.trained import TrainedRun

FORMATS = (".safetensors", ".pt2")


def export_model(
    path: Path, group: str | None, out: Path, *, trust: bool = False
) -> tuple[Path, Path]:
    """Write the model of a group to `out`, and its card to `out`.md; return both paths.

    trust: import the network that the run names, if it is not one of e2fl.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out must end in {' or '.join(FORMATS)}, not '{out.name}'")
    run = TrainedRun(path, trust=trust)
    name = run.choose(group)
    network = run.network(name)
    with replacing(out) as partial:
        if out.suffix == ".pt2":  # a program of torch.export, for any number of examples
            examples = {0: torch.export.Dim("examples", min=1)}
            inputs = (torch.zeros((2, *run.shape)),)
            program = torch.export.export(network, inputs, dynamic_shapes=(examples,))
            with partial.open("wb") as file:
                torch.export.save(program, file)
        else:
            weights = {key: storable(value) for key, value in network.state_dict().items()}
            save_file(weights, partial, metadata={"format": "pt"})
    card = out.with_name(f"{out.name}.md")
    write_text(card, _card(run, name, group, network, out))
    return out, card


def _card(run: TrainedRun, name: str, group: str | None, network: nn.Module, out: Path) -> str:
    """Return what a user must know: origin, how to load the model, how well it serves groups."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {
        "cell": _cell,
        "number": lambda value: "not finite" if value is None else f"{value:.2f}",
        "tojson_line": lambda value: json.dumps(value).replace("`", "\\u0060"),
    }
    template = (files("e2fl.runs") / "card.md.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        run=run,
        name=name,
        group=group if name.startswith("group") else None,
        network=network,
        out=out,
        kept=sum(int((weight != 0).sum()) for weight in network.state_dict().values()),
        view=(run.summary.get("views") or {}).get(name, run.summary),
        encoding=run.folder.read_json(ENCODING),
    )


def _cell(value: Any) -> str:
    """Return a string that Markdown shows unchanged."""
    text = " ".join(str(value).split())
    return "".join(f"\\{sign}" if sign in "\\|<>[]*_`#!" else sign for sign in text)
