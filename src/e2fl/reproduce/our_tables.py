"""Tables of our own studies: the recommended settings, data with natural groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2fl.algorithms.e2fl import E2FL
from e2fl.config.experiment import from_dict
from e2fl.participation import ByGroup, Uniform
from e2fl.report.intervals import over_seeds
from e2fl.reproduce.collecting import FREE, recipe_of
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.selection import fewer_images, select
from e2fl.reproduce.tables import (
    Column,
    Repeats,
    Table,
    cell,
    interval,
    level,
    repeats_of,
    seeds_of,
    seeds_text,
    up_to,
    with_interval,
)

GROUPS = [
    Column("groups: mean", (), level("group", "mean")),
    Column("groups: worst", (), level("group", "worst10")),
    Column("groups: variance", (), level("group", "variance")),
    Column("clients: mean", (), level("user", "mean")),
    Column("clients: variance", (), level("user", "variance")),
]
GLOBAL = [
    Column("GM: mean", (), level("group", "mean", "global")),
    Column("GM: worst", (), level("group", "worst10", "global")),
]
NAMES = {
    "local": "Local",
    "fedavg": "FedAvg",
    "qffl": "q-FFL",
    "ditto": "Ditto",
    "ifca": "IFCA",
    "ifca_oracle": "IFCA, groups known",
    "frl": "FRL",
    "e2fl": "E2FL, as in the paper",
    "e2fl_steady": "E2FL steady",
    "rank_clustering": "E2FL, as in the paper, rank clustering (Q = 5)",
    "steady_rank_clustering": "E2FL steady, rank clustering (Q = 5)",
}
FINDING = {  # where clients declare no groups
    "e2fl": "E2FL, as in the paper, lowest loss (Q = 2)",
    "one_shot": "E2FL, as in the paper, one shot (Q = 2)",
    "e2fl_present_only": "E2FL, lowest loss, absent groups do not vote",
}
DEMO_ROUNDS = 60
DEMO = ("local", "fedavg", "e2fl", "e2fl_steady")

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Variation:
    """A run as a shipped experiment with changes."""

    entry: Entry
    changes: Mapping[str, Any]

    def only(self, *names: str) -> bool:
        """Return whether no other setting was changed."""
        return set(self.changes) <= set(names)


def variations(entries: Iterable[Entry], experiment: str) -> list[Variation]:
    """Return the runs of a shipped experiment, each with its changes."""
    found = []
    for entry in entries:
        recipe = recipe_of(entry.config) if entry.experiment == experiment else None
        if recipe is not None:
            changes = {key: value for key, value in recipe.changes.items() if key not in FREE}
            found.append(Variation(entry, changes))
    return found


def described(entry: Entry) -> str:
    """Return the method of a run, with the settings of training that differ from the shipped experiment."""
    changes = variations([entry], entry.experiment)
    if not changes:
        return entry.method
    algorithm = entry.config["algorithm"]
    differing = []
    for key, value in changes[0].changes.items():
        section, _, name = key.partition(".")
        if section in ("algorithm", "learner") and not name.startswith(("ballot.", "downlink.")):
            differing.append(f"{name} = {str(value).lower() if isinstance(value, bool) else value}")
        elif section == "participation":
            differing.append(str(value) if name == "name" else f"{name} = {value}")
    if any(key.startswith(("algorithm.ballot.", "algorithm.downlink.")) for key in changes[0].changes):
        up, down = (ballot_name(algorithm.get(part, {"name": "exact"})) for part in ("ballot", "downlink"))
        differing.append(f"{up} up, {down} down")
    return f"{entry.method} ({', '.join(differing)})" if differing else entry.method


def ballot_name(section: Mapping[str, Any]) -> str:
    """Return the display name of a ballot format."""
    if section["name"] == "moves":
        return f"moves, {section.get('steps', 16)} steps{_finer(section, 4)}"
    if section["name"] != "buckets":
        return str(section["name"])
    if borders := section.get("uneven"):
        return f"uneven {' '.join(f'{border:g}' for border in borders)}"
    return f"{section.get('buckets', 16)} buckets{_finer(section, 1)}"


def _finer(section: Mapping[str, Any], default: int) -> str:
    finer = section.get("finer", default)
    return f", {finer} x near the cut" if finer > 1 else ""


def rows_by(
    runs: Iterable[Variation], cells: Callable[[Variation], Cells | None], at: int | None = None
) -> dict[Cells, Repeats]:
    """Return the runs by the first cells of their row; None leaves a run out. at: the round; default: the last."""
    found: dict[Cells, list[Entry]] = {}
    for run in runs:
        key = cells(run)
        if key is not None and (at is None or run.entry.at(at) is not None):
            found.setdefault(key, []).append(run.entry)
    return {key: repeats_of(own)[0] if at is None else Repeats(tuple(own), at) for key, own in found.items()}


def table_of(titles: Sequence[str], rows: Mapping[Cells, Repeats], columns: Sequence[Column]) -> Table:
    """Return a row for each method: its cells, the number of seeds, and the measures with intervals."""
    made = []
    for cells, repeats in rows.items():
        means = [interval(repeats, column) for column in columns]
        shown = [cell(mean, column.digits) for mean, column in zip(means, columns, strict=True)]
        made.append((*cells, seeds_of(means, repeats), *shown))
    return Table((*titles, "seeds", *(column.title for column in columns)), tuple(made), (), not made)


def of_demo(entries: Sequence[Entry]) -> list[Variation]:
    """Return the runs of the demo, all at its last round; Local, which ends before, if it has finished."""
    cut = (replace(run, entry=up_to(run.entry, DEMO_ROUNDS)) for run in variations(entries, "demo"))
    return [
        run for run in cut if run.entry.rounds == DEMO_ROUNDS or (run.entry.method == "local" and run.entry.finished)
    ]


def demo(entries: Sequence[Entry]) -> Table:
    """Return the table of the four methods of the demo."""
    rows = rows_by(of_demo(entries), lambda run: (run.entry.method,) if not run.changes else None)
    ordered: dict[Cells, Repeats] = {(NAMES[method],): rows[(method,)] for method in DEMO if (method,) in rows}
    return table_of(("",), ordered, [*GROUPS, *GLOBAL])


CRITERIA: dict[str, Callable[[dict[str, dict[str, float]]], bool]] = {
    "best mean over groups": lambda by: by["e2fl_steady"]["mean"] >= max(own["mean"] for own in by.values()),
    "best worst group": lambda by: by["e2fl_steady"]["worst"] >= max(own["worst"] for own in by.values()),
    "worst group at least Local's": lambda by: by["e2fl_steady"]["worst"] >= by["local"]["worst"],
    "mean over clients within 1 point of the best": lambda by: (
        by["e2fl_steady"]["clients"] >= max(own["clients"] for own in by.values()) - 1
    ),
    "group variance at most a fifth of FedAvg's": lambda by: (
        by["e2fl_steady"]["variance"] <= by["fedavg"]["variance"] / 5
    ),
}


def criteria(entries: Sequence[Entry]) -> Table:
    """Return the table of the demo's criteria for e2fl_steady, by seed; only seeds that all four methods have."""
    figures: dict[int, dict[str, dict[str, float]]] = {}
    for run in of_demo(entries):
        if not run.changes and run.entry.method in DEMO:
            last = run.entry.history[-1]
            figures.setdefault(run.entry.seed, {})[run.entry.method] = {
                "mean": last["group"]["mean"],
                "worst": last["group"]["worst10"],
                "variance": last["group"]["variance"],
                "clients": last["user"]["mean"],
            }
    whole = {seed: by for seed, by in sorted(figures.items()) if len(by) == len(DEMO)}
    rows = tuple(
        (name, *("yes" if holds(by) else "**no**" for by in whole.values())) for name, holds in CRITERIA.items()
    )
    return Table(("", *(f"seed {seed}" for seed in whole)), rows, (), not whole)


