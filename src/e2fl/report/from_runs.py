"""A study from runs: what is compared, seed by seed, and whether the comparison is fair.

Runs are read as plain JSON: nothing that their files name is imported or built, and torch is not
loaded.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import tomli_w
from safetensors import SafetensorError
from safetensors.numpy import load

from e2fl.config.overrides import flattened
from e2fl.errors import RunError
from e2fl.files import read_bytes
from e2fl.metrics import Measure
from e2fl.metrics.accuracy import MAX_RELATIVE_BLUR, MIN_STABILITY
from e2fl.metrics.intervals import FEW_ROWS
from e2fl.metrics.measures import measures_of
from e2fl.report.study import PARTS, Json, Method, Study, frame, view_label, with_gains
from e2fl.report.table import words

if TYPE_CHECKING:
    from e2fl.runs.store import Run

# Settings that do not tell two methods apart: they name a run, or never change a result.
SAME = (
    *("name", "seed", "variants"),
    *("threads", "runtime", "checkpoint_seconds", "keep_client_models", "keep_ballots"),
)
HONEST = "none"  # the attack of a run in which those who would attack are honest
PLACEMENT = ("place", "groups", "clients", "fraction")  # the settings that all attacks have
LARGEST = 4_000_000  # bytes of data.json or data.svg that a page takes
LONGEST = 60  # characters of a label


def read_runs(paths: Sequence[Path]) -> tuple[list["Run"], list[str]]:
    """Return all finished runs in these folders or below them, and what was left out."""
    from e2fl.runs.store import Folder, read_run, run_folders

    runs, left_out = [], []
    for path in paths:
        folders = list(run_folders(path))
        if not folders:
            raise RunError(f"{path} holds no run: no config.toml in it or in a folder below it")
        for folder in folders:
            if Folder(folder).finished():
                runs.append(read_run(folder))
            else:
                left_out.append(words("unfair", "unfinished", folder=folder.name))
    if not runs:
        names = ", ".join(map(str, paths))
        raise RunError(f"no run in {names} is finished; continue it with --resume")
    return runs, left_out


def study_of(runs: Sequence["Run"], notes: Iterable[str] = (), *, unfinished: str = "") -> Study:
    """Return the study of these runs: runs that differ only in their seed are one method."""
    warnings = list(notes)
    by_settings: dict[str, dict[int, Run]] = {}
    for run in runs:
        repeats = by_settings.setdefault(json.dumps(_settings(run.config), sort_keys=True), {})
        if run.seed in repeats:
            name = _name(run.config, run.summary.get("title"))
            warnings.append(words("unfair", "twice", label=name, seed=run.seed))
        repeats[run.seed] = run
    by_method = [[repeats[seed] for seed in sorted(repeats)] for repeats in by_settings.values()]
    labels = labels_of([(run.config, run.summary.get("title")) for run, *_ in by_method])
    named = dict(sorted(zip(labels, by_method, strict=True), key=_order))
    methods = [method for label, repeats in named.items() for method in _methods(label, repeats)]
    alone = next((method for method in methods if method.alone), None)
    study = Study(
        title=", ".join(dict.fromkeys(run.config["name"] for run in runs)),
        subtitle="",
        methods=tuple(with_gains(method, alone) for method in methods),
        settings=tuple(_differing(named)),
        runs=tuple(_facts(label, run) for label, repeats in named.items() for run in repeats),
        unfinished=unfinished,
        groups_found=any(run.summary.get("groups_are") == "found" for run in runs),
        own=_own_measures(runs),
        attacked=_impacts(named),
        **_data(runs),
    )
    warnings += [*_by_method(named), *_of_comparison(study, by_method)]
    return replace(
        study, subtitle=_subtitle(runs[0], study), warnings=tuple(dict.fromkeys(warnings))
    )


def _settings(config: Json) -> Json:
    """Return the settings that make a method, the same for a run in memory and one from a file."""
    kept = {name: value for name, value in config.items() if name not in SAME and value != {}}
    settings: Json = json.loads(json.dumps(kept))
    return settings


def _order(method: tuple[str, Sequence["Run"]]) -> tuple[bool, int, str]:
    """Return the sort key of a method: training alone first, then in the order of algorithms."""
    label, (run, *_) = method
    return not _alone(run), run.summary.get("order", 0), label


def _alone(run: "Run") -> bool:
    """Return whether clients train on their own."""
    return bool(run.summary.get("trains_alone"))


def _name(config: Json, title: str | None) -> str:
    """Return the label given, or the algorithm's name as papers write it."""
    algorithm = config["algorithm"]
    return str(algorithm.get("label") or title or algorithm["name"].rpartition(":")[2])


