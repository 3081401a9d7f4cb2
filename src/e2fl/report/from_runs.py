"""A study from runs: what is compared, seed by seed, and whether the comparison is fair.

Reading a run never builds or imports what its files name: a run folder may come from anywhere.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from e2fl.errors import RunError
from e2fl.files import read_bytes
from e2fl.metrics import Measure
from e2fl.metrics.groupings import MIN_STABILITY
from e2fl.metrics.own import measures_of
from e2fl.report.frame import frame, view_title
from e2fl.report.study import Json, Method, Study

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.runs.store import Run

SAME = ("name", "seed", "variants")  # settings that do not tell two methods apart
LARGEST = 4_000_000  # bytes of data.json or data.svg that a page takes
LISTED = 8  # settings that are named where methods differ


def read_runs(paths: Sequence[Path]) -> tuple[list["Run"], list[str]]:
    """Return all finished runs in these folders or below them, and what was left out."""
    from e2fl.runs.store import Folder, read_run, run_folders

    runs: list[Run] = []
    left_out = []
    for path in paths:
        folders = list(run_folders(path))
        if not folders:
            raise RunError(f"{path} holds no run: no config.toml in it or in a folder below it")
        for folder in folders:
            if Folder(folder).finished():
                runs.append(read_run(folder))
            else:
                left_out.append(
                    f"{folder.name} is not finished and was left out; continue it with --resume."
                )
    if not runs:
        names = ", ".join(map(str, paths))
        raise RunError(f"no run in {names} is finished; continue it with --resume")
    return runs, left_out


def read_unfinished(path: Path) -> "Run":
    """Return a run from what it has written to its folder so far."""
    from e2fl.runs.store import Folder, Run

    folder = Folder(path)
    experiment, history = folder.read_experiment(), folder.read_history()
    if not history:
        raise RunError(f"{path} has no evaluated round yet")
    left_out = ("round", "asked", "answered", "faults")
    summary = {
        "algorithm": experiment.algorithm["name"],
        "label": experiment.label,
        "dataset": experiment.data["name"],
        "rounds": history[-1]["round"],
        "seed": experiment.seed,
        **{key: value for key, value in history[-1].items() if key not in left_out},
    }
    return Run(folder.read_config(), summary, history, [], None, path)


def study_of(runs: Sequence["Run"], notes: Iterable[str] = (), *, unfinished: str = "") -> Study:
    """Return the study of these runs: runs that differ only in their seed are one method."""
    warnings = list(notes)
    by_settings: dict[str, dict[int, Run]] = {}
    for run in runs:
        repeats = by_settings.setdefault(json.dumps(_settings(run.experiment), sort_keys=True), {})
        if run.experiment.seed in repeats:
            label, seed = display_name(run.experiment), run.experiment.seed
            warnings.append(f"{label} was given twice with seed {seed}; the last one is shown.")
        repeats[run.experiment.seed] = run
    by_method = [[repeats[seed] for seed in sorted(repeats)] for repeats in by_settings.values()]
    labels = labels_of([repeats[0].experiment for repeats in by_method])
    named = sorted(zip(labels, by_method, strict=True), key=lambda pair: _order(*pair))
    methods = [method for label, repeats in named for method in _methods(label, repeats)]
    warnings += [
        f"{label}: {str(text).removesuffix('.')}."
        for label, repeats in named
        for run in repeats
        for text in run.summary.get("warnings", ())
    ]
    data, picture = _data(runs)
    study = Study(
        title=", ".join(dict.fromkeys(run.experiment.name for run in runs)),
        subtitle=_subtitle(runs[0], methods),
        methods=tuple(methods),
        settings=tuple(_differing(dict(named))),
        runs=tuple(_facts(label, run) for label, repeats in named for run in repeats),
        unfinished=unfinished,
        data=data,
        data_picture=picture,
        protected_groups=_protected_groups(methods),
        groups_found=any(run.summary.get("groups_are") == "found" for run in runs),
        own=_own_measures(runs),
    )
    warnings += [*_unstable(named), *_unfair(study, by_method), *_few_rows(study)]
    return replace(study, warnings=tuple(dict.fromkeys(warnings)))


def _few_rows(study: Study) -> list[str]:
    """Return a warning if clients have too few test rows to judge spreads."""
    if study.few_test_rows is None:
        return []
    return [
        f"Half of the clients have at most {study.few_test_rows:.0f} test rows: spreads over "
        "clients and groups are partly chance, and the tables show how much."
    ]


def _unstable(named: Iterable[tuple[str, Sequence["Run"]]]) -> list[str]:
    """Return warnings about groups that rank clustering found but would not find again."""
    warnings = []
    for label, repeats in named:
        known = [
            float(clustering["stability"])
            for run in repeats
            if (clustering := (run.summary.get("metadata") or {}).get("clustering"))
            and clustering.get("stability") is not None
        ]
        if known and min(known) < MIN_STABILITY:
            warnings.append(
                f"{label}: the groups that rank clustering found may be noise: without a quarter "
                f"of the clients, the groups agree to {min(known):.2f} only (at least {MIN_STABILITY} "
                "in clear groups). Run e2fl groups to see how many groups are clear."
            )
    return warnings


def _order(label: str, repeats: Sequence["Run"]) -> tuple[bool, int, str]:
    """Return the sort key of a method: training alone first, then in the order of algorithms."""
    from e2fl.algorithms import ALGORITHMS

    known = list(ALGORITHMS)
    name = repeats[0].experiment.algorithm["name"]
    return not _alone(repeats[0]), known.index(name) if name in known else len(known), label


def _alone(run: "Run") -> bool:
    """Return whether clients train on their own, as recorded; by its name in an unfinished run."""
    by_name = run.experiment.algorithm["name"] == "local"
    return run.summary.get("trains_alone", by_name) is True


def _settings(experiment: "Experiment") -> Json:
    from e2fl.config.completion import trimmed
    from e2fl.config.experiment import UNSAVED

    settings = trimmed(experiment).to_dict()
    return {name: value for name, value in settings.items() if name not in (*SAME, *UNSAVED)}


def _flat(experiment: "Experiment") -> dict[str, str]:
    from e2fl.config.overrides import flattened

    return {name: str(value) for name, value in flattened(_settings(experiment)).items()}


def display_name(experiment: "Experiment") -> str:
    """Return the label given, or the algorithm's name as papers write it."""
    from e2fl.algorithms import ALGORITHMS

    name = str(experiment.algorithm["name"])
    if "label" in experiment.algorithm:
        return experiment.label
    kind = ALGORITHMS.get(name)
    return kind.title if kind is not None else name.rpartition(":")[2]


