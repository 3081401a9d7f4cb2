"""A study from runs: what is compared, seed by seed, and whether the comparison is fair.

Runs are read as plain JSON: nothing that their files name is imported or built, and torch is not
loaded.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from safetensors import SafetensorError
from safetensors.numpy import load

from e2fl.config.overrides import NEUTRAL, flattened
from e2fl.errors import RunError
from e2fl.files import read_bytes
from e2fl.metrics.accuracy import MAX_RELATIVE_BLUR, MIN_STABILITY
from e2fl.metrics.intervals import MIN_TEST_ROWS
from e2fl.metrics.measures import own_measures
from e2fl.report.study import CLIENT_COLUMNS, Json, Method, Study, frame, view_label
from e2fl.report.table import words
from e2fl.runs.records import found_name, numbers_of
from e2fl.runs.store import COMMAND, Folder, StoredRun, read_run, run_folders

IGNORED = ("seed", *NEUTRAL)  # settings that do not tell two methods apart
NO_ATTACK = "none"  # the attack of a baseline: the designated clients behave honestly
PLACEMENT = ("place", "groups", "clients", "fraction")  # the settings that all attacks have
MAX_DATA_BYTES = 4_000_000  # bytes of data.json or data.svg that a page takes
MAX_LABEL = 60  # characters of a label


def read_runs(paths: Sequence[Path]) -> tuple[list[StoredRun], list[str]]:
    """Return all finished runs in these folders or below them, and what was left out."""
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


def study_of(
    runs: Sequence[StoredRun], notes: Iterable[str] = (), *, unfinished: str = ""
) -> Study:
    """Return the study of these runs: runs that differ only in their seed are one method."""
    warnings = list(notes)
    by_settings: dict[str, dict[int, StoredRun]] = {}
    for run in runs:
        repeats = by_settings.setdefault(json.dumps(_settings(run.config), sort_keys=True), {})
        if run.seed in repeats:
            name = _name(run.config, run.summary.get("title"))
            warnings.append(words("unfair", "twice", label=name, seed=run.seed))
        repeats[run.seed] = run
    by_method = [[repeats[seed] for seed in sorted(repeats)] for repeats in by_settings.values()]
    labels = labels_of([(run.config, run.summary.get("title")) for run, *_ in by_method])
    named = dict(sorted(zip(labels, by_method, strict=True), key=_order))
    same_data = len({_data_of(run) for run, *_ in by_method}) == 1
    methods: list[Method] = []
    for label, seeds in named.items():  # training alone comes first
        baseline = methods[0] if methods and methods[0].alone and same_data else None
        methods += _methods(label, seeds, baseline)
    described: Json = {}
    for run in runs:
        described |= run.summary.get("own_measures") or {}
    study = Study(
        title=", ".join(dict.fromkeys(run.config["name"] for run in runs)),
        subtitle="",
        methods=tuple(methods),
        settings=tuple(_differing(named)),
        runs=tuple(_run_facts(label, run) for label, repeats in named.items() for run in repeats),
        unfinished=unfinished,
        groups_found=any(run.summary.get("groups_are") == "found" for run in runs),
        own=tuple(own_measures(described)),
        attacked=_attack_costs(named),
        same_data=same_data,
        **_data(runs),
    )
    warnings += [*_method_warnings(named), *_comparison_warnings(study, by_method)]
    distinct = tuple(dict.fromkeys(warnings))
    return replace(study, subtitle=_subtitle(runs[0], study), warnings=distinct)


def _settings(config: Json) -> Json:
    """Return the settings that make a method, the same for a run in memory and one from a file."""
    kept = {name: value for name, value in config.items() if name not in IGNORED and value != {}}
    settings: Json = json.loads(json.dumps(kept))
    return settings


def _texts(config: Json) -> dict[str, str]:
    """Return the settings that make a method as strings, by their paths."""
    return {key: str(value) for key, value in flattened(_settings(config)).items()}


def _data_of(run: StoredRun) -> str:
    """Return a key that identifies the data: its settings; of a table, its digest, not its path."""
    digest = run.summary.get("data", {}).get("sha256")
    settings = {key: value for key, value in run.config["data"].items() if key != "path"}
    return json.dumps([digest or run.config["data"].get("path"), settings], sort_keys=True)


def _order(method: tuple[str, Sequence[StoredRun]]) -> tuple[bool, int, str]:
    """Return the sort key of a method: training alone first, then in the order of algorithms."""
    label, (run, *_) = method
    return not _alone(run), run.summary.get("order", 0), label


def _alone(run: StoredRun) -> bool:
    """Return whether clients train on their own."""
    return bool(run.summary.get("trains_alone"))


def _attack(run: StoredRun) -> Json:
    """Return the attack of a run; empty without malicious clients."""
    attack: Json = run.config.get("attack") or {}
    return attack if attack.get("name", NO_ATTACK) != NO_ATTACK else {}


def _name(config: Json, title: str | None) -> str:
    """Return the label given, or the algorithm's name as papers write it."""
    algorithm = config["algorithm"]
    return str(algorithm.get("label") or title or algorithm["name"].rpartition(":")[2])


