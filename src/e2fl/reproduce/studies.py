"""The sources of each table and figure: the runs it needs, and the paper's own numbers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from e2fl.config.completion import completed
from e2fl.config.experiment import COMMON, Experiment, base_of, with_seed
from e2fl.config.overrides import Change, typed
from e2fl.construct import did_you_mean, fields_of, fit, look_up
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.models import MODELS
from e2fl.reproduce.ledger import settings_key
from e2fl.runs.compare import changed_where_defined, general_and_particular

FIVE = (0, 1, 2, 3, 4)
THREE = (0, 1, 2)
TEN = (*FIVE, 5, 6, 7, 8, 9)
LAYERS = ("conv1", "conv2", "fc1", "fc2", "all")
OUR_OWN = "Our own"  # how the title of a study starts that is not in the paper
RULES = ("lowest_loss", "binary", "one_shot")

VALIDATED = "data.validation_share=0.2"
BY_GROUP = "participation.name=by_group"
POINTS = tuple(
    (f"participation.name={policy}", f"algorithm.incumbents={incumbents}", f"learner.learning_rate={rate}")
    for policy in ("by_group", "uniform")
    for incumbents in (0, 1, 2, 5)
    for rate in (0.05, 0.1, 0.2)
    if (policy, incumbents, rate) != ("uniform", 0, 0.1)  # this is e2fl
)
SMOOTH_POINTS = (  # changes to e2fl_steady: by_group, smoothing 5, rate 0.1
    "algorithm.smoothing=2",
    "algorithm.smoothing=10",
    "algorithm.smoothing=20",
    "learner.learning_rate=0.05",
    "learner.learning_rate=0.2",
    "participation.name=uniform",
)
SMALL: dict[str, Any] = {"model.hidden": [128, 128]}  # of Adult: a run takes seconds, not minutes
READINGS = ("fedavg", "fairfed", "e2fl", "one_ranking", "lowest_loss")
SHORT = (*(f"{key}={value}" for key, value in SMALL.items()), "rounds=5", "evaluate_every=5")
CHEAP = ("data.samples_per_client=60", "rounds=100", "evaluate_every=50")  # a run takes minutes, not hours


def _sent(*formats: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"algorithm.ballot={up}", f"algorithm.downlink={down}") for up, down in formats)


SENT = _sent(
    ("{name='moves',steps=12}", "{name='buckets',buckets=8,finer=8,near=0.08}"),
    ("{name='moves'}", "{name='buckets',buckets=12,finer=8,near=0.08}"),
    ("{name='moves',steps=24,finer=1}", "{name='buckets',buckets=64}"),
    ("{name='buckets',buckets=64}", "{name='buckets',buckets=64}"),
    ("{name='buckets',buckets=16}", "{name='buckets',buckets=64}"),
    ("{name='buckets',buckets=16}", "{name='buckets',buckets=32}"),
    ("{name='buckets',uneven=[0.35,0.45,0.5,0.55,0.65]}", "{name='buckets',buckets=32}"),
    ("{name='buckets',buckets=5}", "{name='buckets',buckets=32}"),
    ("{name='buckets',buckets=4}", "{name='buckets',buckets=32}"),
    ("{name='buckets',buckets=3}", "{name='buckets',buckets=32}"),
    ("{name='boundary'}", "{name='buckets',buckets=32}"),
)
SENT_WIDE = _sent(
    ("{name='moves',steps=20}", "{name='buckets',buckets=96,finer=8,near=0.08}"),
    ("{name='moves'}", "{name='buckets',buckets=12,finer=8,near=0.08}"),
    *((f"{{name='buckets',buckets={buckets}}}", "{name='buckets',buckets=64}") for buckets in (64, 16, 5, 4, 3)),
    ("{name='boundary'}", "{name='buckets',buckets=64}"),
)


@dataclass(frozen=True)
class Part:
    """Methods of one experiment, run with the same changes and seeds."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...] = FIVE
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """One table or figure."""

    name: str
    title: str
    experiment: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class PlannedRun:
    """One run that a study needs."""

    method: str
    experiment: Experiment
    changes: tuple[str, ...] = ()  # of its part of the study, without those that the user has overridden

    @property
    def label(self) -> str:
        return f"{self.method} ({', '.join(self.changes)})" if self.changes else self.method

    @cached_property
    def settings(self) -> str:
        """Comparable with the settings of an entry, which stores every default."""
        return settings_key(completed(self.experiment).to_dict())

    @property
    def seed(self) -> int:
        return self.experiment.seed


