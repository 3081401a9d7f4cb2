"""What ballots cost on real rankings: bits per edge, overhead, processor time, a vote's loss.

    E2FL_DATA=... PYTHONPATH=src:. python -m benchmarks.ballots --rounds 20

trains the paper's LeNet on FairMNISTRotate (60 images per client, 25 of 1000 clients a round, votes
in two steps as in E2FL) and prints the tables of docs/ballots.md for the first and the last round.
Processor times are those of one core.

    PYTHONPATH=src:. python -m benchmarks.ballots --server

times the server instead: checking and aggregating 25 replies whose rankings are the broadcast one
with noise.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from benchmarks.work import paper_lenet
from e2fl.algorithms.e2fl import E2FL
from e2fl.data.federated import Population
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.evaluation import NO_GROUP
from e2fl.learning import Learner, Settings
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import ModelSpec
from e2fl.randomness import stream
from e2fl.rankings.ballots import (
    Ballot,
    Boundary,
    Buckets,
    Exact,
    Moves,
    Reference,
    encode_mask,
    ranking_of_mask,
)
from e2fl.rankings.messages import AnyBallots, Ballots, UncodedBallots
from e2fl.rankings.order import Ranking, Ranks, mask_layers, rank_of
from e2fl.rankings.votes import elect

VOTERS = 25
TIMED = 3  # ballots that are timed
SEED = 0
NEAR = ((20, 3), (16, 4), (12, 8), (8, 8))  # moves that are finer near the cut
Rows = Iterable[tuple[str, ...]]


@dataclass(frozen=True)
class Round:
    """A ranking that was broadcast, what clients made of it, and what was elected."""

    number: int
    broadcast: Ranking
    ballots: tuple[Ranking, ...]
    groups: Mapping[int, Ranking]
    elected: Ranking


def rounds(last: int) -> Iterable[Round]:
    """Train, and yield every round."""
    data = FairMNISTRotate(samples_per_client=60)
    model = paper_lenet()
    learner = Learner(
        model,
        engine_for(model),
        model.supernet(SEED),
        model.initial_weights(SEED),
        Settings(),
        SEED,
        1,
    )
    elected, groups = learner.supernet.ranking, dict[int, Ranking]()
    for number in range(1, last + 1):
        drawn = stream(SEED, "select", number).choice(
            list(data.population.ids), VOTERS, replace=False
        )
        cast: dict[int, list[Ranking]] = {}
        for client in sorted(drawn.tolist()):
            ballot = replace(learner, round_number=number, client_id=client).fit_scores(
                elected, data.client(client).train
            )
            cast.setdefault(data.population.declared[client] or 0, []).append(ballot)
        broadcast = elected
        groups |= {group: elect(ballots) for group, ballots in sorted(cast.items())}
        elected = elect(groups.values())
        ballots = tuple(ballot for group in cast.values() for ballot in group)
        yield Round(number, broadcast, ballots, dict(groups), elected)


def fan_in(spec: ModelSpec) -> dict[str, int]:
    return {layer.name: layer.fan_in for layer in spec.layers}


def milliseconds(work: Callable[[], object]) -> float:
    """The processor time of the fastest of three runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def differing(one: Ranking, other: Ranking) -> float:
    """The percentage of edges that only one of two masks keeps."""
    a, b = mask_layers(one, 0.5), mask_layers(other, 0.5)
    return (
        100
        * sum(int((a[name] != b[name]).sum()) for name in a)
        / sum(mask.size for mask in a.values())
    )


def uplink(moment: Round, spec: ModelSpec) -> Rows:
    """One row for each way to send a ballot."""
    yield ("ballot", "bits", "entropy", "over", "encode", "decode", "vote differs")
    exact = elect(moment.ballots)
    yield (
        "(the ranking that was broadcast)",
        "",
        "",
        "",
        "",
        "",
        f"{differing(moment.broadcast, exact):.2f} %",
    )
    blind = Reference(moment.broadcast)
    known = replace(blind, fan_in=fan_in(spec))
    buckets = [64, 16, 9, 5, 4, 3, 2]
    cases: list[tuple[str, Ballot, Reference]] = [("exact", Exact(), known)]
    cases += [(f"{number} buckets", Buckets(number), known) for number in buckets]
    cases += [
        (f"{number} buckets, no levels of units", Buckets(number), blind) for number in (16, 4)
    ]
    cases += [
        (f"moves, {steps} steps", Moves(steps, finer=1), known) for steps in (64, 32, 24, 16, 8)
    ]
    cases += [
        (f"moves, {steps} steps, {finer} x near the cut", Moves(steps, finer), known)
        for steps, finer in NEAR
    ]
    cases.append(
        ("uneven: .35 .45 .5 .55 .65", Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)), known)
    )
    cases.append(("uneven: .35 .45 .55 .65", Buckets(uneven=(0.35, 0.45, 0.55, 0.65)), known))
    cases += [
        (f"boundary, reach {reach}, band {band}", Boundary(reach, band), known)
        for reach, band in ((0.1, 0.0025), (0.1, 0.0), (0.05, 0.005), (0.2, 0.0025))
    ]
    for name, ballot, reference in cases:
        yield (name, *_row(ballot, reference, moment, exact, spec))


