"""Malicious clients: who they are, what they send, and how they are kept out of measures."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import e2fl
from e2fl.algorithms.fedavg import Update
from e2fl.attacks import (
    ATTACKS,
    Attack,
    BoundarySwap,
    Claim,
    Collusion,
    GroupSpoof,
    LabelFlip,
    Reverse,
    Scale,
    SignFlip,
)
from e2fl.config.methods import with_attacks
from e2fl.data.federated import Population
from e2fl.errors import ConfigError
from e2fl.rankings.messages import ExactBallots, ExactInvitation
from e2fl.rankings.order import dropped, footrule, mask_layers
from e2fl.report.from_runs import study_of
from e2fl.report.sections import sections
from e2fl.runs.runner import run_experiment
from e2fl.testing.toy import Toy

POPULATION = Population(dict(enumerate([0, 0, 0, 1, 1, 2])), 3)
EDGES = 200


def colluding(share=0.1, ballots=1, keep=0.5, masks=()):
    rng = np.random.default_rng(0)
    start = rng.permutation(EDGES).astype(np.int32)
    # Honest training moves edges a little.
    near = [
        np.argsort(np.argsort(start + rng.normal(0, 10, EDGES))).astype(np.int32)
        for _ in range(ballots)
    ]
    replies = {client: ExactBallots((0,), ({"fc": rank},)) for client, rank in enumerate(near)}
    return Collusion(replies, {}, ExactInvitation({"fc": start}, masks), share, keep)


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, [2]),
        ({"groups": 2}, [1, 2]),
        ({"place": "largest", "clients": 2}, [0, 0]),
        ({"place": "random", "groups": 3}, [0, 1, 2]),
    ],
)
def test_malicious_clients_are_placed_by_the_size_of_groups(settings, groups):
    chosen = Attack(**settings).attackers(POPULATION, seed=1)
    assert sorted(POPULATION.declared[client] for client in chosen) == groups
    # Whatever the attack: the clean run of a comparison leaves out the same clients.
    assert Scale(**settings).attackers(POPULATION, seed=1) == chosen


def test_a_fraction_of_clients_is_drawn_at_random():
    draws = {Attack(fraction=0.3).attackers(POPULATION, seed) for seed in range(20)}
    assert {len(drawn) for drawn in draws} == {2}
    assert len(draws) > 5


def test_at_least_one_client_must_be_honest():
    with pytest.raises(ConfigError, match="honest"):
        Attack(groups=3, clients=9).attackers(POPULATION, 0)


def test_reverse_sends_the_reverse_of_the_honest_vote():
    known = colluding(ballots=3)
    sums = sum(reply.rankings[0]["fc"].astype(int) for reply in known.replies.values())
    place = np.argsort(np.argsort(sums, kind="stable"))
    for reply in Reverse().forge(known).values():
        assert np.array_equal(reply.rankings[0]["fc"], EDGES - 1 - place)


@pytest.mark.parametrize(("share", "keep"), [(0.1, 0.5), (1.0, 0.5), (0.25, 0.3), (0.9, 0.98)])
def test_boundary_swap_moves_the_edges_nearest_to_the_cut_furthest(share, keep):
    known = colluding(share=share, keep=keep)
    honest = known.replies[0].rankings[0]["fc"]
    forged = BoundarySwap().forge(known)[0].rankings[0]["fc"]
    cut, odds = dropped(EDGES, keep), min(share, 0.5) / (1 - min(share, 0.5))
    count = min(round(EDGES / 2 * odds), cut, EDGES - cut)
    assert sorted(forged) == list(range(EDGES))
    order = np.argsort(honest)
    assert list(forged[order[cut : cut + count]]) == list(range(count))
    assert list(forged[order[cut - count : cut]]) == list(range(EDGES - count, EDGES))
    others = np.concatenate([order[: cut - count], order[cut + count :]])
    assert list(forged[others]) == list(range(count, EDGES - count))


def test_stealth_moves_no_further_than_honest_training_does():
    known = colluding(share=0.5)
    honest, start = known.replies[0].rankings[0]["fc"], known.invitation.ranking["fc"]
    forged = BoundarySwap(stealth=True).forge(known)[0].rankings[0]["fc"]
    plain = BoundarySwap().forge(known)[0].rankings[0]["fc"]
    assert 0 < footrule(forged, honest) <= footrule(honest, start) < footrule(plain, honest)


@pytest.mark.parametrize("empty", [False, True])
def test_spoofing_takes_an_empty_group_or_the_most_distant_one(empty):
    start = colluding().invitation.ranking
    whole = mask_layers(start, 0.5)["fc"]
    near, far = whole.copy(), ~whole
    near[np.flatnonzero(whole)[0]] = False
    masks = [{"fc": near}, {"fc": far}] + [{"fc": whole}] * empty
    forged = GroupSpoof().forge(colluding(masks=tuple(masks)))
    assert forged[0].groups == ((2,) if empty else (1,))


def test_updates_are_scaled_and_flipped_from_what_was_sent():
    sent, trained = {"fc": torch.tensor([1.0, 2.0])}, {"fc": torch.tensor([1.5, 1.0])}
    known = Collusion({4: Update(trained, 10)}, {4: sent}, None, 0.1, 0.5)
    assert Scale(factor=10).forge(known)[4].params["fc"].tolist() == [6.0, -8.0]
    assert SignFlip(factor=-2).forge(known)[4].params["fc"].tolist() == [0.0, 4.0]
    claimed = Claim(examples=99).forge(known)[4]
    assert claimed.examples == 99
    assert claimed.params is trained


def test_flipped_labels_are_those_of_training_only():
    client = Toy().client(0)
    poisoned = LabelFlip().poison(client, 3)
    assert np.array_equal(poisoned.train.y, 2 - client.train.y)
    assert poisoned.test is client.test


@pytest.mark.parametrize("algorithm", ["e2fl", "fedavg"])
@pytest.mark.parametrize("name", ATTACKS)
def test_malicious_clients_are_shown_apart(toy, algorithm, name):
    honest = replace(toy, algorithm={"name": algorithm, "clients_per_round": 8}, rounds=2)
    attacked = run_experiment(replace(honest, attack={"name": name}))
    summary = attacked.summary
    assert len(summary["attack"]["clients"]) == 1
    assert summary["attack"]["clients"][0] not in [row["client"] for row in attacked.clients]
    assert sum(group["clients"] for group in summary["groups"].values()) == 7
    plain = run_experiment(honest)
    moves = {"e2fl": ("reverse", "boundary_swap", "group_spoof", "label_flip")}.get(
        algorithm, ("label_flip", "sign_flip", "scale", "claim")
    )
    before, after = (run.state.__dict__ for run in (plain, attacked))
    key = "global_ranking" if algorithm == "e2fl" else "params"
    same = all(np.array_equal(before[key][layer], after[key][layer]) for layer in before[key])
    # A claim of many examples is counted as what the largest client has: here, all have as many.
    assert same is (name not in moves or name == "claim")


@pytest.mark.parametrize("name", ["boundary_swap", "reverse", "label_flip"])
def test_an_attack_changes_no_more_of_a_mask_than_the_certified_influence(toy, name):
    first = replace(toy, rounds=1, algorithm={"name": "e2fl", "clients_per_round": 8})
    clean, attacked = (
        run_experiment(replace(first, attack={"name": kind})) for kind in ("none", name)
    )
    certified = clean.history[-1]["influence"]
    before, after = (run.state for run in (clean, attacked))
    votes = {"global": (certified["global"], before.global_ranking, after.global_ranking)}
    for group, (key, own) in enumerate(certified["groups"].items()):
        votes[key] = own, before.groups[group], after.groups[group]
    changed = {key: exchanged(one, other) for key, (_, one, other) in votes.items()}
    assert changed["global"] > 0
    for key, (own, *_) in votes.items():  # of one client in its group, of one group in the whole
        assert changed[key] <= own["mask"]


def exchanged(before, after):
    """The percentage of kept edges that are kept no longer."""
    masks = mask_layers(before, 0.5), mask_layers(after, 0.5)
    lost = sum((masks[0][layer] & ~masks[1][layer]).sum() for layer in before)
    return 100 * lost / sum(mask.sum() for mask in masks[0].values())


def test_an_attacked_run_that_is_resumed_equals_one_that_never_stopped(toy, tmp_path):
    attacked = replace(toy, attack={"name": "boundary_swap", "fraction": 0.25})
    whole = run_experiment(attacked)
    run_experiment(replace(attacked, rounds=3), out=tmp_path)
    resumed = run_experiment(attacked, out=tmp_path, resume=True)
    assert resumed.summary["attack"] == whole.summary["attack"]
    assert resumed.summary["groups"] == whole.summary["groups"]


def test_a_comparison_shows_what_an_attack_costs_each_group(toy, tmp_path):
    both = e2fl.compare(
        toy,
        ["fedavg", "e2fl"],
        data={"clients": 12},
        algorithm={"clients_per_round": 12},
        attack=["boundary_swap", "scale"],
        seeds=[0, 1],
        rounds=2,
        update_limit=0,
        out=tmp_path / "both",
    )
    study = study_of([run.record for run in both])
    by_name = {(one["method"], one["attack"]): one for _, one in study.attacked.iterrows()}
    assert {method.label for method in study.pair} == {"FedAvg", "E2FL"}  # as honest runs
    assert len(study.attacked) == 8
    assert len(by_name) == 4
    last = [run for run in both if run.record.seed == 1]
    clean = {run.label: run for run in last if run.experiment.attack["name"] == "none"}
    for run in last:
        name = run.experiment.attack["name"]
        if name == "none":
            continue
        cost = by_name[{"fedavg": "FedAvg", "e2fl": "E2FL"}[run.label], name]
        lost = {
            group: clean[run.label].summary["groups"][group]["accuracy"] - values["accuracy"]
            for group, values in run.summary["groups"].items()
        }
        attacked = run.summary["attack"]["groups"]
        assert cost["inside"] == pytest.approx(np.mean([lost[group] for group in attacked]))
        assert cost["hardest"] == max(lost[group] for group in lost if group not in attacked)
        positive = {group: max(0, loss) for group, loss in lost.items()}
        share = sum(positive[group] for group in attacked)
        if any(positive.values()):
            assert cost["contained"] == pytest.approx(100 * share / sum(positive.values()))
        else:
            assert np.isnan(cost["contained"])
        # Weights have no mask, and rankings no scale.
        assert np.isnan(cost["edges"]) == (run.label == "fedavg")
        if run.label == "e2fl":
            assert (cost["edges"] > 0) == (name == "boundary_swap")
            assert name == "boundary_swap" or not any(lost.values())
        elif name == "boundary_swap":
            assert not any(lost.values())
    text = str(both)
    assert "What attacks cost honest clients" in text
    assert "E2FL under boundary_swap" in text
    assert {"attacks"} <= {section.key for section in sections(study)}


@pytest.mark.parametrize(
    ("names", "settings", "match"),
    [
        (["none"], {}, "each attack once"),
        (["scale", "scale"], {}, "each attack once"),
        (["scael"], {}, "scale"),
        (["scale"], {"stealth": True}, "attack.stealth"),
        (["scale"], {"place": "middle"}, "attack.place"),
    ],
)
def test_mistakes_in_attacks_to_compare_are_found_before_training(toy, names, settings, match):
    with pytest.raises(ConfigError, match=match):
        with_attacks({"e2fl": replace(toy, attack=settings)}, names)
