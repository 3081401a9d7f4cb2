"""Dense algorithms on networks that cannot be ranked: biases, norms, dropout, recurrent layers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError, RunError
from e2fl.learning import Settings, build_learner
from e2fl.learning.autograd import AutogradEngine
from e2fl.models import Model
from e2fl.randomness import stream
from e2fl.runs.runner import run_experiment
from e2fl.runs.trained import TrainedRun
from e2fl.testing.contract import CHECKS, Problem, same
from e2fl.torch_streams import TorchStream
from tests.learning.test_own_loss import points

RANKING = ("fedpm", "frl", "e2fl", "e2fl_steady")
DENSE = tuple(name for name in ALGORITHMS if name not in RANKING)
SETTINGS = {"local": {"epochs": 6}, "afl": {"learning_rate": 1.0}, "ifca": {"groups": 2}}


def affine(inputs, classes):
    """Biases, a norm with scale and shift, and dropout."""
    return nn.Sequential(
        nn.Linear(inputs[0], 24),
        nn.GroupNorm(4, 24),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(24, classes),
    )


class Recurrent(nn.Module):
    """An embedding, two LSTM layers and attention with dropout, and a constant buffer."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, dropout=0.2, batch_first=True)
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, classes)
        self.register_buffer("places", torch.randn(inputs[0], 8) / 10)

    def forward(self, x):
        words = self.embed(((x + 3).clamp(0, 6)).long()) + self.places
        states, _ = self.lstm(words)
        seen, _ = self.attend(states, states, states, need_weights=False)
        return self.out(self.norm(seen[:, -1]))


