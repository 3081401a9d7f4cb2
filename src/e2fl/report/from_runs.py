"""A study from folders of runs: what is compared, seed by seed, and whether the comparison is fair.

Reading a run never builds or imports what its files name: a run folder may come from anywhere.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2fl.errors import RunError
from e2fl.report.study import Clients, Json, Method, Outcome, Study, clients_of, number

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.runs.runner import Run

SAME = ("name", "seed", "variants")  # settings that do not tell two methods apart
VIEWS = {"global": "GM"}  # the paper's names for views
LARGEST = 4_000_000  # bytes of data.json or data.svg that a page takes


def read_runs(paths: Sequence[Path]) -> tuple[list["Run"], list[str]]:
    """Return all finished runs in these folders or below them, and what was left out."""
    from e2fl.runs.folder import Folder, run_folders
    from e2fl.runs.runner import read_run

    runs: list[Run] = []
    left_out = []
    for path in paths:
        found = list(run_folders(path))
        if not found:
            raise RunError(f"{path} holds no run: neither it nor a folder below it has a config.toml")
        for folder in found:
            if Folder(folder).finished():
                runs.append(read_run(folder))
            else:
                left_out.append(f"{folder.name} is not finished and was left out; continue it with --resume.")
    if not runs:
        raise RunError(f"no run in {', '.join(map(str, paths))} is finished; continue it with --resume")
    return runs, left_out


def read_unfinished(path: Path) -> "Run":
    """Return a run from what it has written to its folder so far."""
    from e2fl.runs.folder import Folder
    from e2fl.runs.runner import Run

    folder = Folder(path)
    experiment, history = folder.read_experiment(), folder.read_history()
    if not history:
        raise RunError(f"{path} has no evaluated round yet")
    return Run(experiment, summary_so_far(experiment, history), history, [], None, path)


def summary_so_far(experiment: "Experiment", history: Sequence[Json]) -> Json:
    """Return what summary.json would hold if the run ended now, as far as its history shows."""
    return {
        "algorithm": experiment.algorithm["name"],
        "label": experiment.label,
        "dataset": experiment.data["name"],
        "rounds": history[-1]["round"],
        "seed": experiment.seed,
        **{key: value for key, value in history[-1].items() if key not in ("round", "asked", "answered", "faults")},
    }


def study_of(runs: Sequence["Run"], notes: Iterable[str] = (), *, unfinished: str = "") -> Study:
    """Return the study of these runs: runs that differ only in their seed are one method."""
    warnings = list(notes)
    by_key: dict[str, dict[int, Run]] = {}
    for run in runs:
        same = by_key.setdefault(json.dumps(_settings(run.experiment), sort_keys=True), {})
        if run.experiment.seed in same:
            label, seed = _display(run.experiment), run.experiment.seed
            warnings.append(f"{label} was given twice with seed {seed}; the last one is shown.")
        same[run.experiment.seed] = run
    by_method = [[same[seed] for seed in sorted(same)] for same in by_key.values()]
    labels = labels_of([repeats[0].experiment for repeats in by_method])
    named = sorted(zip(labels, by_method, strict=True), key=lambda pair: _place(*pair))
    methods = [method for label, repeats in named for method in _methods(label, repeats)]
    warnings += [f"{label}: {text}." for label, repeats in named for run in repeats for text in _warnings(run.summary)]
    warnings += _differences(methods, by_method)
    data, picture = _data(runs)
    return Study(
        title=", ".join(dict.fromkeys(run.experiment.name for run in runs)),
        subtitle=_subtitle(runs[0], methods),
        methods=tuple(methods),
        warnings=tuple(dict.fromkeys(warnings)),
        runs=tuple(_facts(label, run) for label, repeats in named for run in repeats),
        unfinished=unfinished,
        data=data,
        data_picture=picture,
        protected_groups=_protected_groups(methods),
        groups_found=any(run.summary.get("groups_are") == "found" for run in runs),
    )


def _warnings(summary: Json) -> list[str]:
    found = summary.get("warnings", summary.get("caution"))
    texts = found if isinstance(found, list) else [] if found is None else [found]
    return [str(text).removesuffix(".") for text in texts]


def _place(label: str, repeats: Sequence["Run"]) -> tuple[bool, int, str]:
    """Return the sort key of a method on the page: training alone first, then in the order of the algorithms."""
    from e2fl.algorithms import ALGORITHMS

    known = list(ALGORITHMS)
    name = repeats[0].experiment.algorithm["name"]
    return not _alone(repeats), known.index(name) if name in known else len(known), label


def _alone(repeats: Sequence["Run"]) -> bool:
    """Return whether clients train on their own: as recorded, or, in an unfinished run, by the algorithm's name."""
    return repeats[0].summary.get("trains_alone", repeats[0].experiment.algorithm["name"] == "local") is True