def ablation(entries: Sequence[Entry]) -> Table:
    """Return the table of participation, incumbents, smoothing and learning rate on the demo."""
    rows = rows_by(of_demo(entries), _point)
    return table_of(POINT, dict(sorted(rows.items(), key=_numbers)), [*GROUPS, *GLOBAL])


POINT = ("participation", "incumbents", "smoothing", "rate")
STEADY = ("by_group", "0", "5", "0.1")


def _validated(title: str, name: str, figure: str) -> Column:
    return Column(title, (), lambda entry, line: (line.get("validation", {}).get(name) or {}).get(figure))


VALIDATED = [
    _validated("groups: mean", "group", "mean"),
    _validated("groups: worst", "group", "worst10"),
    _validated("groups: variance", "group", "variance"),
    _validated("clients: mean", "user", "mean"),
]


def _validation_rows(entries: Sequence[Entry]) -> dict[Cells, Repeats]:
    runs = [
        Variation(run.entry, {key: value for key, value in run.changes.items() if key != "data.validation_share"})
        for run in of_demo(entries)
        if run.changes.get("data.validation_share")
    ]
    return dict(sorted(rows_by(runs, _point).items(), key=_numbers))


def validation(entries: Sequence[Entry]) -> Table:
    """Return the table of the same grid, measured on validation rows."""
    return table_of(POINT, _validation_rows(entries), VALIDATED)