STUDIES = {
    study.name: study
    for study in (
        Study(
            "table1",
            "Table 1: FairMNISTRotate",
            "table1",
            (
                Part(("e2fl", "fedavg", "local", "qffl", "ifca", "ifca_oracle", "e2fl_lowest_loss", "frl")),
                Part(("e2fl_steady", "e2fl_rank_clustering", "e2fl_present_only"), seeds=(0,)),
            ),
        ),
        Study(
            "table2",
            "Table 2: FEMNIST",
            "femnist",
            (
                Part(("e2fl", "fedavg", "local", "qffl", "one_shot", "rank_clustering", "frl")),
                Part(("e2fl_present_only", "steady_rank_clustering"), seeds=(0,)),
            ),
        ),
        Study(
            "table4",
            "Table 4: Adult",
            "adult",
            (
                Part(("e2fl", "fedavg", "fairfed"), changes=("data.alpha=5000",)),
                Part(("e2fl", "fedavg", "fairfed"), changes=("data.alpha=1",)),
            ),
        ),
        Study(
            "table5",
            "Table 5: which layer separates the groups",
            "table5",
            (Part(LAYERS, seeds=TEN), Part(tuple(f"{layer}_random" for layer in LAYERS), seeds=TEN)),
        ),
        Study(
            "table6",
            "Table 6: the number of clusters on FEMNIST",
            "table6",
            (Part(("q2", "q3", "q4", "q5")),),
        ),
        Study(
            "figure3",
            "Figure 3: the loss of each group on FairMNISTRotate",
            "table1",
            (Part(("e2fl", "fedavg"), seeds=(0,)),),
        ),
        Study(
            "figure_inference",
            "Group inference over 300 rounds on FairMNISTRotate",
            "inference",
            (Part((*RULES, *(f"{rule}_warm" for rule in RULES)), seeds=THREE),),
        ),
        Study(
            "steady",
            f"{OUR_OWN}: the recommended settings on the demo",
            "demo",
            (
                Part(("local", "fedavg", "e2fl", "e2fl_steady")),
                Part(("fedavg", "qffl", "ditto"), changes=(BY_GROUP,)),
                Part(("ifca",), changes=(BY_GROUP, "algorithm.oracle_groups=true")),
                *(Part(("e2fl_steady",), changes=(point,)) for point in SMOOTH_POINTS),
                *(Part(("e2fl",), changes=point) for point in POINTS),
                Part(("e2fl", "e2fl_steady"), seeds=(0, 1), changes=(VALIDATED,)),
                *(Part(("e2fl_steady",), seeds=(0, 1), changes=(point, VALIDATED)) for point in SMOOTH_POINTS),
                *(Part(("e2fl",), seeds=(0,), changes=(*point, VALIDATED)) for point in POINTS),
            ),
        ),
        Study(
            "ballots",
            f"{OUR_OWN}: cheap ballots on the demo",
            "demo",
            (
                Part(("e2fl_steady",)),
                Part(("fedpm",), changes=(BY_GROUP,)),
                *(Part(("e2fl_steady",), changes=sent) for sent in SENT),
                *(Part(("e2fl",), changes=(*sent, BY_GROUP)) for sent in SENT),
            ),
        ),
        Study(
            "wide_ballots",
            f"{OUR_OWN}: cheap ballots at the paper's width",
            "table1",
            (
                Part(("e2fl_steady",), seeds=THREE, changes=CHEAP),
                *(Part(("e2fl_steady",), seeds=THREE, changes=(*sent, *CHEAP)) for sent in SENT_WIDE),
                *(Part(("e2fl",), seeds=THREE, changes=(*sent, BY_GROUP, *CHEAP)) for sent in ((), *SENT_WIDE)),
            ),
        ),
        Study(
            "states",
            f"{OUR_OWN}: ACS income by state",
            "acs_income",
            (Part(("local", "fedavg", "e2fl", "e2fl_steady")),),
        ),
        Study(
            "readings",
            f"{OUR_OWN}: readings of Adult, with a smaller network",
            "adult",
            (
                Part((*READINGS, "one_sex"), changes=(*SHORT, "data.alpha=5000")),
                Part(READINGS, changes=(*SHORT, "data.alpha=1")),
            ),
        ),
        Study(
            "rates",
            f"{OUR_OWN}: the learning rate of dense training on Adult",
            "adult",
            tuple(
                Part(
                    ("fedavg",),
                    seeds=(0,),
                    changes=("data.pooled_validation_share=0.2", "rounds=10", f"learner.learning_rate={rate}"),
                )
                for rate in (0.01, 0.05, 0.1)
            ),
        ),
        Study(
            "causes",
            f"{OUR_OWN}: what the paper does not say about FairMNISTRotate",
            "table1",
            (
                Part(("e2fl", "e2fl_present_only", "fedavg"), seeds=(0,), changes=CHEAP),
                Part(("e2fl", "fedavg"), seeds=(0,), changes=(*CHEAP, "data.angle_step=10")),
                Part(("e2fl",), seeds=(0,), changes=(*CHEAP, f"data.group_sizes={[100] * 10}")),
                Part(("e2fl",), seeds=(0,), changes=(*CHEAP, "learner.round_decay=0.999", "learner.local_cosine=true")),
                # Scores from U(-a, a) instead of U(0, a): twice the spread, so each step moves half as far.
                Part(("e2fl",), seeds=(0,), changes=(*CHEAP, "learner.learning_rate=0.05")),
            ),
        ),
    )
}