TITLES = {"qffl": "q-FFL", "e2fl_steady": "E2FL steady"}  # where papers use another name than the class


def _settings(experiment: "Experiment") -> Json:
    from e2fl.config.completion import trimmed
    from e2fl.config.experiment import UNSAVED

    return {n: value for n, value in trimmed(experiment).to_dict().items() if n not in (*SAME, *UNSAVED)}


def _told(experiment: "Experiment") -> dict[str, str]:
    from e2fl.config.overrides import flattened

    return {name: str(value) for name, value in flattened(_settings(experiment)).items()}


def _display(experiment: "Experiment") -> str:
    """Return the label given, or the algorithm's name as papers write it."""
    from e2fl.algorithms import ALGORITHMS

    name = str(experiment.algorithm["name"])
    if "label" in experiment.algorithm:
        return experiment.label
    if name in TITLES:
        return TITLES[name]
    kind = ALGORITHMS.get(name)
    return kind.__name__ if kind is not None else name.rpartition(":")[2]


def labels_of(experiments: Sequence["Experiment"]) -> list[str]:
    """Return a name for each; methods of the same name are distinguished by the settings in which they differ."""
    names = [_display(experiment) for experiment in experiments]
    labels = []
    for name, experiment in zip(names, experiments, strict=True):
        namesakes = [_told(e) for n, e in zip(names, experiments, strict=True) if n == name]
        own = _told(experiment)
        keys = dict.fromkeys(key for other in namesakes for key in other)
        differing = [key for key in keys if any(other.get(key) != own.get(key) for other in namesakes)]
        told = ", ".join(f"{key}={own.get(key, 'default')}" for key in differing)
        labels.append(f"{name} [{told}]" if len(told) > 0 else name)
    shortened = [label if len(label) <= 60 else f"{label[:57]}..." for label in labels]
    return [label if shortened.count(label) == 1 else f"{label} #{place + 1}" for place, label in enumerate(shortened)]


def _methods(label: str, repeats: Sequence["Run"]) -> list[Method]:
    """Return the runs of one configuration, and the other views of their models."""
    found = [Method(label, tuple(_outcome(run, None) for run in repeats), alone=_alone(repeats))]
    for view in repeats[0].summary.get("views", {}):
        if all(view in run.summary.get("views", {}) for run in repeats):
            name = f"{label} ({VIEWS.get(view, view)})"
            found.append(Method(name, tuple(_outcome(run, view) for run in repeats), view=True))
    return found


def _outcome(run: "Run", view: str | None) -> Outcome:
    part = run.summary if view is None else run.summary["views"][view]
    lines = run.history if view is None else [line | line["views"][view] for line in run.history if "views" in line]
    clients: Clients | None = None
    if run.clients:
        clients = clients_of(run.clients, "accuracy" if view is None else f"accuracy_{view}")
    asked = run.summary.get("participation")
    return Outcome(
        seed=run.experiment.seed,
        user=part["user"],
        group=part.get("group"),
        groups=part.get("groups") or {},
        clients=clients,
        sent=_sent(run.summary),
        history=lines,
        protected=part.get("protected"),
        recovery=_recovery(run.summary) if view is None else None,
        budget=_numbers(run.summary.get("budget")),
        participation=asked if isinstance(asked, Mapping) else None,
        bits=_bits(run.summary),
        loss=part.get("loss"),
        diverged=part.get("diverged", 0),
    )


def _numbers(found: Any) -> dict[str, float] | None:
    """Return the finite numbers of an optional part of a summary."""
    if not isinstance(found, Mapping):
        return None
    return {str(key): known for key, value in found.items() if (known := number(value)) is not None}