def labels_of(methods: Sequence[tuple[Json, str | None]]) -> list[str]:
    """Return a name for each; namesakes are told apart by the settings in which they differ.

    methods: configurations with every default, and titles of their algorithms.
    """
    names = [_name(config, title) for config, title in methods]
    flat = [_words(_settings(config)) for config, _ in methods]
    labels = []
    for name, own in zip(names, flat, strict=True):
        namesakes = [settings for other, settings in zip(names, flat, strict=True) if other == name]
        differing = {key: value for key, value in own.items() if _tells_apart(key, own, namesakes)}
        label = _label(name, differing)
        labels.append(label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}...")
    return [
        label if labels.count(label) == 1 else f"{label} #{position}"
        for position, label in enumerate(labels, 1)
    ]


def _tells_apart(key: str, own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a setting differs; those of a section only where its name is the same."""
    name = f"{key.rpartition('.')[0]}.name"
    return any(
        other.get(key) != own[key] and (key == name or other.get(name) == own.get(name))
        for other in others
    )


def _label(name: str, differing: dict[str, str]) -> str:
    """Return a name with the settings that tell it from its namesakes.

    An attack, and a grouping that is all that differs, stand by their names alone.
    """
    attack = differing.pop("attack.name", HONEST)
    name = name if attack == HONEST else f"{name} under {attack}"
    grouping = differing.get("algorithm.grouping.name")
    if grouping is not None and all(key.startswith("algorithm.grouping.") for key in differing):
        return name if grouping == "known" else f"{name} ({grouping.replace('_', ' ')})"
    settings = ", ".join(f"{key}={value}" for key, value in differing.items())
    return f"{name} [{settings}]" if settings else name


def _words(settings: Json) -> dict[str, str]:
    return {key: str(value) for key, value in flattened(settings).items()}


def _differing(named: Mapping[str, Sequence["Run"]]) -> list[str]:
    """Return, in words, the settings that all methods have and in which they differ."""
    together = {label: run for label, (run, *_) in named.items() if not _alone(run)}
    flat = {label: _words(_settings(run.config)) for label, run in together.items()}
    settings = pd.DataFrame(flat).dropna().sort_index()
    return [
        f"{key}: {', '.join(f'{label} {value}' for label, value in row.items())}"
        for key, row in settings.iterrows()
        if row.nunique() > 1 and not str(key).endswith((".name", ".label"))
    ]


def _methods(label: str, repeats: Sequence["Run"]) -> list[Method]:
    """Return the runs of one configuration, and the other views of their models."""
    rows = frame(repeats)
    found = [run.summary for run in repeats if run.summary.get("membership") == "found"]
    views = [list(run.summary.get("views", {})) for run in repeats]
    return [
        Method(
            view_label(label, view),
            rows[rows["view"] == view],
            _clients(repeats, view),
            alone=not view and _alone(repeats[0]),
            view=bool(view),
            recovers=not view and any(summary.get("inference") for summary in found),
            attacked=(repeats[0].config.get("attack") or {}).get("name", HONEST) != HONEST,
        )
        for view in ("", *views[0])
        if not view or all(view in known for known in views)
    ]


def _clients(runs: Iterable["Run"], view: str) -> pd.DataFrame:
    """Return the rows of the clients.csv of these runs, with the accuracy of a view."""
    column = f"accuracy_{view}" if view else "accuracy"
    rows = [
        (run.seed, str(row["client"]), str(row.get("group") or ""), row["n"], row[column])
        for run in runs
        for row in run.clients
        if column in row
    ]
    return pd.DataFrame(rows, columns=list(PARTS)).astype({"n": float, "accuracy": float})


def _own_measures(runs: Sequence["Run"]) -> tuple[Measure, ...]:
    """Return the measures that users added, as the runs describe them."""
    described: Json = {}
    for run in runs:
        described |= run.summary.get("own_measures") or {}
    return tuple(own for name, entry in described.items() for own in measures_of(name, entry))


def _by_method(named: Mapping[str, Sequence["Run"]]) -> Iterator[str]:
    """Yield warnings about single methods: recorded ones, faults, groups that may be noise."""
    for label, repeats in named.items():
        for run in repeats:
            for text in run.summary.get("warnings", ()):
                yield f"{label}: {str(text).removesuffix('.')}."
        lines = [line for run in repeats for line in run.history]
        count = sum(sum(line.get("faults", {}).values()) for line in lines)
        if count:
            yield words("unfair", "faults", label=label, count=count)
        clusterings = [(run.summary.get("metadata") or {}).get("clustering") for run in repeats]
        for name, value, limit in map(_doubt, filter(None, clusterings)):
            if name:
                yield words("unfair", name, label=label, value=value, limit=limit)
                break


def _doubt(clustering: Json) -> tuple[str, float, float]:
    """Return why found groups may be noise, by the test of `e2fl groups`: what, value, limit."""
    stability, blur = clustering.get("stability"), clustering.get("blur")
    if stability is not None and stability < MIN_STABILITY:
        return "unstable", stability, MIN_STABILITY
    relative = 0.0 if blur is None else blur / clustering["cloud"]
    return "blurred" if relative > MAX_RELATIVE_BLUR else "", relative, MAX_RELATIVE_BLUR


def _of_comparison(study: Study, by_method: Sequence[Sequence["Run"]]) -> Iterator[str]:
    """Yield warnings about an unfair comparison, and about few test rows."""
    configs = [run.config for run, *_ in by_method]
    together = [run.config for run, *_ in by_method if not _alone(run)]
    values: dict[str, Iterable[Any]] = {
        "data": [json.dumps(config["data"], sort_keys=True) for config in configs],
        "model": [json.dumps(config["model"], sort_keys=True) for config in configs],
        "rounds": [config["rounds"] for config in together],
        "clients": [config["algorithm"].get("clients_per_round") for config in together],
        "seeds": [method.seeds for method in study.methods],
        "groups": [run.summary.get("groups_are") for repeats in by_method for run in repeats],
    }
    yield from (words("unfair", name) for name, own in values.items() if len({*own} - {None}) > 1)
    medians = [method.clients["n"].median() for method in study.main if len(method.clients)]
    if min(medians, default=FEW_ROWS) < FEW_ROWS:
        yield words("unfair", "few_rows", rows=min(medians))


def _subtitle(run: "Run", study: Study) -> str:
    first = study.methods[0]
    clients = f"{first.clients['client'].nunique():,} clients" if len(first.clients) else ""
    groups = f"{len(first.groups)} groups" if first.groups else ""
    parts = (
        f"data set {run.summary['dataset']}",
        " in ".join(filter(None, (clients, groups))),
        f"{run.config['rounds']} rounds",
        f"seed{'s' if len(study.seeds) > 1 else ''} {', '.join(map(str, study.seeds))}",
    )
    return " · ".join(filter(None, parts))


def _facts(label: str, run: "Run") -> Json:
    summary = run.summary
    return {
        "label": label,
        "seed": run.seed,
        "rounds": summary.get("rounds"),
        "version": summary.get("version"),
        "environment": summary.get("environment", {}),
        "seconds": (summary.get("seconds") or {}).get("total"),
        "folder": None if run.folder is None else run.folder.name,
        "command": _command(run.folder),
        "config": tomli_w.dumps({key: value for key, value in run.config.items() if value != {}}),
    }


def _command(folder: Path | None) -> str | None:
    """Return the command that made a run, from its folder or the comparison's above it."""
    from e2fl.runs.store import COMMAND

    folders = () if folder is None else (folder, folder.parent)
    texts = (text for path in folders if (text := _regular_file(path / COMMAND)) is not None)
    return next((text.decode(errors="replace").strip() for text in texts), None)


def _data(runs: Sequence["Run"]) -> Json:
    """Return data.json and data.svg from the first run that stored a description of its data."""
    from e2fl.runs.store import Folder

    for folder in (run.folder for run in runs if run.folder is not None):
        described = Folder(folder).read_json("data.json")
        if described is not None:
            return {"data": described, "data_picture": _regular_file(folder / "data.svg")}
    return {}


def _regular_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file of moderate size; None for links and anything else."""
    try:
        return read_bytes(path, LARGEST)
    except OSError:
        return None


def _impacts(named: Mapping[str, Sequence["Run"]]) -> pd.DataFrame:
    """Return what each attack cost in each seed: accuracy of the clean run minus the attacked one.

    Both runs measure the same honest clients. named: the runs of each method.
    """
    clean, attacked = {}, []
    for label, repeats in named.items():
        for run in repeats:
            attack = run.config.get("attack") or {}
            placement = {name: attack.get(name) for name in PLACEMENT}
            key = json.dumps([_settings(run.config | {"attack": placement}), run.seed])
            if attack.get("name", HONEST) != HONEST:
                attacked.append((key, str(attack["name"]), run))
            elif attack:
                clean[key] = label, run
    rows = [
        {"method": clean[key][0], "attack": attack, **_impact(clean[key][1], run)}
        for key, attack, run in attacked
        if key in clean
    ]
    return pd.DataFrame(rows)


def _impact(clean: "Run", attacked: "Run") -> dict[str, float]:
    before, after = clean.summary, attacked.summary
    level = "group" if before.get("group") and after.get("group") else "clients"
    accuracy = [
        pd.Series(
            {name: group["accuracy"] for name, group in summary["groups"].items()}, dtype=float
        )
        for summary in (before, after)
    ]
    losses = (accuracy[0] - accuracy[1]).dropna()
    lost = losses.clip(lower=0)
    inside = losses.index.isin((after.get("attack") or {}).get("groups", ()))
    return {
        "worst": before[level]["worst10"] - after[level]["worst10"],
        "inside": losses[inside].mean(),
        "outside": losses[~inside].mean(),
        "hardest": losses[~inside].max(),
        "clients": before["clients"]["mean"] - after["clients"]["mean"],
        "contained": 100 * lost[inside].sum() / lost.sum() if inside.any() and lost.any() else nan,
        "edges": _changed_edges(clean.folder, attacked.folder),
        **{f"groups/{name}": loss for name, loss in losses.items()},
    }


def _changed_edges(clean: Path | None, attacked: Path | None) -> float:
    """Return the percentage of kept edges that the attacked run drops, over all its masks."""
    if clean is None or attacked is None:
        return nan
    before, after = dict(_masks(clean)), dict(_masks(attacked))
    names = before.keys() & after.keys()
    kept = sum(int(before[name].sum()) for name in names)
    lost = sum(int((before[name] & ~after[name]).sum()) for name in names)
    return 100 * lost / kept if kept else nan


def _masks(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the masks that a run stored; none if its models are weights, or not stored."""
    try:
        stored = load(read_bytes(folder / "model.safetensors"))
    except (OSError, SafetensorError):
        return
    yield from ((name, mask) for name, mask in stored.items() if mask.dtype == bool)