def _row(
    ballot: Ballot, reference: Reference, moment: Round, exact: Ranking, spec: ModelSpec
) -> tuple[str, ...]:
    size = entropy = 0.0
    encode, decode, decoded = [], [], []
    for voter, ranking in enumerate(moment.ballots):
        sent = ballot.encode(ranking, reference)
        decoded.append(ballot.decode(sent, reference))
        size += 8 * len(sent) / VOTERS / spec.edges
        entropy += ballot.entropy_bits(ranking, reference) / VOTERS / spec.edges
        if voter < TIMED:
            encode.append(milliseconds(lambda: ballot.encode(ranking, reference)))  # noqa: B023
            decode.append(milliseconds(lambda: ballot.decode(sent, reference)))  # noqa: B023
    lost = differing(elect(decoded), exact)
    over = f"{100 * (size / entropy - 1):.2f} %"
    times = (f"{np.median(encode):.0f} ms", f"{np.median(decode):.0f} ms")
    return (f"{size:.4g}", f"{entropy:.4g}", over, *times, f"{lost:.2f} %")


def downlink(moment: Round, start: Ranking, spec: ModelSpec) -> Rows:
    """The elected ranking in the order of the seed, and the masks of groups."""
    yield ("sent down", "bits", "entropy", "over", "encode", "decode", "mask differs")
    reference = Reference(start, fan_in(spec))
    for buckets in (16, 64, 256):
        ballot = Buckets(buckets)
        sent = ballot.encode(moment.elected, reference)
        decoded = ballot.decode(sent, reference)
        bits, entropy = 8 * len(sent), ballot.entropy_bits(moment.elected, reference)
        times = [
            f"{milliseconds(partial(ballot.encode, moment.elected, reference)):.0f} ms",
            f"{milliseconds(lambda: ballot.decode(sent, reference)):.0f} ms",  # noqa: B023
        ]
        yield (
            f"the ranking in {buckets} buckets",
            f"{bits / spec.edges:.4g}",
            f"{entropy / spec.edges:.4g}",
            f"{100 * (bits / entropy - 1):.2f} %",
            *times,
            f"{differing(decoded, moment.elected):.2f} %",
        )
    from_mask = ranking_of_mask(mask_layers(moment.elected, 0.5))
    for name, ranking in (
        ("given the ranking", moment.elected),
        ("given the global mask", from_mask),
    ):
        reference = Reference(ranking, fan_in(spec))
        sizes = [
            8 * len(encode_mask(mask_layers(group, 0.5), reference))
            for group in moment.groups.values()
        ]
        yield (
            f"the mask of a group {name}",
            f"{np.mean(sizes) / spec.edges:.4g}",
            "",
            "",
            "",
            "",
            "none",
        )


def server() -> Rows:
    """The processor time of a server's round, with exact and with coded ballots.

    Decoded once, and twice.
    """
    yield ("ballots", "bits", "check", "aggregate")
    model = paper_lenet()
    spec, start = model.spec, model.supernet(SEED).ranking
    population = Population({client: client % 5 for client in range(VOTERS)}, 5)
    noise = stream(SEED, "benchmark")

    def noisy(rank: Ranks) -> Ranks:
        moved = rank + 0.02 * rank.size * noise.standard_normal(rank.size)
        return rank_of(moved.astype(np.float32))

    rankings = [{name: noisy(rank) for name, rank in start.items()} for _ in range(VOTERS)]
    for ballot in (Exact(), Buckets(16)):
        algorithm = E2FL(clients_per_round=VOTERS, ballot=ballot)
        state = algorithm.start(model, population, SEED)
        raw = []
        reference = Reference(start, state.fan_in, state.keep)
        for ranking in rankings:
            exact = Ballots((NO_GROUP,), (ranking,))
            sent = (
                exact
                if not algorithm.coded
                else UncodedBallots((NO_GROUP,), (ranking,), ballot, reference)
            )
            raw.append(sent.to_bytes(spec))
        replies = {client: AnyBallots.from_bytes(part, spec) for client, part in enumerate(raw)}

        times = []
        for _ in range(2):
            began = time.process_time()
            checked = {
                client: algorithm.check(state, client, reply) for client, reply in replies.items()
            }
            between = time.process_time()
            algorithm.aggregate(state, checked)
            times.append((between - began, time.process_time() - between))
        bits = 8 * sum(map(len, raw)) / VOTERS / spec.edges
        name = "exact" if ballot == Exact() else "16 buckets"
        checking, counting = (min(column) for column in zip(*times, strict=True))
        yield (name, f"{bits:.3g}", f"{checking:.2f} s", f"{counting:.2f} s")


def show(title: str, rows: Rows) -> None:
    """Print a table in Markdown."""
    head, *body = rows
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in body:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--server", action="store_true", help="time the server's part of a round")
    options = parser.parse_args()
    last = options.rounds
    torch.set_num_threads(1)
    if options.server:
        show("The server's part of a round, 25 replies", server())
        return
    model = paper_lenet()
    start = model.supernet(SEED).ranking
    for moment in rounds(last):
        if moment.number in (1, last):
            show(f"Round {moment.number}, up", uplink(moment, model.spec))
            show(f"Round {moment.number}, down", downlink(moment, start, model.spec))


if __name__ == "__main__":
    main()
