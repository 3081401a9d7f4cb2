"""The summary of a finished run."""

from collections.abc import Callable, Mapping
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.data import FederatedData
from e2fl.rounds import Round
from e2fl.runs.group_recovery import found_groups
from e2fl.runs.loop import Loop
from e2fl.runs.measure import (
    bit_summary,
    budget_of,
    byte_summary,
    divergence_warnings,
    measure,
    measure_unseen,
    measure_validation,
    participation_summary,
)
from e2fl.runs.records import Json, Summary
from e2fl.runs.totals import Totals
from e2fl.version import __version__

Warn = Callable[[str], None]


def summarise(
    experiment: Experiment,
    loop: Loop,
    data: FederatedData,
    done: Round,
    totals: Totals,
    last_line: Json,
    *,
    seconds: float,
    environment: Mapping[str, str],
    client_models: str,
    warn: Warn,
) -> Summary:
    """Return the summary of a run.

    done: its last round; last_line: the line of history of that round; environment: what it was started with.
    """
    assert done.scores is not None
    inference = last_line.get("inference")
    traffic, served = totals.traffic, found_groups(done.scores)
    return Summary(
        algorithm=experiment.algorithm["name"],
        label=experiment.label,
        dataset=data.name,
        rounds=done.number,
        seed=experiment.seed,
        measures=measure(done.scores, data),
        version=__version__,
        membership=loop.membership(done.state, served),
        trains_alone=loop.trains_alone,
        inference=inference and {key: value for key, value in inference.items() if key != "rounds"},
        metadata=last_line["notes"],
        warning=loop.warning,
        bytes=byte_summary(traffic),
        bits=None if loop.trains_alone else bit_summary(traffic, loop.model.spec.edges),
        participation=participation_summary(totals.asked, data, served),
        budget=budget_of(traffic) if traffic.trainings else None,
        seconds={"total": seconds, "per_round": seconds / max(1, done.number)},
        data=data.about(),
        inputs=_inputs(data),
        environment=dict(environment),
        unseen=_unseen(loop, data, done, warn),
        validation=measure_validation(done.scores, data),
        client_models=client_models,
    )


def _inputs(data: FederatedData) -> dict[str, Any]:
    groups = data.population.groups
    return {
        "shape": list(data.shape),
        "classes": data.classes,
        "groups": groups,
        "group_names": [data.group_name(group) for group in range(groups)],
        "label_names": list(data.label_names),
    }


def _unseen(loop: Loop, data: FederatedData, done: Round, warn: Warn) -> Json | None:
    """Return the results of clients that were kept out of training; None if there are none."""
    unseen = data.unseen()
    if not unseen:
        return None
    assert done.scores is not None
    tried = loop.federation.evaluate_unseen(done.state, unseen)
    for client, fault in tried.faults.items():
        warn(f"client {data.client_name(client)}, kept out of training, left out, {fault}")
    measured = measure_unseen(tried, unseen, done.scores, data)
    for warning in divergence_warnings(measured):
        warn(f"of clients kept out of training, {warning}")
    return measured
