"""Folders of runs into a study: who is compared, seed by seed, and whether the comparison is a fair one."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2fl.algorithms import ALGORITHMS
from e2fl.config.defaults import trimmed
from e2fl.config.experiment import UNSAVED, Experiment, from_dict
from e2fl.errors import E2flError, RunError
from e2fl.report.study import Clients, Contender, Json, Outcome, Sent, Study, clients_of
from e2fl.runs.folder import Folder
from e2fl.runs.records import Summary
from e2fl.runs.runner import Run, read_run

SAME = ("name", "seed", "variants", *UNSAVED)  # settings that do not tell two contenders apart
VIEWS = {"global": "GM"}  # what the paper calls a view
DEPTH = 3  # folders below a given one in which runs are looked for


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """All finished runs in these folders or below them, and what was left out."""
    runs: list[Run] = []
    left_out = []
    for path in paths:
        found = list(run_folders(path))
        if not found:
            raise RunError(f"{path} holds no run: there is no config.toml in it or in folders below it")
        for folder in found:
            if Folder(folder).finished():
                runs.append(read_run(folder))
            else:
                left_out.append(f"{folder.name} is not finished and was left out; go on with it with --resume.")
    if not runs:
        raise RunError(f"no run in {', '.join(map(str, paths))} is finished; go on with it with --resume")
    return runs, left_out


def read_unfinished(path: Path) -> Run:
    """What a run has left on disk so far, as a run."""
    folder = Folder(path)
    try:
        experiment = from_dict(tomllib.loads((path / "config.toml").read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, E2flError) as error:
        raise RunError(f"{path} is not the folder of a run: config.toml cannot be read ({error})") from error
    history = folder.read_history()
    if not history:
        raise RunError(f"{path} has no evaluated round yet")
    return Run(experiment, summary_so_far(experiment, history), history, [], None, path)


def summary_so_far(experiment: Experiment, history: Sequence[Json]) -> Json:
    """What summary.json would hold if the run ended now, as far as its history tells."""
    return {
        "algorithm": experiment.algorithm["name"],
        "label": experiment.label,
        "dataset": experiment.data["name"],
        "rounds": history[-1]["round"],
        "seed": experiment.seed,
        **{key: value for key, value in history[-1].items() if key not in ("round", "asked", "answered", "faults")},
    }


def study_of(runs: Sequence[Run], notes: Iterable[str] = (), *, unfinished: str = "") -> Study:
    """The study these runs make: runs that differ only in their seed are one contender."""
    cautions = list(notes)
    by_key: dict[str, dict[int, Run]] = {}
    for run in runs:
        same = by_key.setdefault(_key(run.experiment), {})
        if run.experiment.seed in same:
            cautions.append(
                f"{_display(run.experiment)} was given twice with seed {run.experiment.seed}; the last one is shown."
            )
        same[run.experiment.seed] = run
    teams = [[same[seed] for seed in sorted(same)] for same in by_key.values()]
    labels = _labels([team[0].experiment for team in teams])
    named = sorted(zip(labels, teams, strict=True), key=lambda pair: _place(*pair))
    contenders = [contender for label, team in named for contender in _contenders(label, team)]
    cautions += [
        f"{label}: {run.summary['caution']}." for label, team in named for run in team if "caution" in run.summary
    ]
    cautions += _differences(contenders, teams)
    return Study(
        title=_title([run.experiment for run in runs]),
        subtitle=_subtitle(runs[0], contenders),
        contenders=tuple(contenders),
        cautions=tuple(dict.fromkeys(cautions)),
        facts=tuple(_facts(label, run) for label, team in named for run in team),
        unfinished=unfinished,
        protected_direction=_direction(contenders),
    )


def _place(label: str, team: Sequence[Run]) -> tuple[bool, int, str]:
    """Where a contender stands on the page: who trains alone first, then as algorithms are listed."""
    known = list(ALGORITHMS)
    name = team[0].experiment.algorithm["name"]
    return not _alone(team), known.index(name) if name in known else len(known), label


def _alone(team: Sequence[Run]) -> bool:
    """Whether clients send nothing, as recorded; nothing that a file names is imported."""
    return team[0].result.trains_alone


def run_folders(path: Path, depth: int = DEPTH) -> Iterable[Path]:
    """This folder if it is of a run, or those below it that are."""
    if (path / "config.toml").is_file():
        yield path
    elif depth and path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from run_folders(inner, depth - 1)


def _settings(experiment: Experiment) -> Json:
    return {name: value for name, value in trimmed(experiment).to_dict().items() if name not in SAME}


def _key(experiment: Experiment) -> str:
    return json.dumps(_settings(experiment), sort_keys=True)


def _display(experiment: Experiment) -> str:
    """The label given, or what the algorithm is called in its own code."""
    name = str(experiment.algorithm["name"])
    if "label" in experiment.algorithm:
        return experiment.label
    kind = ALGORITHMS.get(name)
    return kind.__name__ if kind is not None else name.rpartition(":")[2]


def _labels(experiments: Sequence[Experiment]) -> list[str]:
    """A name for each, with the settings that tell namesakes apart."""
    names = [_display(experiment) for experiment in experiments]
    labels = []
    for name, experiment in zip(names, experiments, strict=True):
        namesakes = [_flat(_settings(e)) for n, e in zip(names, experiments, strict=True) if n == name]
        own = _flat(_settings(experiment))
        keys = dict.fromkeys(key for other in namesakes for key in other)
        differing = [key for key in keys if any(other.get(key) != own.get(key) for other in namesakes)]
        told = ", ".join(f"{key}={own.get(key, 'default')}" for key in differing)
        labels.append(f"{name} [{told}]" if len(told) > 0 else name)
    shortened = [label if len(label) <= 60 else f"{label[:57]}..." for label in labels]
    return [label if shortened.count(label) == 1 else f"{label} #{place + 1}" for place, label in enumerate(shortened)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def _contenders(label: str, team: Sequence[Run]) -> list[Contender]:
    """The runs of one configuration, and the other views of their models."""
    found = [Contender(label, tuple(_outcome(run, None) for run in team), alone=_alone(team))]
    for view in team[0].summary.get("views", {}):
        if all(view in run.summary.get("views", {}) for run in team):
            name = f"{label} ({VIEWS.get(view, view)})"
            found.append(Contender(name, tuple(_outcome(run, view) for run in team), view=True))
    return found


def _outcome(run: Run, view: str | None) -> Outcome:
    part = run.summary if view is None else run.summary["views"][view]
    lines = run.history if view is None else [line | line["views"][view] for line in run.history if "views" in line]
    clients: Clients | None = None
    if run.clients:
        clients = clients_of(run.clients, "accuracy" if view is None else f"accuracy_{view}")
    return Outcome(
        seed=run.experiment.seed,
        user=part["user"],
        group=part.get("group"),
        groups=part.get("groups") or {},
        clients=clients,
        sent=_sent(run),
        history=lines,
        protected=part.get("protected"),
        inference=_inferred(run.summary) if view is None else None,
        diverged=part.get("diverged", 0),
    )


def _inferred(summary: Json) -> Json | None:
    """How well groups were found, if anything was done to find them."""
    found: Json | None = summary.get("inference")
    if not found:
        return None
    return None if Summary.from_json(summary).membership == "declared" else found


def _sent(run: Run) -> Sent | None:
    found = run.summary.get("bytes")
    if not found:
        return None
    return Sent(
        found.get("up_per_client_round", 0.0),
        found.get("down_per_client_round", 0.0),
        found["up_total"] + found["down_total"],
    )


def _differences(contenders: Sequence[Contender], teams: Sequence[Sequence[Run]]) -> list[str]:
    """What makes a comparison unfair, in words."""
    experiments = [team[0].experiment for team in teams]
    found = [
        f"The runs do not share the same {name} section: their numbers are not comparable as they are."
        for name in ("data", "model")
        if len({json.dumps(getattr(experiment, name), sort_keys=True) for experiment in experiments}) > 1
    ]
    at_work = [team[0] for team in teams if not _alone(team)]
    if len({run.experiment.rounds for run in at_work}) > 1:
        found.append("The runs do not have the same number of rounds: the budgets differ.")
    if len({run.experiment.algorithm.get("clients_per_round", "default") for run in at_work}) > 1:
        found.append("The runs do not draw the same number of clients a round: the budgets differ.")
    if len({contender.seeds for contender in contenders}) > 1:
        found.append("Not every algorithm was run with every seed: paired statements use the seeds that are shared.")
    faults = {run.experiment.label: _faults(run) for team in teams for run in team if _faults(run)}
    found += [f"{label}: {count} replies were left out as faulty." for label, count in faults.items()]
    return found


def _faults(run: Run) -> int:
    return sum(sum(line.get("faults", {}).values()) for line in run.history)


def _title(experiments: Sequence[Experiment]) -> str:
    return ", ".join(dict.fromkeys(experiment.name for experiment in experiments))


def _subtitle(run: Run, contenders: Sequence[Contender]) -> str:
    outcome = contenders[0].outcomes[0]
    clients = len(outcome.clients) if outcome.clients else None
    parts = [f"data set {run.summary['dataset']}"]
    if clients is not None:
        parts.append(f"{clients:,} clients" + (f" in {len(outcome.groups)} groups" if outcome.groups else ""))
    elif outcome.groups:
        parts.append(f"{len(outcome.groups)} groups")
    seeds = sorted({seed for contender in contenders for seed in contender.seeds})
    parts.append(f"{run.experiment.rounds} rounds")
    parts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}")
    return " · ".join(parts)


def _direction(contenders: Sequence[Contender]) -> str:
    for contender in contenders:
        for outcome in contender.outcomes:
            if outcome.protected and len(outcome.groups) == 2:
                first, second = outcome.groups
                return f"{first} minus {second}"
    return ""


def _facts(label: str, run: Run) -> Json:
    summary = run.summary
    return {
        "label": label,
        "seed": run.experiment.seed,
        "rounds": summary.get("rounds"),
        "version": summary.get("version"),
        "environment": summary.get("environment", {}),
        "seconds": (summary.get("seconds") or {}).get("total"),
        "data": summary.get("data", {}),
        "folder": None if run.folder is None else run.folder.name,
        "command": _command(run.folder),
        "config": run.experiment.to_toml(),
    }


def _command(folder: Path | None) -> str | None:
    """The command that made a run, from its folder or the comparison's above it."""
    for place in () if folder is None else (folder, folder.parent):
        path = place / "command.txt"
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    return None
