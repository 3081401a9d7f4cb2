"""E2FL in 100 lines is E2FL: rankings, votes and masks equal the package's.

They are equal bit for bit with autograd; compiled loops round differently in a few places.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from e2fl.data.federated import Examples
from e2fl.learning import Learner, Settings
from e2fl.learning.autograd import AutogradEngine
from e2fl.models import Model
from e2fl.networks import mlp
from e2fl.rankings.order import mask_layers, rank_of
from e2fl.rankings.votes import elect

EXAMPLE = Path(__file__).parent.parent / "examples" / "e2fl_in_100_lines.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("e2fl_in_100_lines", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_does_not_import_the_package():
    text = EXAMPLE.read_text()
    assert "import e2fl" not in text
    assert "from e2fl" not in text


def test_it_is_about_100_lines():
    assert len(EXAMPLE.read_text().splitlines()) <= 135


def test_ranks_and_masks_with_ties_are_the_packages(example):
    scores = np.random.default_rng(0).integers(0, 40, 101).astype(np.float32)
    ranking = {"layer": rank_of(scores)}
    found = example.rank(torch.from_numpy(scores))
    assert found.tolist() == ranking["layer"].tolist()
    assert example.mask(found).tolist() == mask_layers(ranking, 0.5)["layer"].tolist()


def test_two_rounds_equal_those_of_the_package(example):
    """Training, both votes and the masks, with one group absent in the second round."""
    model = Model(mlp((6,), 3, hidden=(16,)))
    supernet = model.supernet(0)
    settings = Settings(
        learning_rate=example.RATE,
        momentum=example.MOMENTUM,
        weight_decay=example.DECAY,
        epochs=2,
        batch_size=8,
    )
    learner = Learner(model, AutogradEngine(model), supernet, {}, settings, 0)
    random = np.random.default_rng(1)
    data = [
        (
            group,
            Examples(
                random.standard_normal((20, 6)).astype(np.float32), random.integers(3, size=20)
            ),
        )
        for group in (0, 0, 0, 1, 1, 2)
    ]
    names = list(supernet.weights)
    weights = list(supernet.weights.values())
    starts = [torch.from_numpy(supernet.sorted_scores[name]) for name in names]

    ours, our_groups = supernet.ranking, {}
    theirs, their_groups = [torch.from_numpy(supernet.ranking[name]).long() for name in names], {}
    for drawn in (data, data[:5]):
        ballots = {}
        for group, examples in drawn:
            ballots.setdefault(group, []).append(learner.fit_scores(ours, examples))
        our_groups = our_groups | {group: elect(cast) for group, cast in ballots.items()}
        ours = elect(our_groups[group] for group in sorted(our_groups))

        batches = [
            (group, [(batch.x, batch.y) for batch in learner.batches(examples, epochs=2)])
            for group, examples in drawn
        ]
        theirs, their_groups = example.federated_round(
            weights, starts, theirs, their_groups, batches
        )

        assert their_groups.keys() == our_groups.keys()
        pairs = [
            (ours, theirs),
            *((our_groups[group], their_groups[group]) for group in our_groups),
        ]
        for own, other in pairs:
            for name, ranking in zip(names, other, strict=True):
                assert ranking.tolist() == own[name].tolist()
            for kept, effective in zip(
                supernet.subnetwork(mask_layers(own, 0.5)).values(),
                example.subnetwork(weights, other),
                strict=True,
            ):
                assert torch.equal(kept, effective)
    assert any((ours[name] != supernet.ranking[name]).any() for name in names)