def _recovery(summary: Json) -> Json | None:
    """Return how well groups were found; None if clients declared them, which in unfinished runs a cost of 0 shows."""
    found: Json | None = summary.get("inference")
    if not found:
        return None
    free = not found.get("passes_per_client") and not found.get("bytes") and found.get("matched") in (100.0, None)
    return found if summary.get("membership", "declared" if free else "found") == "found" else None


def _bits(summary: Json) -> dict[str, float] | None:
    """Return bits per edge, and by how many percent those sent are above the entropy."""
    found = _numbers(summary.get("bits"))
    entropy = (found or {}).get("entropy_up_per_edge", 0.0)
    if not found or entropy <= 0 or "up_per_edge" not in found:
        return found
    return found | {"over_entropy": 100 * (found["up_per_edge"] / entropy - 1)}


def _sent(summary: Json) -> dict[str, float] | None:
    found = _numbers(summary.get("bytes"))
    if not found:
        return None
    return found | {"total": found.get("up_total", 0.0) + found.get("down_total", 0.0)}


def _differences(methods: Sequence[Method], by_method: Sequence[Sequence["Run"]]) -> list[str]:
    """Return warnings about an unfair comparison."""
    experiments = [repeats[0].experiment for repeats in by_method]
    found = [
        f"The runs do not share the same {name} section: their numbers cannot be compared directly."
        for name in ("data", "model")
        if len({json.dumps(getattr(experiment, name), sort_keys=True) for experiment in experiments}) > 1
    ]
    working = [repeats[0] for repeats in by_method if not _alone(repeats)]
    if len({run.experiment.rounds for run in working}) > 1:
        found.append("The runs do not have the same number of rounds: the budgets differ.")
    if len({run.experiment.algorithm.get("clients_per_round", "default") for run in working}) > 1:
        found.append("The runs do not ask the same number of clients per round: the budgets differ.")
    if len({method.seeds for method in methods}) > 1:
        found.append("Not every method was run with every seed: paired statements use the seeds that are shared.")
    if (
        len(
            {run.summary.get("groups_are") for repeats in by_method for run in repeats if run.summary.get("groups_are")}
        )
        > 1
    ):
        found.append("Some runs measure groups that were found, others declared groups: these cannot be compared.")
    faults = {run.experiment.label: _faults(run) for repeats in by_method for run in repeats if _faults(run)}
    found += [f"{label}: {count} replies were rejected as faulty." for label, count in faults.items()]
    return found


def _faults(run: "Run") -> int:
    return sum(sum(line.get("faults", {}).values()) for line in run.history)


def _subtitle(run: "Run", methods: Sequence[Method]) -> str:
    outcome = methods[0].outcomes[0]
    clients = len(outcome.clients) if outcome.clients else None
    parts = [f"data set {run.summary['dataset']}"]
    if clients is not None:
        parts.append(f"{clients:,} clients" + (f" in {len(outcome.groups)} groups" if outcome.groups else ""))
    elif outcome.groups:
        parts.append(f"{len(outcome.groups)} groups")
    seeds = sorted({seed for method in methods for seed in method.seeds})
    parts.append(f"{run.experiment.rounds} rounds")
    parts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}")
    return " · ".join(parts)


def _protected_groups(methods: Sequence[Method]) -> tuple[str, str] | None:
    for outcome in (outcome for method in methods for outcome in method.outcomes):
        if outcome.protected and len(outcome.groups) == 2:
            first, second = outcome.groups
            return first, second
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
    """Return the command that made a run, from its folder or from that of the comparison above it."""
    from e2fl.runs.folder import COMMAND

    for place in () if folder is None else (folder, folder.parent):
        path = place / COMMAND
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    return None


def _data(runs: Sequence["Run"]) -> tuple[Json | None, bytes | None]:
    """Return the description (data.json) and picture (data.svg) of the data, from the first run that stored them."""
    for folder in (run.folder for run in runs if run.folder is not None):
        text = _small_file(folder / "data.json")
        try:
            found = None if text is None else json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found, _small_file(folder / "data.svg")
    return None, None


def _small_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file of moderate size, or None."""
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= LARGEST else None
    except OSError:
        return None
