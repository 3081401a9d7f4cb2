"""The summary of a finished run: summary.json."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from e2fl.algorithms import ALGORITHMS
from e2fl.codec import to_json
from e2fl.config.experiment import Experiment
from e2fl.data import Client, ClientId, FederatedData
from e2fl.metrics.own import descriptions
from e2fl.rounds import Round, UnseenScores
from e2fl.runs.measure import (
    Totals,
    bit_summary,
    budget_of,
    byte_summary,
    found_groups,
    measure,
    measure_unseen,
    measure_validation,
    participation_summary,
)
from e2fl.runs.records import Json, Summary, divergence_warnings
from e2fl.version import __version__


def summarise(
    experiment: Experiment,
    data: FederatedData,
    done: Round,
    totals: Totals,
    last_line: Json,
    *,
    seconds: float,
    environment: Mapping[str, str],
    client_models: str,
    finds_groups: bool,
    edges: int | None,
    warnings: Sequence[str],
    unseen: Json | None,
) -> Json:
    """Return the summary of a run.

    done: its last round; last_line: the line of history of that round; environment: what it was
    started with; finds_groups: whether the algorithm assigns clients to groups; edges: of the
    model, None if clients send nothing; unseen: the results of clients kept out of training.
    """
    assert done.scores is not None
    inference = last_line.get("inference")
    traffic, served = totals.traffic, found_groups(done.scores)
    summary = Summary(
        **vars(measure(done.scores, data)),
        algorithm=experiment.algorithm["name"],
        label=experiment.label,
        **naming(experiment),
        dataset=data.name,
        rounds=done.number,
        seed=experiment.seed,
        version=__version__,
        membership="found" if finds_groups else "declared" if served else None,
        trains_alone=edges is None,
        inference=inference and {key: value for key, value in inference.items() if key != "rounds"},
        metadata=last_line["metadata"],
        warnings=warnings,
        own_measures=descriptions(experiment.build_measures()),
        bytes=byte_summary(traffic),
        bits=None if edges is None else bit_summary(traffic, edges),
        participation=participation_summary(totals.asked, data, served),
        budget=budget_of(traffic) if traffic.trainings else None,
        seconds={"total": seconds, "per_round": seconds / max(1, done.number)},
        data=data.about(),
        inputs=_inputs(data),
        environment=dict(environment),
        unseen=unseen,
        validation=measure_validation(done.scores, data),
        client_models=client_models,
    )
    return to_json(summary)


def naming(experiment: Experiment) -> Json:
    """Return the title of the algorithm and its position in tables: own algorithms come last."""
    names = [*ALGORITHMS, experiment.algorithm["name"]]
    title = experiment.build_algorithm().title
    return {"title": title, "order": names.index(experiment.algorithm["name"])}


class Evaluator(Protocol):
    """A federation that can score clients kept out of training."""

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores: ...


def held_out(
    federation: Evaluator, data: FederatedData, done: Round, warn: Callable[[str], None]
) -> Json | None:
    """Return the results of clients kept out of training; None if there are none."""
    clients = data.unseen()
    if not clients:
        return None
    assert done.scores is not None
    tried = federation.evaluate_unseen(done.state, clients)
    for client, fault in tried.faults.items():
        warn(f"client {data.client_name(client)}, kept out of training, left out, {fault}")
    measured = measure_unseen(tried, clients, done.scores, data)
    for warning in divergence_warnings(measured):
        warn(f"of clients kept out of training, {warning}")
    return measured


def _inputs(data: FederatedData) -> Json:
    groups = data.population.groups
    return {
        "shape": list(data.shape),
        "classes": data.classes,
        "groups": groups,
        "group_names": [data.group_name(group) for group in range(groups)],
        "label_names": list(data.label_names),
    }
