"""Fine-tuning before use: the training a client could do by itself, wherever models are used."""

from dataclasses import replace

import numpy as np

from e2fl import assign
from e2fl.algorithms.fedavg import FedAvg
from e2fl.algorithms.ifca import IFCA
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same

TUNED = {"name": "fedavg", "clients_per_round": 4, "finetune_epochs": 10}


def test_a_client_trains_what_it_is_served_for_these_epochs():
    problem = Problem(FedAvg(finetune_epochs=3))
    federation = problem.federation()
    state = problem.server(federation, 1).state
    client = problem.data.client(5)
    learner = replace(federation.learner, round_number=2, client_id=5)
    message = problem.algorithm.serve(state, [5])[5]
    models = problem.algorithm.model_for(message, client, learner)
    assert list(models.views) == ["own", "global"]
    expected = learner.fit(message.params, client.train, epochs=3, purpose="batches of fine-tuning")
    assert same(models.views["own"].model, expected)
    assert same(models.views["global"].model, message.params)


def test_without_labelled_rows_a_client_uses_what_it_is_served():
    problem = Problem(IFCA(groups=2, oracle_groups=True, finetune_epochs=3))
    federation = problem.federation()
    state = problem.server(federation, 1).state
    client = problem.data.client(1)
    for y in (np.full(36, -1), np.empty(0, np.int64)):
        rows = replace(client.train, x=client.train.x[: len(y)], y=y)
        message = problem.algorithm.serve(state, [1])[1]
        models = problem.algorithm.model_for(message, replace(client, train=rows), None)
        assert models.views["own"].model is models.views["group"].model


def test_fine_tuning_changes_what_is_used_and_not_how_the_model_is_trained(toy):
    plain = run_experiment(replace(toy, algorithm=TUNED | {"finetune_epochs": 0}))
    tuned = run_experiment(replace(toy, algorithm=TUNED))
    assert same(plain.state.params, tuned.state.params)
    assert tuned.summary["views"]["global"]["clients"] == plain.summary["clients"]
    # Groups contradict each other, so that one model cannot serve both.
    assert tuned.summary["clients"]["mean"] > plain.summary["clients"]["mean"] + 15


def test_held_out_clients_and_assigned_ones_are_fine_tuned(toy, tmp_path):
    experiment = replace(toy, data=toy.data | {"held_out": 2}, algorithm=TUNED)
    run = run_experiment(experiment, out=tmp_path / "run")
    unseen = run.summary["unseen"]
    assert unseen["clients"]["mean"] > unseen["views"]["global"]["clients"]["mean"] + 15
    client = experiment.build.data().unseen()[8]
    once, again = (assign(tmp_path / "run", client.train, test=client.test) for _ in range(2))
    assert once.score == again.score
    assert once.score.accuracy > 70
    served = assign(tmp_path / "run", replace(client.train, y=np.full(48, -1)))
    assert same(served.params, run.state.params)