def labels_of(experiments: Sequence["Experiment"]) -> list[str]:
    """Return a name for each; namesakes are told apart by the settings in which they differ."""
    names = [display_name(experiment) for experiment in experiments]
    flat = [_flat(experiment) for experiment in experiments]
    labels = []
    for name, own in zip(names, flat, strict=True):
        namesakes = [settings for other, settings in zip(names, flat, strict=True) if other == name]
        keys = dict.fromkeys(key for settings in namesakes for key in settings)
        differing = [key for key in keys if any(s.get(key) != own.get(key) for s in namesakes)]
        label = _label(name, {key: own.get(key, "default") for key in differing})
        labels.append(label if len(label) <= 60 else f"{label[:57]}...")
    return [
        label if labels.count(label) == 1 else f"{label} #{place + 1}"
        for place, label in enumerate(labels)
    ]


def _label(name: str, settings: Mapping[str, str]) -> str:
    """Return a name with the settings that tell it from its namesakes; a grouping by its name."""
    grouping = settings.get("algorithm.grouping.name")
    if grouping is not None and all(key.startswith("algorithm.grouping.") for key in settings):
        return name if grouping == "default" else f"{name} ({grouping.replace('_', ' ')})"
    words = ", ".join(f"{key}={value}" for key, value in settings.items())
    return f"{name} [{words}]" if words else name


def _differing(named: Mapping[str, Sequence["Run"]]) -> list[str]:
    """Return, in words, the settings in which methods differ, beside what only one of them has."""
    from e2fl.config.overrides import flattened

    flat = {
        label: flattened(repeats[0].experiment.to_dict())
        for label, repeats in named.items()
        if not _alone(repeats[0])
    }
    shared = [set(settings) for settings in flat.values()]
    keys = sorted(set.intersection(*shared)) if len(shared) > 1 else []
    sentences = []
    for key in keys:
        if key.split(".")[0] in SAME or key.endswith((".name", ".label")) or key == "threads":
            continue
        values = {label: str(settings[key]) for label, settings in flat.items()}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{label} {value}" for label, value in values.items())
            sentences.append(f"{key}: {told}")
    return sentences


def _methods(label: str, repeats: Sequence["Run"]) -> list[Method]:
    """Return the runs of one configuration, and the other views of their models."""
    rows = frame(repeats)
    shared = [set(run.summary.get("views", {})) for run in repeats]
    methods = []
    for view in ("", *repeats[0].summary.get("views", {})):
        if view and not all(view in views for views in shared):
            continue
        parts = {
            run.experiment.seed: made
            for run in repeats
            if (made := clients_of(run.clients, view)) is not None
        }
        methods.append(
            Method(
                f"{label} ({view_title(view)})" if view else label,
                rows[rows["view"] == view],
                parts,
                alone=not view and _alone(repeats[0]),
                view=bool(view),
                recovers=not view and any(_recovers(run.summary) for run in repeats),
            )
        )
    return methods


