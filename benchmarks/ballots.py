"""What ballots cost on real rankings: bits per edge, the coder's overhead, processor time, and what
a vote loses.

    E2FL_DATA=... PYTHONPATH=src:. python -m benchmarks.ballots --rounds 20

trains the paper's LeNet on FairMNISTRotate (60 images per client, 25 of 1000 clients a round, votes
in two steps as in E2FL) and prints the tables of docs/ballots.md for the first and the last round.
Processor times are those of one core.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.measure import seconds
from benchmarks.work import paper_lenet
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.learning import Settings, build_learner
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
from e2fl.rankings.order import Ranking, mask_layers
from e2fl.rankings.votes import elect

VOTERS = 25
TIMED = 3  # ballots that are timed
SEED = 0
BALLOTS: dict[str, Ballot] = {
    "exact": Exact(),
    **{f"{count} buckets": Buckets(count) for count in (64, 16, 9, 5, 4, 3, 2)},
    **{f"moves, {steps} steps": Moves(steps, finer=1) for steps in (64, 32, 24, 16, 8)},
    **{
        f"moves, {steps} steps, {finer} x near the cut": Moves(steps, finer)
        for steps, finer in ((20, 3), (16, 4), (12, 8), (8, 8))
    },
    "uneven: .35 .45 .5 .55 .65": Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)),
    "uneven: .35 .45 .55 .65": Buckets(uneven=(0.35, 0.45, 0.55, 0.65)),
    **{
        f"boundary, reach {reach}, band {band}": Boundary(reach, band)
        for reach, band in ((0.1, 0.0025), (0.1, 0.0), (0.05, 0.005), (0.2, 0.0025))
    },
}
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
    learner = build_learner(paper_lenet(), Settings(), SEED)
    elected, groups = learner.supernet.ranking, dict[int, Ranking]()
    for number in range(1, last + 1):
        drawn = stream(SEED, "select", number).choice(
            list(data.population.ids), VOTERS, replace=False
        )
        cast: dict[int, list[Ranking]] = {}
        for client in sorted(drawn.tolist()):
            own = replace(learner, round_number=number, client_id=client)
            ballot = own.fit_scores(elected, data.client(client).train)
            cast.setdefault(data.population.declared[client] or 0, []).append(ballot)
        broadcast = elected
        groups |= {group: elect(ballots) for group, ballots in sorted(cast.items())}
        elected = elect(groups.values())
        ballots = tuple(ballot for group in cast.values() for ballot in group)
        yield Round(number, broadcast, ballots, dict(groups), elected)


def milliseconds(work: Callable[[], object]) -> float:
    """Return the processor time of the fastest of three runs."""
    return 1e3 * min(seconds(work, 3, time.process_time))


def differing(one: Ranking, other: Ranking) -> str:
    """Return the share of edges that only one of two masks keeps."""
    a, b = mask_layers(one, 0.5), mask_layers(other, 0.5)
    unlike = sum(int((a[name] != b[name]).sum()) for name in a)
    return f"{100 * unlike / sum(mask.size for mask in a.values()):.2f} %"


def uplink(moment: Round, spec: ModelSpec) -> Rows:
    """Yield one row for each way to send a ballot."""
    yield ("ballot", "bits", "entropy", "over", "encode", "decode", "vote differs")
    exact = elect(moment.ballots)
    lost = differing(moment.broadcast, exact)
    yield ("(the ranking that was broadcast)", *[""] * 5, lost)
    known = Reference(moment.broadcast, {layer.name: layer.fan_in for layer in spec.layers})
    for name, ballot in BALLOTS.items():
        costs, decoded = _costs(ballot, moment.ballots, known, spec)
        yield (name, *costs, differing(elect(decoded), exact))
    for buckets in (16, 4):
        costs, decoded = _costs(Buckets(buckets), moment.ballots, Reference(known.ranking), spec)
        name = f"{buckets} buckets, no levels of units"
        yield (name, *costs, differing(elect(decoded), exact))


def _costs(
    ballot: Ballot, rankings: Iterable[Ranking], reference: Reference, spec: ModelSpec
) -> tuple[tuple[str, ...], list[Ranking]]:
    """Return bits, entropy, overhead and times of a way to send rankings, and them as decoded."""
    bits, entropy, encode, decode, decoded = [], [], [], [], []
    for voter, ranking in enumerate(rankings):
        sent = ballot.encode(ranking, reference)
        decoded.append(ballot.decode(sent, reference))
        bits.append(8 * len(sent) / spec.edges)
        entropy.append(ballot.entropy_bits(ranking, reference) / spec.edges)
        if voter < TIMED:
            encode.append(milliseconds(lambda: ballot.encode(ranking, reference)))  # noqa: B023
            decode.append(milliseconds(lambda: ballot.decode(sent, reference)))  # noqa: B023
    size, least = np.mean(bits), np.mean(entropy)
    times = (f"{np.median(encode):.0f} ms", f"{np.median(decode):.0f} ms")
    return (f"{size:.4g}", f"{least:.4g}", f"{100 * (size / least - 1):.2f} %", *times), decoded


def downlink(moment: Round, start: Ranking, spec: ModelSpec) -> Rows:
    """Yield rows for the elected ranking in the order of the seed, and the masks of groups."""
    yield ("sent down", "bits", "entropy", "over", "encode", "decode", "mask differs")
    fan_in = {layer.name: layer.fan_in for layer in spec.layers}
    for buckets in (16, 64, 256):
        costs, decoded = _costs(Buckets(buckets), [moment.elected], Reference(start, fan_in), spec)
        lost = differing(decoded[0], moment.elected)
        yield (f"the ranking in {buckets} buckets", *costs, lost)
    from_mask = ranking_of_mask(mask_layers(moment.elected, 0.5))
    for name, ranking in (("ranking", moment.elected), ("global mask", from_mask)):
        reference = Reference(ranking, fan_in)
        masks = [mask_layers(group, 0.5) for group in moment.groups.values()]
        bits = np.mean([8 * len(encode_mask(mask, reference)) for mask in masks]) / spec.edges
        yield (f"the mask of a group given the {name}", f"{bits:.4g}", *[""] * 4, "none")


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
    last = parser.parse_args().rounds
    torch.set_num_threads(1)
    model = paper_lenet()
    start = model.supernet(SEED).ranking
    for moment in rounds(last):
        if moment.number in (1, last):
            show(f"Round {moment.number}, up", uplink(moment, model.spec))
            show(f"Round {moment.number}, down", downlink(moment, start, model.spec))


if __name__ == "__main__":
    main()