def labels_of(methods: Sequence[tuple[Json, str | None]]) -> list[str]:
    """Return a label for each; equal names are distinguished by the settings in which they differ.

    methods: configurations with every default, and titles of their algorithms.
    """
    named = [(_name(config, title), _texts(config)) for config, title in methods]
    labels = []
    for name, texts in named:
        namesakes = [settings for other, settings in named if other == name]
        differ = {key for key in texts if any(other.get(key) != texts[key] for other in namesakes)}
        # Settings of a section tell two methods apart only where its name is the same.
        sections = tuple(key.removesuffix("name") for key in differ if key.endswith(".name"))
        shown = {k for k in differ if k.endswith(".name") or not k.startswith(sections)}
        label = _label(name, {key: texts[key] for key in texts if key in shown})
        labels.append(label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 3]}...")
    return [
        label if labels.count(label) == 1 else f"{label} #{position}"
        for position, label in enumerate(labels, 1)
    ]


def _label(name: str, differing: Mapping[str, str]) -> str:
    """Return a name with the settings that distinguish it from equal ones, such as its grouping."""
    named = {key: value for key, value in differing.items() if key.endswith(".name")}
    attack = named.pop("attack.name", NO_ATTACK)
    parts = [value.replace("_", " ") for value in named.values() if value != "known"]
    settings = [f"{key}={value}" for key, value in differing.items() if not key.endswith(".name")]
    whole = name if attack == NO_ATTACK else f"{name} under {attack}"
    whole += f" ({', '.join(parts)})" if parts else ""
    return f"{whole} [{', '.join(settings)}]" if settings else whole


def _differing(named: Mapping[str, Sequence[StoredRun]]) -> list[str]:
    """Return, in words, the settings that all methods have and in which they differ.

    How often a method is evaluated changes nothing that is compared.
    """
    together = {label: _texts(run.config) for label, (run, *_) in named.items() if not _alone(run)}
    return [
        f"{key}: {', '.join(f'{label} {value}' for label, value in row.items())}"
        for key, row in pd.DataFrame(together).dropna().sort_index().iterrows()
        if row.nunique() > 1 and not str(key).endswith((".name", ".label", "evaluate_every"))
    ]


def _methods(label: str, repeats: Sequence[StoredRun], baseline: Method | None) -> list[Method]:
    """Return the runs of one configuration, and the other views of their models."""
    rows = frame(repeats)
    inferred = [run.summary for run in repeats if run.summary.get("membership") == "found"]
    return [
        Method(
            view_label(label, view),
            rows[rows["view"] == view],
            _clients(repeats, view),
            alone=not view and _alone(repeats[0]),
            view=bool(view),
            recovers=not view and any(summary.get("inference") for summary in inferred),
            attacked=bool(_attack(repeats[0])),
            baseline=baseline,
        )
        for view in ("", *repeats[0].summary.get("views", {}))
    ]