def clients_of(rows: Sequence[Mapping[str, Any]], view: str = "") -> pd.DataFrame | None:
    """Return the rows of a clients.csv, with the accuracy of a view; None if it has none."""
    column = f"accuracy_{view}" if view else "accuracy"
    if not rows or column not in rows[0]:
        return None
    return pd.DataFrame(
        {
            "client": [str(row["client"]) for row in rows],
            "group": [str(row.get("group") or "") for row in rows],
            "n": [float(row["n"]) for row in rows],
            "accuracy": [float(row[column]) for row in rows],
        }
    )


def _recovers(summary: Json) -> bool:
    """Return whether groups were found and not declared; in unfinished runs, a cost shows it."""
    inference = summary.get("inference")
    if not inference:
        return False
    free = not inference.get("passes_per_client") and not inference.get("bytes")
    declared = free and inference.get("matched") in (100.0, None)
    return bool(summary.get("membership", "declared" if declared else "found") == "found")


def _own_measures(runs: Sequence["Run"]) -> tuple[Measure, ...]:
    """Return the measures that users added, as the runs describe them."""
    described: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        described |= run.summary.get("own_measures") or {}
    return tuple(
        measure for name, entry in described.items() for measure in measures_of(name, entry)
    )


def _unfair(study: Study, by_method: Sequence[Sequence["Run"]]) -> list[str]:
    """Return warnings about an unfair comparison."""
    firsts = [repeats[0] for repeats in by_method]
    every = [run for repeats in by_method for run in repeats]
    working = [run for run in firsts if not _alone(run)]
    warnings = [
        f"The runs do not share the same {name} section: their numbers cannot be compared directly."
        for name in ("data", "model")
        if _several(json.dumps(getattr(run.experiment, name), sort_keys=True) for run in firsts)
    ]
    if _several(run.experiment.rounds for run in working):
        warnings.append("The runs do not have the same number of rounds: the budgets differ.")
    if _several(run.experiment.algorithm.get("clients_per_round") for run in working):
        warnings.append(
            "The runs do not ask the same number of clients per round: the budgets differ."
        )
    if _several(method.seeds for method in study.methods):
        warnings.append(
            "Not every method was run with every seed: paired statements use the shared seeds."
        )
    if _several(kind for run in every if (kind := run.summary.get("groups_are"))):
        warnings.append(
            "Some runs measure groups that were found, others declared groups: "
            "these cannot be compared."
        )
    faults = {run.experiment.label: _faults(run) for run in every if _faults(run)}
    return warnings + [
        f"{label}: {count} replies were rejected as faulty." for label, count in faults.items()
    ]


def _several(values: Iterable[Any]) -> bool:
    return len(set(values)) > 1


def _faults(run: "Run") -> int:
    return sum(sum(line.get("faults", {}).values()) for line in run.history)


def _subtitle(run: "Run", methods: Sequence[Method]) -> str:
    first = methods[0]
    clients = next((len(clients) for clients in first.clients.values()), None)
    parts = [f"data set {run.summary['dataset']}"]
    groups = f"{len(first.groups)} groups" if first.groups else ""
    if clients is not None:
        parts.append(f"{clients:,} clients{f' in {groups}' if groups else ''}")
    elif groups:
        parts.append(groups)
    seeds = sorted({seed for method in methods for seed in method.seeds})
    parts.append(f"{run.experiment.rounds} rounds")
    parts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}")
    return " · ".join(parts)


def _protected_groups(methods: Sequence[Method]) -> tuple[str, str] | None:
    for method in methods:
        if any(f"protected/{kind}" in method.final for kind in ("eod", "di", "spd")):
            groups = method.groups
            if len(groups) == 2:
                return groups[0], groups[1]
    return None


def _facts(label: str, run: "Run") -> Json:
    summary = run.summary
    return {
        "label": label,
        "seed": run.experiment.seed,
        "rounds": summary.get("rounds"),
        "version": summary.get("version"),
        "environment": summary.get("environment", {}),
        "seconds": (summary.get("seconds") or {}).get("total"),
        "folder": None if run.folder is None else run.folder.name,
        "command": _command(run.folder),
        "config": run.experiment.to_toml(),
    }


def _command(folder: Path | None) -> str | None:
    """Return the command that made a run, from its folder or the comparison's above it."""
    from e2fl.runs.store import COMMAND

    for place in () if folder is None else (folder, folder.parent):
        text = _regular_file(place / COMMAND)
        if text is not None:
            return text.decode(errors="replace").strip()
    return None


def _data(runs: Sequence["Run"]) -> tuple[Json | None, bytes | None]:
    """Return data.json and data.svg from the first run that stored a description of its data."""
    for folder in (run.folder for run in runs if run.folder is not None):
        text = _regular_file(folder / "data.json")
        try:
            described = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(described, dict):
            return described, _regular_file(folder / "data.svg")
    return None, None


def _regular_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file of moderate size; None for links and anything else."""
    try:
        return read_bytes(path, LARGEST)
    except OSError:
        return None
