"""Networks, supernetworks, and what cannot become one."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from e2fl.errors import ConfigError
from e2fl.models import Model
from e2fl.networks import MODELS, conv4, lenet, mlp, resnet9
from e2fl.rankings.order import mask_layers, rank_of

INPUTS = {
    "lenet": (1, 28, 28),
    "lenet_small": (1, 28, 28),
    "conv4": (3, 32, 32),
    "resnet9": (3, 32, 32),
    "mlp": (101,),
}


@pytest.mark.parametrize(
    ("network", "edges"),
    [
        (lenet((1, 28, 28), 10), [288, 18432, 1605632, 1280]),
        (lenet((1, 28, 28), 62), [288, 18432, 1605632, 7936]),
        (mlp((101,), 2), [103424, 1048576, 2048]),
        (conv4((3, 32, 32), 10), [1728, 36864, 73728, 147456, 2097152, 65536, 2560]),
        (
            resnet9((3, 32, 32), 10),
            [1728, 73728, 147456, 147456, 294912, 1179648, 2359296, 2359296, 5120],
        ),
    ],
)
def test_layers_have_as_many_edges_as_in_the_paper(network, edges):
    assert [layer.edges for layer in Model(network).spec.layers] == edges


@pytest.mark.parametrize(
    ("network", "count"),
    [(lenet((1, 28, 28), 10), 3), (conv4((3, 32, 32), 10), 6), (mlp((9,), 2), 2)],
)
def test_every_layer_but_the_last_is_followed_by_a_relu(network, count):
    kinds = [type(layer) for layer in network if not isinstance(layer, nn.MaxPool2d | nn.Flatten)]
    assert kinds[1::2] == [nn.ReLU] * count
    assert kinds[-1] is nn.Linear


@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_for_every_class(name):
    model = Model(MODELS[name](INPUTS[name], 7))
    assert model.outputs(model.initial_weights(0), torch.zeros(3, *INPUTS[name])).shape == (3, 7)


def test_weights_are_signed_constants_and_scores_lie_in_their_range():
    supernet = Model(lenet((1, 28, 28), 10)).supernet(3)
    bounds = {
        "conv1": (0.471405, 0.333333),
        "conv2": (0.083333, 0.058926),
        "fc1": (0.012627, 0.008929),
        "fc2": (0.125, 0.088388),
    }
    for name, (magnitude, most) in bounds.items():
        weights = supernet.weights[f"{name}.weight"]
        assert weights.abs().unique().tolist() == pytest.approx([magnitude], abs=1e-6)
        assert 0.4 < (weights > 0).float().mean() < 0.6
        scores = supernet.sorted_scores[f"{name}.weight"]
        assert scores[0] >= 0
        assert 0.95 * most < scores[-1] <= most + 1e-6


def test_start_scores_are_distinct_so_that_a_ranking_comes_back_unchanged():
    model = Model(lenet((1, 28, 28), 10))
    supernet = model.supernet(0)
    for ranking in (supernet.ranking, model.random_ranking(0, "any")):
        for name, scores in supernet.scores(ranking).items():
            assert (rank_of(scores) == ranking[name]).all()


def test_a_seed_fixes_the_supernetwork_and_a_subnetwork_keeps_half_of_each_layer():
    one, again, other = (Model(mlp((6,), 4, hidden=(10,))).supernet(seed) for seed in (1, 1, 2))
    for name in one.ranking:
        assert (one.ranking[name] == again.ranking[name]).all()
        assert (one.weights[name] == again.weights[name]).all()
        assert (one.ranking[name] != other.ranking[name]).any()
    kept = one.subnetwork(mask_layers(one.ranking, 0.5))
    assert [int((weight != 0).sum()) for weight in kept.values()] == [30, 20]


def test_dense_weights_start_in_torchs_own_range():
    weights = Model(mlp((100,), 2)).initial_weights(0)["fc1.weight"]
    assert 0.095 < float(weights.max()) <= 1 / math.sqrt(100)
    assert -0.1 <= float(weights.min()) < -0.095
    assert abs(float(weights.mean())) < 1e-3


def test_norm_layers_without_weights_are_welcome():
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.GroupNorm(2, 4, affine=False), nn.Flatten()
    )
    assert Model(network).supernet(0).ranking.keys() == {"0.weight"}


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.Linear(3, 2), "bias=False"),
        (nn.BatchNorm1d(3, track_running_stats=False), "affine=False"),
        (nn.GroupNorm(1, 3), "affine=False"),
        (nn.Embedding(4, 3), "cannot be masked"),
        (nn.LSTM(3, 2), "cannot be masked"),
    ],
)
def test_a_layer_that_cannot_be_masked_is_named_to_algorithms_that_rank(layer, words):
    model = Model(nn.Sequential(layer))
    for ranks in (
        lambda: model.supernet(0),
        lambda: model.random_ranking(0, "any"),
        model.require_rankable,
    ):
        with pytest.raises(ConfigError, match=rf"layer '0'.*{words}.*such as fedavg"):
            ranks()


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.BatchNorm1d(3), "running statistics.*GroupNorm"),
        (nn.BatchNorm2d(3, affine=False), "running statistics.*GroupNorm"),
        (nn.Linear(3, 2).double(), "float64; use float32"),
        (nn.LazyLinear(2), "no shape yet"),
        (nn.ReLU(), "no weights to train"),
    ],
)
def test_a_network_whose_training_messages_cannot_carry_is_refused(network, words):
    with pytest.raises(ConfigError, match=words):
        Model(nn.Sequential(network))


@pytest.mark.parametrize(
    "setting", [{"keep": 0.0}, {"keep": 1.01}, {"weight_scale": 0.0}, {"weight_scale": math.inf}]
)
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ConfigError, match=rf"model\.{next(iter(setting))}"):
        Model(mlp((3,), 2), **setting)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("make", "inputs", "words"),
    [
        (mlp, (0,), "at least one input"),
        (mlp, (1, 0, 4), "at least one input"),
        (lenet, (1, 8, 1), "at least 2 x 2"),
        (lenet, (0, 8, 8), "at least 2 x 2"),
        (lambda *_: nn.Linear(0, 3, bias=False), (0,), r"layer '0\.weight' has no edges"),
    ],
)
def test_inputs_too_small_for_a_model_are_refused(make, inputs, words):
    with pytest.raises(ConfigError, match=words):
        Model(nn.Sequential(make(inputs, 3)))


def test_building_a_model_does_not_import_the_compiler_of_torch():
    code = (
        "import sys; from functools import partial; from e2fl.models import Model\n"
        "from e2fl.networks import lenet\n"
        "build = partial(lenet, (1, 8, 8), 3); model = Model(build(), build=build)\n"
        "model.require_fit((1, 8, 8), 3, 'lenet'); print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