def _group_in(run: StoredRun, row: Json) -> str:
    if run.summary.get("groups_are") == "found" and row.get("served_as") is not None:
        return found_name(row["served_as"])
    return str(row.get("group") or "")


def _clients(runs: Iterable[StoredRun], view: str) -> pd.DataFrame:
    """Return the rows of the clients.csv of these runs, with the accuracy of a view.

    The group is the declared one or, where groups are inferred, the one it was served as.
    The loss is that of the model that is served, so other views have none.
    """
    column = f"accuracy_{view}" if view else "accuracy"
    rows = [
        (
            *(run.seed, str(row["client"]), _group_in(run, row), row["n"], row[column]),
            None if view else row.get("loss"),
        )
        for run in runs
        for row in run.clients
        if column in row
    ]
    numeric = dict.fromkeys(("n", "accuracy", "loss"), float)
    return pd.DataFrame(rows, columns=list(CLIENT_COLUMNS)).astype(numeric)


def _method_warnings(named: Mapping[str, Sequence[StoredRun]]) -> Iterator[str]:
    """Yield warnings about single methods: recorded ones, faults, groups that may be noise."""
    for label, repeats in named.items():
        for run in repeats:
            for text in run.summary.get("warnings", ()):
                yield f"{label}: {str(text).removesuffix('.')}."
        lines = [line for run in repeats for line in run.history]
        faults: Counter[str] = sum((Counter(line.get("faults", {})) for line in lines), Counter())
        for kind, count in (("clipped", faults.pop("clipped", 0)), ("faults", faults.total())):
            if count:
                yield words("unfair", kind, label=label, count=count)
        clusterings = [(run.summary.get("metadata") or {}).get("clustering") for run in repeats]
        texts = (_clustering_warning(label, metadata) for metadata in filter(None, clusterings))
        yield from [text for text in texts if text][:1]


def _clustering_warning(label: str, clustering: Json) -> str:
    """Return why inferred groups may be noise; empty if they are well separated."""
    stability = clustering.get("stability", 1.0)
    relative = clustering.get("blur", 0.0) / (clustering.get("cloud") or 1.0)  # of several groups
    if stability < MIN_STABILITY:
        return words("unfair", "unstable", label=label, value=stability, limit=MIN_STABILITY)
    if relative <= MAX_RELATIVE_BLUR:
        return ""
    return words("unfair", "blurred", label=label, value=relative, limit=MAX_RELATIVE_BLUR)


def _comparison_warnings(study: Study, by_method: Sequence[Sequence[StoredRun]]) -> Iterator[str]:
    """Yield warnings about an unfair comparison, and about few test rows."""
    configs = [run.config for run, *_ in by_method]
    together = [run.config for run, *_ in by_method if not _alone(run)]
    values: dict[str, Iterable[Any]] = {
        "model": [json.dumps(config["model"], sort_keys=True) for config in configs],
        "rounds": [config["rounds"] for config in together],
        "clients": [config["algorithm"].get("clients_per_round") for config in together],
        "seeds": [method.seeds for method in study.methods],
        "groups": [run.summary.get("groups_are") for repeats in by_method for run in repeats],
    }
    if not study.same_data:
        yield words("unfair", "data")
    differing = (name for name, choices in values.items() if len({*choices} - {None}) > 1)
    yield from (words("unfair", name) for name in differing)
    medians = [method.clients["n"].median() for method in study.main if len(method.clients)]
    if min(medians, default=MIN_TEST_ROWS) < MIN_TEST_ROWS:
        yield words("unfair", "few_rows", rows=min(medians))


def _subtitle(run: StoredRun, study: Study) -> str:
    first = study.methods[0]
    counts = {"clients": first.clients["client"].nunique(), "groups": len(first.groups)}
    size = " in ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    seeds = f"seed{'s' if len(study.seeds) > 1 else ''} {', '.join(map(str, study.seeds))}"
    parts = (f"data set {run.summary['dataset']}", size, f"{run.config['rounds']} rounds", seeds)
    return " · ".join(filter(None, parts))


