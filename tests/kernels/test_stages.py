"""The compiled engine: the same results as autograd, for every network it accepts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from e2fl.data.federated import Examples
from e2fl.errors import DataError
from e2fl.kernels.stages import Convolution, Plan
from e2fl.kernels.vectors import WIDE
from e2fl.learning import Learner, Settings
from e2fl.learning.autograd import AutogradEngine, Batch
from e2fl.learning.compiled_engine import CompiledEngine, blocks_of, engine_for
from e2fl.models import Model
from e2fl.networks import lenet, mlp
from e2fl.rankings.order import dropped, mask_layers
from tests.twins import reference

ROOT = Path(__file__).parents[2]


def conv(inputs, outputs, kernel, padding=0):
    return nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


relu, flat = nn.ReLU(), nn.Flatten()
# Every kind of block, with sizes that fill whole vectors and sizes that do not: layers, inputs,
# batch.
NETWORKS = {
    "lenet": ([*lenet((1, 12, 12), 10, channels=(32, 64), hidden=24).children()], (1, 12, 12), 8),
    "narrow lenet": (
        [*lenet((1, 10, 10), 4, channels=(5, 9), hidden=7).children()],
        (1, 10, 10),
        3,
    ),
    "linear": ([flat, linear(49, 3)], (1, 7, 7), 10),
    "mlp": ([*mlp((21,), 2, hidden=(17, 33)).children()], (21,), 9),
    "convolutions without a pool": (
        [conv(3, 20, 3, 2), relu, conv(20, 33, (2, 5)), flat, linear(33 * 10 * 7, 7)],
        (3, 9, 9),
        2,
    ),
    "two pools, one before its ReLU": (
        [
            *(conv(2, 16, 5), nn.MaxPool2d(2), relu),
            nn.Sequential(conv(16, 40, 3, (1, 0)), nn.ReLU(), nn.MaxPool2d((2, 3))),
            *(flat, linear(40 * 3 * 1, 6), relu, linear(6, 5)),
        ],
        (2, 16, 14),
        4,
    ),
    "one ReLU used twice": (
        [flat, linear(9, 8), relu, linear(8, 8), relu, linear(8, 3)],
        (1, 3, 3),
        4,
    ),
    "a pool without a ReLU": (
        [conv(1, 8, 1), nn.MaxPool2d(3), flat, linear(8 * 2 * 3, 2)],
        (1, 7, 9),
        5,
    ),
    "overlapping tiles": (
        [
            *(conv(2, 16, 3, 2), relu, conv(16, 20, 3), relu, conv(20, 33, 3, (1, 2)), relu),
            *(nn.MaxPool2d(2), flat, linear(33 * 5 * 6, 5)),
        ],
        (2, 11, 11),
        3,
    ),
    "a pool, then a convolution without one": (
        [
            *(conv(1, 32, 3, 1), relu, nn.MaxPool2d(2)),
            *(conv(32, 48, 3, 1), relu, flat, linear(48 * 16, 4)),
        ],
        (1, 8, 8),
        8,
    ),
}


def model_of(name):
    return Model(nn.Sequential(*NETWORKS[name][0]))


def batches(name):
    layers, shape, size = NETWORKS[name]
    sizes = (size, size, 1, size)  # the last but one is smaller
    return made(shape, layers[-1].out_features, sizes)


def made(shape, classes, sizes):
    """Batches of these sizes."""
    random = torch.Generator().manual_seed(1)
    return [
        Batch(
            torch.randn(n, *shape, generator=random),
            torch.randint(classes, (n,), generator=random),
            np.array([[0.05, 0.9, 1e-3]]),
            np.array([n]),
        )
        for n in sizes
    ]


def close(a, b):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-6)


@pytest.fixture(params=NETWORKS)
def name(request):
    return str(request.param)


def test_scores_are_trained_as_by_plain_edge_popup(name):
    model = model_of(name)
    supernet = model.supernet(0)
    start = supernet.scores(supernet.ranking)
    shapes = {layer.name: layer.shape for layer in model.spec.layers}
    engine = engine_for(model)
    assert isinstance(engine, CompiledEngine)
    trained = engine.fit_scores(supernet, {n: s.copy() for n, s in start.items()}, batches(name))
    plain = reference.plain_edge_popup(
        model.network,
        supernet.weights,
        {n: torch.from_numpy(s).view(shapes[n]) for n, s in start.items()},
        [(batch.x, batch.y) for batch in batches(name)],
        dropped={n: dropped(s.size, 0.5) for n, s in start.items()},
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=1e-3,
    )
    close({n: torch.from_numpy(s).view(shapes[n]) for n, s in trained.items()}, plain)


def test_weights_are_trained_as_by_automatic_differentiation(name):
    model = model_of(name)
    start, anchor = model.initial_weights(0), model.initial_weights(1)
    before = {n: w.clone() for n, w in start.items()}
    for proximal in (0.0, 0.5):
        held = {"toward": anchor, "proximal": proximal}
        work = batches(name)
        close(*(e.fit(start, work, **held) for e in (engine_for(model), AutogradEngine(model))))
    assert all(torch.equal(w, before[n]) for n, w in start.items())


def test_gradients_are_those_of_automatic_differentiation(name):
    """Gradients of the loss and of the entropy, over more examples than are processed together."""
    layers, shape, _ = NETWORKS[name]
    model, classes = model_of(name), layers[-1].out_features
    random = np.random.default_rng(3)
    x, y = random.normal(size=(70, *shape)).astype(np.float32), random.integers(classes, size=70)
    examples = Examples(x, y)
    supernet, params = model.supernet(0), model.initial_weights(0)
    fast, general = (
        Learner(model, engine, supernet, params, Settings(), 0)
        for engine in (engine_for(model), AutogradEngine(model))
    )
    before = {n: w.clone() for n, w in params.items()}
    close(fast.gradient(params, examples), general.gradient(params, examples))
    assert all(torch.equal(params[n], before[n]) for n in params)
    masks = [mask_layers(model.random_ranking(0, "a mask", number), 0.5) for number in range(3)]
    slopes = fast.entropy_gradient(masks, examples), general.entropy_gradient(masks, examples)
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-6)
    assert np.abs(slopes[0]).max() > 1e-5


@pytest.mark.parametrize("name", ["lenet", "overlapping tiles"], indirect=True)
def test_convolutions_of_16_channels_use_winograd(name):
    plan = Plan(blocks_of(model_of(name).network) or [], NETWORKS[name][1], 1)
    first, *others = [stage for stage in plan.stages.values() if isinstance(stage, Convolution)]
    assert not first.by_winograd
    assert others
    assert all(stage.by_winograd for stage in others)


@pytest.mark.parametrize("pools", [[], [1], [2]])
def test_winograd_gives_the_convolution(pools):
    """To a few units of rounding of the largest output, wherever a tile lies."""
    network = nn.Sequential(conv(16, 24, 3, 1), *map(nn.MaxPool2d, pools), nn.Flatten())
    images = torch.randn(3, 16, 11, 14, generator=torch.Generator().manual_seed(4))
    expected = network.double()(images.double())
    network = network.float().append(linear(expected.shape[1], expected.shape[1]))
    params = {name: weight.detach() for name, weight in network.named_parameters()}
    params[list(params)[-1]] = torch.eye(expected.shape[1])
    (outputs,) = engine_for(Model(network)).outputs_of(params, [images])
    assert (outputs - expected).abs().max() < 1e-5 * expected.abs().max()


def test_weights_may_be_views_of_others():
    model = Model(lenet((1, 10, 10), 4, channels=(5, 9), hidden=7))
    params = model.initial_weights(0)
    turned = {n: w.transpose(0, 1).contiguous().transpose(0, 1) for n, w in params.items()}
    assert not any(w.is_contiguous() for w in turned.values() if min(w.shape[:2]) > 1)
    x = np.random.default_rng(0).random((40, 1, 10, 10), np.float32)
    examples = Examples(x, np.arange(40) % 4)
    learner = Learner(model, engine_for(model), model.supernet(0), params, Settings(), 0)
    close(learner.gradient(turned, examples), learner.gradient(params, examples))
    close(learner.fit(turned, examples), learner.fit(params, examples))
    assert learner.tally(turned, examples) == learner.tally(params, examples)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (nn.Sequential(nn.Flatten(), linear(16, 3)), (5,)),
        (nn.Sequential(conv(2, 4, 3), nn.ReLU(), nn.Flatten(), linear(16, 3)), (1, 4, 4)),
    ],
)
def test_inputs_that_do_not_fit_are_refused(network, shape):
    blocks = blocks_of(network)
    assert blocks is not None
    with pytest.raises(DataError, match="do not fit the network"):
        Plan(blocks, shape, 2)


def test_labels_that_are_no_class_have_no_gradient():
    model = Model(nn.Sequential(nn.Flatten(), linear(4, 3)))
    examples = Examples(np.zeros((2, 4), np.float32), np.array([0, 3]))
    for engine in (engine_for(model), AutogradEngine(model)):
        learner = Learner(model, engine, model.supernet(0), {}, Settings(), 0)
        with pytest.raises(DataError, match="labels must be 0 to 2"):
            learner.gradient(model.initial_weights(0), examples)


def test_outputs_are_those_of_the_network_however_many_at_once(name):
    model = model_of(name)
    params = model.initial_weights(0)
    x = torch.randn(70, *NETWORKS[name][1], generator=torch.Generator().manual_seed(2))
    (together,) = engine_for(model).outputs_of(params, [x])
    (plain,) = AutogradEngine(model).outputs_of(params, [x])
    torch.testing.assert_close(together, plain, rtol=1e-4, atol=1e-5)
    apart = torch.cat(engine_for(model).outputs_of(params, x.split(9)))
    assert torch.equal(together, apart)


def test_the_edges_kept_are_those_of_the_ranking():
    """After every step, bit for bit: the mask of the next forward pass keeps the highest scores."""
    model = Model(nn.Sequential(nn.Flatten(), linear(103, 97)))
    supernet = model.supernet(0)
    engine = engine_for(model)
    assert isinstance(engine, CompiledEngine)
    for steps in range(1, 7):
        work = made((103,), 97, (4,) * steps)
        scores = engine.fit_scores(supernet, supernet.scores(supernet.ranking), work)
        stage = engine._own.plans["training"].stages["1.weight"]
        bits = np.unpackbits(stage.kept.view(np.uint8), bitorder="little")
        expected = reference.top_mask(scores["1.weight"], dropped(103 * 97, 0.5))
        assert (bits.reshape(97, -1)[:, :103].reshape(-1) == expected).all()


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, bias=False), nn.Flatten(), linear(4, 2)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding="same", bias=False), nn.Flatten(), linear(4, 2)),
        nn.Sequential(conv(1, 4, 3), nn.MaxPool2d(3, stride=2), nn.Flatten(), linear(4, 2)),
        nn.Sequential(conv(1, 4, 3), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), linear(4, 2)),
        nn.Sequential(conv(1, 4, 3), *[nn.MaxPool2d(2)] * 2, nn.Flatten(), linear(4, 2)),
        nn.Sequential(conv(1, 4, 3), nn.AvgPool2d(2), nn.Flatten(), linear(4, 2)),
        nn.Sequential(conv(1, 4, 3), nn.Tanh(), nn.Flatten(), linear(4, 2)),
        nn.Sequential(nn.Flatten(), linear(4, 2), nn.ReLU()),
        nn.Sequential(conv(1, 4, 3), nn.Flatten()),
        nn.Sequential(nn.Flatten(), *[linear(4, 4)] * 2),
        nn.Sequential(linear(4, 2)),
        nn.ModuleDict({"fc": linear(4, 2)}),
    ],
)
def test_other_networks_go_to_the_general_engine(network):
    assert blocks_of(network) is None
    assert type(engine_for(Model(network))) is AutogradEngine


def test_weights_of_several_magnitudes_go_to_the_general_path():
    model = Model(nn.Sequential(nn.Flatten(), linear(16, 4)))
    supernet = model.supernet(0)
    supernet.weights["1.weight"][0, 0] *= 2
    one, other = (
        engine.fit_scores(supernet, supernet.scores(supernet.ranking), made((16,), 4, (2,)))
        for engine in (engine_for(model), AutogradEngine(model))
    )
    assert one["1.weight"].tobytes() == other["1.weight"].tobytes()


def test_a_batch_larger_than_the_first_is_refused():
    model = Model(nn.Sequential(nn.Flatten(), linear(16, 4)))
    with pytest.raises(ValueError, match="first must be the largest"):
        engine_for(model).fit(model.initial_weights(0), made((16,), 4, (1, 2)))


@pytest.mark.parametrize("batch", [15, 16, 40])  # the single pass, and tiles
def test_wide_layers_and_larger_batches_are_trained_as_by_autograd(batch):
    model = Model(mlp((150,), 11, hidden=(103, 70)))  # sizes that leave rests of every tile
    work = made((150,), 11, (batch, batch, 7))
    start, supernet = model.initial_weights(0), model.supernet(0)
    engines = (engine_for(model), AutogradEngine(model))
    close(*(engine.fit(start, work) for engine in engines))
    scores = [
        engine.fit_scores(supernet, supernet.scores(supernet.ranking), work) for engine in engines
    ]
    close(*({name: torch.from_numpy(score) for name, score in part.items()} for part in scores))


BITS = """
import hashlib
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import Model
from e2fl.networks import lenet, mlp
from tests.kernels.test_stages import made

digest = hashlib.blake2b()
for make, shape in ((mlp, (150,)), (lenet, (1, 12, 12))):
    model = Model(make(shape, 11, hidden=(103, 70) if make is mlp else 128))
    for n in (8, 33):
        batches, supernet = made(shape, 11, (n,)) * 3, model.supernet(0)
        scores = engine_for(model).fit_scores(supernet, supernet.scores(supernet.ranking), batches)
        weights = engine_for(model).fit(model.initial_weights(0), batches)
        for value in (*scores.values(), *(weight.numpy() for weight in weights.values())):
            digest.update(value.tobytes())
print(digest.hexdigest())
"""
AVX2 = (
    "+avx,+avx2,+bmi,+bmi2,+fma,+f16c,+lzcnt,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,"
    "+cx16,+movbe"
)


@pytest.mark.slow
@pytest.mark.skipif(not WIDE, reason="this processor has no AVX-512 to compare with")
def test_machines_without_avx512_get_the_same_bits(tmp_path):
    narrow = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": AVX2,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    shown = [
        subprocess.check_output(
            [sys.executable, "-c", BITS], env=os.environ | extra, cwd=ROOT, timeout=900
        )
        for extra in ({}, narrow)
    ]
    assert shown[0] == shown[1]
