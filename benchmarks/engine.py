"""The cost of local training, ranking, voting and encoding, each beside a plain implementation."""

import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from benchmarks.figures import Figure, Goal, ratios, seconds
from benchmarks.work import Pictures, flops_of_an_example, paper_lenet
from e2fl import kernels
from e2fl.learning import Learner, Settings
from e2fl.learning.compiled_engine import engine_for
from e2fl.rankings.messages import Ballots
from e2fl.rankings.order import dropped
from e2fl.rankings.votes import elect
from tests.twins import reference

CORES = os.cpu_count() or 1
BATCH = 8
VOTERS = 25
Results = tuple[list[Figure], list[Goal]]


def paper_learner() -> Learner:
    """The learner of a FairMNISTRotate client."""
    model = paper_lenet()
    settings = Settings(learning_rate=0.1, epochs=2, batch_size=BATCH)
    return Learner(
        model, engine_for(model), model.supernet(0), model.initial_weights(0), settings, 0, 1
    )


def gemm_flops() -> float:
    """The highest rate of floating-point operations that matrix products reach on all cores."""
    size = 1024
    a, b = torch.randn(size, size), torch.randn(size, size)
    work = 2 * size**3

    def alone(_: int) -> None:
        torch.mm(a, b)

    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    together = work / min(seconds(lambda: torch.mm(a, b), 8))
    torch.set_num_threads(1)
    with ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        apart = 4 * CORES * work / min(seconds(lambda: list(pool.map(alone, range(4 * CORES))), 3))
    torch.set_num_threads(before)
    return max(together, apart)


class Training:
    """Edge-popup on the paper's LeNet for the same clients, with e2fl and with plain PyTorch."""

    def __init__(self, *, clients: int, plain_steps: int):
        self.data = Pictures()
        self.learner = paper_learner()
        self.clients, self.plain_steps = clients, plain_steps
        self.steps = 2 * -(-self.data.samples // BATCH)
        self.flops = 2 * self.data.samples * flops_of_an_example(self.learner.model.network)
        self.examples = [self.data.client(number).train for number in range(clients)]

    def ours(self, number: int = 0) -> None:
        """One client, from the ranking it receives to the ranking it sends."""
        learner = replace(self.learner, client_id=number)
        learner.fit_scores(self.learner.supernet.ranking, self.examples[number])

    def all_of_ours(self, pool: ThreadPoolExecutor) -> None:
        list(pool.map(self.ours, range(self.clients)))

    def plain(self, number: int = 0) -> None:
        """The first steps of one client, each with a full sort of all scores."""
        supernet, examples = self.learner.supernet, self.examples[number]
        scores = supernet.scores(supernet.ranking)
        rows = [slice(start, start + BATCH) for start in range(0, self.plain_steps * BATCH, BATCH)]
        reference.plain_edge_popup(
            paper_lenet().network,
            supernet.weights,
            {
                name: torch.from_numpy(score).view(supernet.weights[name].shape)
                for name, score in scores.items()
            },
            [(examples.inputs(part), examples.labels(part)) for part in rows],
            dropped={name: dropped(score.size, 0.5) for name, score in scores.items()},
            learning_rate=0.1,
            momentum=0.9,
            weight_decay=1e-4,
        )


def training(quick: bool) -> Results:
    """Steps and clients per second, relative to plain PyTorch and to matrix products."""
    work = Training(clients=2 * CORES if quick else 4 * CORES, plain_steps=2 if quick else 4)
    repeats = 3 if quick else 7
    pool = ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,))
    work.all_of_ours(pool)
    torch.set_num_threads(CORES)
    work.plain()

    peak, one, all_cores, plain_all, plain_apart = [], [], [], [], []
    for _ in range(repeats):
        peak.append(gemm_flops())
        torch.set_num_threads(1)
        one += seconds(work.ours)
        all_cores += seconds(lambda: work.all_of_ours(pool))
        plain_apart += seconds(lambda: list(pool.map(work.plain, range(CORES))))
        torch.set_num_threads(CORES)
        plain_all += seconds(work.plain)
    pool.shutdown()

    step = [value / work.steps for value in one]
    effective = [value / work.steps / work.clients for value in all_cores]
    plain = [value / work.plain_steps for value in plain_all]
    plain_each = [value / work.plain_steps / CORES for value in plain_apart]
    arithmetic = [work.flops / value for value in peak]
    per_client = [value / work.clients for value in all_cores]
    published = "one client after another, torch on all cores, as the published code runs"
    figures = [
        Figure("matrix products, all cores", "GFLOP/s", tuple(value / 1e9 for value in peak)),
        Figure(
            "plain step: one client, torch on all cores", "ms", _ms(plain_all, work.plain_steps)
        ),
        Figure("plain step: one client a core", "ms", _ms(plain_apart, work.plain_steps * CORES)),
        Figure("our step, one core", "ms", _ms(step)),
        Figure(
            "our step, all cores", "ms", _ms(effective), "time divided by the steps of all cores"
        ),
        Figure(
            "clients trained a second, ours to plain, one client a core",
            "x",
            ratios(plain_each, effective),
        ),
        Figure(
            "clients trained, all cores",
            "1/s",
            tuple(1 / value for value in per_client),
            "2 epochs of 233 images",
        ),
    ]
    goals = [
        Goal(
            Figure(
                "clients trained a second, ours to plain", "x", ratios(plain, effective), published
            ),
            30,
            60,
        ),
        Goal(
            Figure(
                "local training to its arithmetic at matrix-product speed",
                "x",
                ratios(per_client, arithmetic),
            ),
            1.4,
            1.0,
            smaller_is_better=True,
        ),
    ]
    return figures, goals