def best_validated(entries: Sequence[Entry]) -> str:
    """Return a sentence that compares the best point on validation rows with e2fl_steady; empty without its runs."""
    rows = _validation_rows(entries)
    means = {cells: interval(repeats, VALIDATED[0]) for cells, repeats in rows.items()}
    known = {cells: mean for cells, mean in means.items() if mean is not None}
    steady = known.get(STEADY)
    if steady is None:
        return ""
    cells = max(known, key=lambda point: known[point].mean)
    own = f"{with_interval(steady, 1)} %, {seeds_text(steady.count)}"
    if cells == STEADY:
        return f"`e2fl_steady` has the best mean over groups on validation rows ({own})."
    best = known[cells]
    settings = ", ".join(f"{name} {cell}" for name, cell in zip(POINT, cells, strict=True))
    return (
        f"The best mean over groups on validation rows has {settings} ({with_interval(best, 1)} %, "
        f"{seeds_text(best.count)}); `e2fl_steady` has {own}."
    )


def _point(run: Variation) -> Cells | None:
    """Return the point of the ablation's grid that a run belongs to."""
    if run.entry.method not in ("e2fl", "e2fl_steady"):
        return None
    if not run.only("participation.name", "algorithm.incumbents", "algorithm.smoothing", "learner.learning_rate"):
        return None
    experiment = from_dict(run.entry.config)
    algorithm = experiment.build_algorithm()
    assert isinstance(algorithm, E2FL)
    policy = {ByGroup: "by_group", Uniform: "uniform"}.get(type(experiment.build_participation()))
    if policy is None:
        return None
    return policy, f"{algorithm.incumbents:g}", f"{algorithm.smoothing:g}", f"{experiment.learner['learning_rate']:g}"


def _numbers(row: tuple[Cells, Repeats]) -> tuple[str, list[float]]:
    """Return a key to sort points by, as numbers."""
    (participation, *numbers), _ = row
    return participation, [float(number) for number in numbers]


def same_turns(entries: Sequence[Entry]) -> Table:
    """Return the table of e2fl_steady and of baselines whose clients take part as often."""
    return table_of(("",), _same_turns(entries), GROUPS)


def _same_turns(entries: Sequence[Entry]) -> dict[Cells, Repeats]:
    def cells(run: Variation) -> Cells | None:
        method, changes = run.entry.method, run.changes
        if method == "e2fl_steady" and not changes:
            return (NAMES[method],)
        if changes.get("participation.name") != "by_group" or not run.only(
            "participation.name", "algorithm.oracle_groups"
        ):
            return None
        if method in ("fedavg", "qffl", "ditto", "ifca"):
            known = ", groups known" if changes.get("algorithm.oracle_groups") else ""
            return (f"{NAMES[method]}{known}",)
        return None

    return dict(sorted(rows_by(of_demo(entries), cells).items()))


