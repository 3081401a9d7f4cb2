"""Export of one model of a finished run as a plain torch module, with a model card in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from e2fl.errors import ConfigError
from e2fl.files import replacing, write_text
from e2fl.models import storable
from e2fl.runs.predict import TrainedRun

FORMATS = (".safetensors", ".pt2")


def export_model(path: Path, group: str | None, out: Path) -> tuple[Path, Path]:
    """Write the model of a group to `out`, and its card next to it; return both paths."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out must end in {' or '.join(FORMATS)}, not '{out.name}'")
    run = TrainedRun(path)
    name = run.choose(group)
    network = run.network(name)
    with replacing(out) as partial:
        if out.suffix == ".pt2":
            _save_program(network, run.shape, partial)
        else:
            weights = {key: storable(value) for key, value in network.state_dict().items()}
            save_file(weights, partial, metadata={"format": "pt"})
    card = out.with_suffix(".md")
    write_text(card, model_card(run, name, group, network, out))
    return out, card


def _save_program(network: nn.Module, shape: tuple[int, ...], out: Path) -> None:
    """Write the module as a program of torch.export, for any number of examples."""
    examples = torch.export.Dim("examples", min=1)
    program = torch.export.export(network, (torch.zeros((2, *shape)),), dynamic_shapes=({0: examples},))
    with out.open("wb") as file:
        torch.export.save(program, file)


def model_card(run: TrainedRun, name: str, group: str | None, network: nn.Module, out: Path) -> str:
    """Return what a user must know about the model: origin, how to load it, and how well it serves each group."""
    summary = run.summary
    kept = sum(int((weight != 0).sum()) for weight in network.state_dict().values())
    whose = f"the model of group {_cell(group)}" if name.startswith("group") and group else f"the model `{name}`"
    facts = [
        ("algorithm", summary["label"]),
        ("data set", summary["dataset"]),
        ("rounds", summary["rounds"]),
        ("seed", summary["seed"]),
        ("inputs", " x ".join(map(str, run.shape))),
        ("classes", run.classes),
        ("weights that are not zero", f"{kept:,} of {run.model.spec.edges:,}"),
        ("e2fl", summary.get("version", "")),
    ]
    parts = [
        f"# {_cell(run.experiment.name)}: {whose}",
        _table(("", ""), facts),
        "## How to load it",
        _loading(network, out),
        "## Accuracy by group",
        _fairness(summary, name),
    ]
    if summary.get("caution"):
        parts += ["## Warning", _cell(summary["caution"])]
    return "\n\n".join(parts) + "\n"


def _loading(network: nn.Module, out: Path) -> str:
    if out.suffix == ".pt2":
        return f'```python\nimport torch\n\nnetwork = torch.export.load("{out.name}").module()\n```'
    lines = "\n".join(f"    {line}" for line in str(network).splitlines())
    code = f'from safetensors.torch import load_file\n\nnetwork.load_state_dict(load_file("{out.name}"))'
    return (
        f"`network` is this torch module:\n\n{lines}\n\n```python\n{code}\n```\n\nIt returns a logit for every class."
    )


def _fairness(summary: Mapping[str, Any], name: str) -> str:
    """Return measures of the run on test data, and what they mean for this model."""
    view = (summary.get("views") or {}).get(name, summary)
    rows: list[Sequence[Any]] = []
    for level, what in (("group", "groups"), ("user", "clients")):
        if view.get(level):
            values = [view[level][key] for key in ("mean", "worst10", "best10", "variance")]
            rows.append((what, *(_number(value) for value in values)))
    groups = [
        (group, values["clients"], _number(values["accuracy"]), _number(values["loss"]))
        for group, values in view.get("groups", {}).items()
    ]
    parts = [
        "Accuracy on test data, in percent.",
        _table(("over", "mean", "worst 10 %", "best 10 %", "variance"), rows),
    ]
    if groups:
        parts.append(_table(("group", "clients", "accuracy", "loss"), groups))
    if name.startswith("group"):
        parts.append(
            "These are measures of the run, in which every group uses its own model. How this model serves clients of "
            "other groups was not measured."
        )
    return "\n\n".join(parts)


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"


def _cell(value: Any) -> str:
    """Return a string that Markdown shows unchanged."""
    text = " ".join(str(value).split())
    return "".join(f"\\{character}" if character in "\\|<>[]*_`#!" else character for character in text)