@cache
def paper() -> Mapping[str, Any]:
    """Return the paper's numbers, by table."""
    text = (files("e2fl.reproduce") / "paper.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def study(name: str) -> Study:
    if name not in STUDIES:
        raise ConfigError(f"there is no table or figure '{name}'{did_you_mean(name, STUDIES)}")
    return STUDIES[name]


def wanted(
    study: Study, changes: Sequence[str] = (), seeds: Sequence[int] | None = None, methods: Sequence[str] | None = None
) -> list[PlannedRun]:
    """Return all runs of a study, the first seed of every method before the second of any, and none twice.

    A setting of an algorithm is changed in the methods that have it. It is an error if none has it.
    """
    known = {method for part in study.parts for method in part.methods}
    for method in methods or ():
        if method not in known:
            raise ConfigError(f"{study.name} has no method '{method}'{did_you_mean(method, known)}")
    asked = typed(changes)
    if any(change.section == "seed" for change in asked):
        raise ConfigError("a study has several seeds: name them with --seeds, not with --set seed")
    general, particular = general_and_particular(asked)
    planned = {
        (number, method): _experiment(study, part, method, general)
        for number, part in enumerate(study.parts)
        for method in part.methods
        if methods is None or method in methods
    }
    checked = changed_where_defined(particular, {str(key): experiment for key, experiment in planned.items()})
    overridden = {change.path for change in asked}
    kept = [tuple(text for text in part.changes if typed([text])[0].path not in overridden) for part in study.parts]
    found = []
    for number, method in planned:
        part, experiment = study.parts[number], checked[str((number, method))]
        experiment.build_participation()
        _require_known(experiment)
        for place, seed in enumerate(part.seeds if seeds is None else seeds):
            found.append((place, number, PlannedRun(method, with_seed(experiment, seed), kept[number])))
    runs = [run for _, _, run in sorted(found, key=lambda item: item[:2])]
    once: dict[str, PlannedRun] = {}
    for run in runs:
        once.setdefault(run.experiment.fingerprint(), run)
    return list(once.values())


def _require_known(experiment: Experiment) -> None:
    """Raise an error for a setting that the data set or the model does not have; nothing is read or built."""
    sections = (
        ("data", experiment.data, DATASETS, {"validation_share": float}),
        ("model", experiment.model, MODELS, dict.fromkeys(COMMON, float)),
    )
    for section, values, registry, common in sections:
        known = {**fields_of(look_up(values["name"], registry, section)), **common}
        for name in values.keys() - {"name"}:
            if name not in known:
                raise ConfigError(f"{section} has no setting '{name}'{did_you_mean(name, known)}")
            fit(values[name], known[name], f"{section}.{name}")


def _experiment(study: Study, part: Part, method: str, changes: Sequence[Change]) -> Experiment:
    asked = [*typed(part.changes), *changes]
    return base_of(study.experiment, asked).variant(method, asked)