def in_words(entries: Sequence[Entry]) -> list[str]:
    """Return, for each such baseline, where it is better than e2fl_steady and where it is worse.

    Better and worse: the 95 % interval of the difference, paired by seed, excludes 0.
    """
    rows = _same_turns(entries)
    steady = rows.pop((NAMES["e2fl_steady"],), None)
    if steady is None:
        return []
    names = ("mean over groups", "worst group", "variance over groups", "mean over clients", "variance over clients")
    sentences = []
    for (label,), repeats in rows.items():
        found: dict[str, list[str]] = {"Better": [], "Worse": [], "No clear difference": []}
        for name, column in zip(names, GROUPS, strict=True):
            own, ours = repeats.values(column.read), steady.values(column.read)
            seeds = sorted(own.keys() & ours.keys())
            if not seeds:
                continue
            theirs, mine = (sum(values[seed] for seed in seeds) / len(seeds) for values in (own, ours))
            difference = over_seeds([own[seed] - ours[seed] for seed in seeds])
            wins = theirs < mine if name.startswith("variance") else theirs > mine
            clear = difference.half is not None and abs(difference.mean) > difference.half
            word = ("Better" if wins else "Worse") if clear else "No clear difference"
            found[word].append(f"{name} {theirs:.1f} against {mine:.1f}")
        parts = [f"{word}: {'; '.join(texts)}." for word, texts in found.items() if texts]
        sentences.append(" ".join((f"**{label}.**", *parts)))
    return sentences


SINGLE = {
    "model.weight_scale": "weights of the supernetwork times {}",
    "learner.round_decay": "rate times {} after every round",
    "learner.local_cosine": "cosine schedule inside a round",
    "participation.seats": "{} seats for each group",
    "algorithm.clients_per_round": "{} clients a round",
    "model.channels": "{} channels in the two convolutions",
    "model.hidden": "{} hidden units",
}


def single_changes(entries: Sequence[Entry]) -> Table:
    """Return the table of single changes to e2fl_steady on the demo, for the global model."""

    def cells(run: Variation) -> Cells | None:
        if run.entry.method != "e2fl_steady" or not run.only("participation.name", *SINGLE):
            return None
        if run.changes.get("participation.name", "by_group") != "by_group":
            return None
        texts = [text.format(run.changes[key]) for key, text in SINGLE.items() if key in run.changes]
        return (", ".join(texts) or "as shipped",)

    rows = rows_by(of_demo(entries), cells)
    return table_of(("change",), dict(sorted(rows.items())), [*GROUPS, *GLOBAL])


def at_scale(entries: Sequence[Entry], samples: int, rounds: Sequence[int] = (50, 100, 200, 300)) -> Table:
    """Return the table of the paper's setting and the recommended one on the MNIST files, by round."""
    runs = [Variation(entry, {}) for entry in select(entries, "table1", fewer_images(samples))]
    rows: dict[Cells, Repeats] = {}
    for method in ("fedavg", "ifca_oracle", "qffl", "e2fl", "e2fl_steady"):
        for number in rounds:
            own = [run for run in runs if run.entry.method == method]
            rows |= rows_by(own, lambda run, shown=(NAMES[method], str(number)): shown, number)  # type: ignore[misc]
    return table_of(("", "round"), rows, [*GROUPS, *GLOBAL])


def natural(entries: Sequence[Entry], experiment: str) -> Table:
    """Return the table of a shipped experiment with natural groups, each method as shipped."""
    names = NAMES | (FINDING if experiment in ("femnist", "mnist_writers") else {})

    def cells(run: Variation) -> Cells | None:
        return None if run.changes else (names.get(run.entry.method, run.entry.method),)

    columns = [*GROUPS, Column("clients: worst 10 %", (), level("user", "worst10"))]
    rows = rows_by(variations(entries, experiment), cells)
    by_round = {(*label, str(repeats.round)): repeats for label, repeats in sorted(rows.items())}
    return table_of(("", "round"), by_round, columns)
