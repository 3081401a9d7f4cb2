"""Losses of one's own in local training, and the training loss that a client counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from e2fl.data.federated import Examples
from e2fl.errors import ConfigError
from e2fl.learning import Settings, build_learner
from e2fl.learning.autograd import AutogradEngine
from e2fl.learning.compiled_engine import CompiledEngine
from e2fl.learning.learner import Meter
from e2fl.models import Model
from e2fl.networks import lenet_small, mlp


def points(shape=(16,), count=40, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return Examples(
        rng.standard_normal((count, *shape)).astype(np.float32), rng.integers(classes, size=count)
    )


def learners(make=mlp, shape=(16,), **settings):
    """The same learner with compiled loops and with autograd."""
    model = Model(make(shape, 3))
    compiled = build_learner(model, Settings(**({"learning_rate": 0.05} | settings)), 0)
    assert type(compiled.engine) is CompiledEngine
    return {"compiled": compiled, "autograd": replace(compiled, engine=AutogradEngine(model))}


def close(one, other, tolerance=1e-6):
    for name, value in one.items():
        assert torch.allclose(
            torch.as_tensor(value), torch.as_tensor(other[name]), atol=tolerance
        ), name


NETWORKS = {"mlp": (mlp, (16,)), "lenet": (lenet_small, (1, 6, 6))}


@pytest.mark.parametrize("engine", ["compiled", "autograd"])
@pytest.mark.parametrize("network", NETWORKS)
def test_cross_entropy_as_an_own_loss_trains_as_the_built_in_one(network, engine):
    make, shape = NETWORKS[network]
    learner = learners(make, shape)[engine]
    examples, start = points(shape), learner.initial
    close(learner.fit(start, examples), learner.fit(start, examples, loss=cross_entropy))
    held = {"toward": start, "proximal": 0.5}
    close(
        learner.fit(start, examples, **held),
        learner.fit(start, examples, loss=cross_entropy, **held),
    )
    scores = learner.supernet.ranking
    # Rounding may swap a few neighbours; nearly all edges keep their place.
    built_in, own = (
        learner.fit_scores(scores, examples, loss=loss) for loss in (None, cross_entropy)
    )
    for layer, rank in built_in.items():
        assert np.abs(rank - own[layer]).mean() < 0.01 * len(rank)


def smoothed(outputs, labels):
    return cross_entropy(outputs, labels, label_smoothing=0.2)


@pytest.mark.parametrize("network", NETWORKS)
def test_both_engines_agree_on_another_loss_and_it_makes_a_difference(network):
    make, shape = NETWORKS[network]
    examples = points(shape)
    compiled, autograd = learners(make, shape).values()
    own = compiled.fit(compiled.initial, examples, loss=smoothed)
    close(own, autograd.fit(autograd.initial, examples, loss=smoothed), 1e-5)
    usual = compiled.fit(compiled.initial, examples)
    assert max(float((usual[name] - value).abs().max()) for name, value in own.items()) > 1e-3


def test_an_own_loss_keeps_the_compiled_loops(monkeypatch):
    def refuse(*arguments, **settings):
        raise AssertionError("autograd ran through the network")

    monkeypatch.setattr(AutogradEngine, "gradients", refuse)
    monkeypatch.setattr(Model, "outputs", refuse)
    learner = learners()["compiled"]
    learner.fit(learner.initial, points(), loss=smoothed)
    learner.fit_scores(learner.supernet.ranking, points(), loss=smoothed)


@pytest.mark.parametrize("engine", ["compiled", "autograd"])
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda outputs, labels: 0.5, "returned float"),
        (lambda outputs, labels: outputs[:, 0], r"returned Tensor of shape \(8,\)"),
        (lambda outputs, labels: outputs.detach().sum(), "computed from the outputs"),
        (lambda outputs, labels: None, "returned NoneType"),
    ],
)
def test_a_loss_that_is_not_one_number_is_refused(loss, words, engine):
    learner = learners()[engine]
    with pytest.raises(ConfigError, match=words):
        learner.fit(learner.initial, points(), loss=loss)


@pytest.mark.parametrize("engine", ["compiled", "autograd"])
@pytest.mark.parametrize("own", [None, smoothed])
def test_the_training_loss_is_the_mean_over_all_steps(own, engine):
    """With a learning rate of almost 0 the model stays as it is, and so does its loss."""
    learner = replace(learners(learning_rate=1e-12, batch_size=16)[engine], meter=Meter())
    assert learner.meter.losses.mean is None
    examples = points()
    learner.fit(learner.initial, examples, loss=own)
    outputs = learner.engine.outputs_of(learner.initial, [examples.inputs()])[0].double()
    expected = (own or cross_entropy)(outputs, examples.labels())
    assert learner.meter.losses.mean == pytest.approx(float(expected), rel=1e-5)
    assert learner.meter.losses.examples == 2 * len(examples)