class Noisy(nn.Module):
    """Random numbers drawn without a generator, and a weight that no output depends on."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.fc = nn.Linear(inputs[0], classes)
        self.unused = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.fc(x + 0.1 * torch.randn_like(x)) if self.training else self.fc(x)


NETWORKS = {"affine": affine, "recurrent": Recurrent, "noisy": Noisy}


def a_model(make):
    model = Model(make((16,), 3), build=lambda: make((16,), 3))
    model.require_fit((16,), 3, "own")
    return model


def own(toy, name, network="affine", **changes):
    algorithm = {"name": name, "clients_per_round": 4} | SETTINGS.get(name, {})
    model = {"name": f"tests.learning.test_own_networks:{NETWORKS[network].__name__}"}
    return replace(toy, algorithm=algorithm, model=model, rounds=4, evaluate_every=1, **changes)


@pytest.mark.parametrize(
    ("name", "network"),
    [*((name, "affine") for name in DENSE), ("ditto", "recurrent"), ("ifca", "noisy")],
)
def test_dense_algorithms_keep_their_contract_on_such_a_network(name, network):
    made = ALGORITHMS[name](clients_per_round=5, **SETTINGS.get(name, {}))
    problem = Problem(made, network=NETWORKS[network])
    for check in CHECKS:  # that all of them learn is shown in tests/testing/test_contract.py
        if check != "a_toy_task_is_learnt" or (network == "affine" and name in ("fedavg", "ditto")):
            CHECKS[check](problem)


@pytest.mark.parametrize("name", RANKING)
def test_algorithms_that_rank_refuse_and_say_what_to_use(name, toy, tmp_path):
    with pytest.raises(
        ConfigError, match=r"layer '0' \(Linear\) has a bias.*bias=False.*such as fedavg"
    ):
        run_experiment(own(toy, name), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_equals_torchs_own_sgd_where_nothing_is_drawn():
    def make(inputs, classes):
        return nn.Sequential(
            nn.Linear(inputs[0], 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, classes)
        )

    model, examples = a_model(make), points()
    assert not model.draws
    learner = build_learner(model, Settings(learning_rate=0.05), 0)
    network = make((16,), 3)
    network.load_state_dict(learner.initial)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for batch in learner.batches(examples):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(batch.x), batch.y).backward()
        optimizer.step()
    found = learner.fit(learner.initial, examples)
    for name, weight in network.state_dict().items():
        assert torch.allclose(found[name], weight, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_draws_from_the_stream_of_its_client_and_round(name):
    learner = build_learner(a_model(NETWORKS[name]), Settings(epochs=2), 0)
    assert learner.model.draws
    assert type(learner.engine) is AutogradEngine
    one, again, other_round, other_client = (
        replace(learner, round_number=number, client_id=client).fit(learner.initial, points())
        for number, client in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    assert same(one, again)
    for other in (other_round, other_client):
        assert not same(one, other)
    # The order of batches is another too; with one batch only the draws differ.
    few = points(count=8)
    alone = replace(learner, settings=Settings(epochs=1, batch_size=8, momentum=0.0))
    first, second = (
        replace(alone, round_number=number).fit(learner.initial, few) for number in (1, 2)
    )
    assert max(float((first[layer] - second[layer]).abs().max()) for layer in first) > 1e-4


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    with TorchStream(stream(0, "any")) as drawn:
        x = nn.functional.dropout(torch.ones(100)) + torch.rand(100)
    assert drawn.drawn
    assert 0 < float((x < 1).sum()) < 100
    sections = {"data": {"name": "any"}, "algorithm": {"name": "fedavg"}}
    experiment = from_dict(
        sections | {"model": {"name": "tests.learning.test_own_networks:Recurrent"}}
    )
    model = experiment.build.model_for((16,), 3)
    build_learner(model, Settings(), 0).fit(model.initial_weights(0), points())
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_and_exact_gradients_drop_nothing():
    learner = build_learner(a_model(affine), Settings(), 0)
    for measure in (learner.loss, lambda *of: learner.gradient(*of)["0.weight"]):
        one, again = (measure(learner.initial, points()) for _ in range(2))
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(again))


def test_initial_weights_are_those_of_the_function_that_makes_the_network():
    def make(inputs, classes):
        network = affine(inputs, classes)
        nn.init.constant_(network[0].bias, 0.25)
        return network

    model = a_model(make)
    one, again, other, second = (model.initial_weights(*of) for of in ((0,), (0,), (1,), (0, 1)))
    assert same(one, again)
    assert (one["0.bias"] == 0.25).all()
    assert (one["1.weight"] == 1).all()
    for unlike in (other, second):
        assert not torch.equal(one["0.weight"], unlike["0.weight"])
    assert float(one["0.weight"].abs().max()) <= 0.25  # torch's default for 16 inputs


def test_a_network_object_is_initialised_again_from_the_seed():
    models = [Model(affine((16,), 3)) for _ in range(2)]
    first, second = (model.initial_weights(0) for model in models)
    assert same(first, second)
    assert not torch.equal(first["0.weight"], models[0].initial_weights(1)["0.weight"])


def test_a_buffer_that_changes_is_refused_and_a_constant_one_is_not():
    network = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(16, 3)))
    with pytest.raises(ConfigError, match=r"changes its buffer '1\.parametrizations.*never sent"):
        Model(network).require_fit((16,), 3, "own")
    Model(Recurrent((16,), 3)).require_fit((16,), 3, "own")


def test_an_embedding_that_is_given_floats_gets_a_hint():
    network = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(ConfigError, match=r"x\.long\(\)"):
        Model(network).require_fit((16,), 3, "own")


def test_networks_with_dropout_and_no_other_obstacle_can_be_ranked():
    def make(inputs, classes):
        linear = nn.Linear(inputs[0], 12, bias=False)
        return nn.Sequential(linear, nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, classes, bias=False))

    problem = Problem(ALGORITHMS["e2fl"](clients_per_round=4), network=make)
    one, again = (list(problem.run(problem.federation(threads=n), 2)) for n in (1, 3))
    assert [r.scores for r in one] == [r.scores for r in again]


def test_such_a_run_can_be_read_and_predicts(toy, tmp_path):
    run_experiment(own(toy, "fedavg", "recurrent"), out=tmp_path / "run")
    with pytest.raises(RunError, match="trust"):
        TrainedRun(tmp_path / "run")
    trained = TrainedRun(tmp_path / "run", trust=True)
    examples = points(count=9)
    network = trained.network("global")
    with torch.no_grad():
        expected = network(examples.inputs()).softmax(1).numpy()
    assert trained.predict(examples, None).probabilities == pytest.approx(expected, abs=1e-6)