def _ms(values: list[float], parts: int = 1) -> tuple[float, ...]:
    return tuple(1e3 * value / parts for value in values)


def rankings(quick: bool) -> Results:
    """Sorting, voting and encoding, beside NumPy."""
    repeats = 3 if quick else 9
    model = paper_lenet()
    supernet = model.supernet(0)
    edges = {name: score.size for name, score in supernet.sorted_scores.items()}
    largest = max(edges, key=lambda name: edges[name])
    scores = supernet.scores(supernet.ranking)[largest]
    ballots = [model.random_ranking(0, "bench", voter) for voter in range(VOTERS)]
    orders = [{name: kernels.invert(rank) for name, rank in ballot.items()} for ballot in ballots]

    def vote_orders() -> None:
        elect({name: kernels.invert(order[name]) for name in edges} for order in orders)

    def plain_vote() -> None:
        for name in edges:
            sums = np.zeros(edges[name], np.int64)
            for order in orders:
                sums += np.argsort(order[name], kind="stable")
            np.argsort(sums, kind="stable")

    message = Ballots((0,), (ballots[0],))
    raw = message.to_bytes(model.spec)
    bits = {name: (size - 1).bit_length() for name, size in edges.items()}
    packed = {
        name: reference.pack_order_of_rank(rank, bits[name]) for name, rank in ballots[0].items()
    }

    def plain_encode() -> None:
        for name, rank in ballots[0].items():
            reference.pack_order_of_rank(rank, bits[name])

    def plain_decode() -> None:
        for name in edges:
            reference.unpack_rank(packed[name], edges[name], bits[name])

    pairs: list[tuple[str, Callable[[], object], Callable[[], object], int]] = [
        (
            "order of the largest layer",
            lambda: kernels.order_of(scores),
            lambda: reference.order_of(scores),
            repeats,
        ),
        (
            "rank of the largest layer",
            lambda: kernels.rank_of(scores),
            lambda: reference.rank_of(scores),
            repeats,
        ),
        (
            f"vote of {VOTERS} decoded rankings",
            lambda: elect(ballots),
            plain_vote,
            2 if quick else 3,
        ),
        (f"vote of {VOTERS} orders", vote_orders, plain_vote, 2 if quick else 3),
        (
            "encoding a ranking",
            lambda: message.to_bytes(model.spec),
            plain_encode,
            2 if quick else 3,
        ),
        (
            "decoding a ranking",
            lambda: Ballots.from_bytes(raw, model.spec),
            plain_decode,
            2 if quick else 3,
        ),
    ]
    figures, goals = [], []
    for what, ours, plain, times in pairs:
        ours()
        fast, slow = [], []
        for _ in range(times):
            fast.append(statistics.median(seconds(ours, 3)))
            slow += seconds(plain)
        figures.append(Figure(what, "ms", _ms(fast)))
        figures.append(Figure(f"{what}, plain", "ms", _ms(slow)))
        ratio = Figure(f"{what}, ours to plain", "x", ratios(slow, fast))
        if what.endswith(
            "orders"
        ):  # the same work on both sides; decoded ballots are ranks, which need less
            goals.append(Goal(ratio, 15, 40))
        else:
            figures.append(ratio)
    return figures, goals