def _run_facts(label: str, run: StoredRun) -> Json:
    """Return the provenance of a run; its command is in its folder or in that of the comparison."""
    summary, folders = run.summary, (run.folder, run.folder.parent) if run.folder else ()
    commands = (_regular_file(folder / COMMAND) for folder in folders)
    return {
        "method": label,
        "seed": run.seed,
        "rounds": summary.get("rounds"),
        "version": summary.get("version"),
        "environment": ", ".join(f"{k} {v}" for k, v in summary.get("environment", {}).items()),
        "seconds": (summary.get("seconds") or {}).get("total"),
        "folder": None if run.folder is None else run.folder.name,
        "command": (next(filter(None, commands), b"")).decode(errors="replace").strip(),
        "config": tomli_w.dumps({key: value for key, value in run.config.items() if value != {}}),
    }


def _data(runs: Sequence[StoredRun]) -> Json:
    """Return data.json, and data.svg in base64, from the first run that stored them."""
    for folder in (run.folder for run in runs if run.folder is not None):
        described = Folder(folder).read_json("data.json")
        if described is not None:
            picture = base64.b64encode(_regular_file(folder / "data.svg") or b"").decode()
            return {"data": described, "data_picture": picture}
    return {}


def _regular_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file of moderate size; None for links and anything else."""
    try:
        return read_bytes(path, MAX_DATA_BYTES)
    except OSError:
        return None


def _attack_costs(named: Mapping[str, Sequence[StoredRun]]) -> pd.DataFrame:
    """Return the cost of each attack by seed: accuracy of the clean run minus the attacked one.

    Both runs measure the same honest clients. named: the runs of each method.
    """
    clean, attacked = {}, []
    for label, run in ((label, run) for label, repeats in named.items() for run in repeats):
        settings = run.config.get("attack") or {}
        placement = {name: settings.get(name) for name in PLACEMENT}
        key = json.dumps([_settings(run.config | {"attack": placement}), run.seed])
        if _attack(run):
            attacked.append((key, str(settings["name"]), run))
        elif settings:
            clean[key] = label, run
    return pd.DataFrame(
        {"method": clean[key][0], "attack": attack, **_attack_cost(clean[key][1], run)}
        for key, attack, run in attacked
        if key in clean
    )


def _attack_cost(clean: StoredRun, attacked: StoredRun) -> dict[str, float]:
    before, after = (pd.Series(numbers_of(run.summary)) for run in (clean, attacked))
    losses = (before - after).dropna()
    level = "group" if "group/worst10" in losses else "clients"
    names = {f"groups/{name}/accuracy": name for name in clean.summary["groups"]}
    by_group = losses.reindex(list(names)).dropna().rename(names)
    inside = by_group.index.isin((attacked.summary.get("attack") or {}).get("groups", ()))
    lost = by_group.clip(lower=0)
    return {
        "worst": losses[f"{level}/worst10"],
        "inside": by_group[inside].mean(),
        "outside": by_group[~inside].mean(),
        "hardest": by_group[~inside].max(),
        "clients": losses["clients/mean"],
        "contained": 100 * lost[inside].sum() / lost.sum() if inside.any() and lost.any() else nan,
        "edges": _changed_edges(clean.folder, attacked.folder),
        **{f"groups/{name}": loss for name, loss in by_group.items()},
    }


def _changed_edges(clean: Path | None, attacked: Path | None) -> float:
    """Return the percentage of kept edges that the attacked run drops, over all its masks."""
    before, after = ({} if folder is None else _masks(folder) for folder in (clean, attacked))
    names = before.keys() & after.keys()
    total = sum(int(before[name].sum()) for name in names)
    lost = sum(int((before[name] & ~after[name]).sum()) for name in names)
    return 100 * lost / total if total else nan


def _masks(folder: Path) -> dict[str, Any]:
    """Return the masks that a run stored; none if its models are weights, or not stored."""
    try:
        stored = load(read_bytes(folder / "model.safetensors"))
    except (OSError, SafetensorError):
        return {}
    return {name: mask for name, mask in stored.items() if mask.dtype == bool}
