"""The cost of local training, ranking, voting and encoding, each beside a plain implementation."""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from benchmarks.measure import Figure, ratios, scaled, seconds
from benchmarks.work import Pictures, flops_of_an_example, paper_lenet
from e2fl import kernels
from e2fl.learning import Learner, Settings, build_learner
from e2fl.learning.autograd import AutogradEngine
from e2fl.models import Model
from e2fl.networks import lenet, mlp
from e2fl.rankings.messages import ExactBallots
from e2fl.rankings.order import dropped
from e2fl.rankings.votes import elect
from tests.twins import reference

CORES = os.cpu_count() or 1
BATCH = 8
VOTERS = 25


def paper_learner(batch: int = BATCH, epochs: int = 2) -> Learner:
    """Return the learner of a FairMNISTRotate client."""
    return build_learner(paper_lenet(), Settings(epochs=epochs, batch_size=batch), 0)


def gemm_flops() -> float:
    """Return the highest rate of floating-point operations of matrix products on all cores."""
    size = 1024
    a, b = torch.randn(size, size), torch.randn(size, size)
    work = 2 * size**3
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    together = work / min(seconds(lambda: torch.mm(a, b), 8))
    torch.set_num_threads(1)
    with ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        products = range(4 * CORES)
        times = seconds(lambda: list(pool.map(lambda _: torch.mm(a, b), products)), 3)
    torch.set_num_threads(before)
    return max(together, len(products) * work / min(times))


class Training:
    """Edge-popup on the paper's LeNet for the same clients, with e2fl and with plain PyTorch."""

    def __init__(self, *, clients: int, plain_steps: int):
        data = Pictures()
        self.learner = paper_learner()
        self.clients, self.plain_steps = clients, plain_steps
        self.steps = 2 * -(-data.samples // BATCH)
        self.flops = 2 * data.samples * flops_of_an_example(self.learner.model.network)
        self.examples = [data.client(client).train for client in range(clients)]

    def ours(self, client: int = 0) -> None:
        """Train one client, from the ranking it receives to the ranking it sends."""
        learner = replace(self.learner, client_id=client)
        learner.fit_scores(self.learner.supernet.ranking, self.examples[client])

    def all_of_ours(self, pool: ThreadPoolExecutor) -> None:
        list(pool.map(self.ours, range(self.clients)))

    def plain(self, client: int = 0) -> None:
        """Take the first steps of one client, each with a full sort of all scores."""
        supernet, examples = self.learner.supernet, self.examples[client]
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


def training(quick: bool) -> list[Figure]:
    """Measure clients per second, relative to plain PyTorch and to the speed of matrix products."""
    work = Training(clients=2 * CORES if quick else 4 * CORES, plain_steps=2 if quick else 4)
    pool = ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,))
    work.all_of_ours(pool)
    peak, one, all_cores, plain_all, plain_apart = [], [], [], [], []
    for _ in range(3 if quick else 7):
        peak.append(gemm_flops())
        torch.set_num_threads(1)
        one += seconds(work.ours)
        all_cores += seconds(lambda: work.all_of_ours(pool))
        plain_apart += seconds(lambda: list(pool.map(work.plain, range(CORES))))
        torch.set_num_threads(CORES)
        plain_all += seconds(work.plain)
    pool.shutdown()
    step = scaled(one, 1e3 / work.steps)
    effective = scaled(all_cores, 1e3 / work.steps / work.clients)
    plain = scaled(plain_all, 1e3 / work.plain_steps)
    plain_each = scaled(plain_apart, 1e3 / work.plain_steps / CORES)
    per_client = scaled(all_cores, 1 / work.clients)
    published = "one client after another, torch on all cores, as the published code runs"
    gain, gain_each = ratios(plain, effective), ratios(plain_each, effective)
    arithmetic = ratios(per_client, [work.flops / value for value in peak])
    rate = [1 / value for value in per_client]
    return [
        Figure("matrix products, all cores", "GFLOP/s", scaled(peak, 1e-9)),
        Figure("plain step: one client, torch on all cores", "ms", plain),
        Figure("plain step: one client a core", "ms", plain_each),
        Figure("our step, one core", "ms", step),
        Figure("our step, all cores", "ms", effective, "time over the steps of all cores"),
        Figure("clients trained, all cores", "1/s", rate, "2 epochs of 233 images"),
        Figure("clients trained a second, ours to plain", "x", gain, published, (30, 60)),
        Figure("clients trained a second, ours to plain, one client a core", "x", gain_each),
        Figure("local training to its arithmetic", "x", arithmetic, goal=(1.4, 1.0)),
    ]


# Batches on which each network is measured; quick: the first one.
CELLS = {"LeNet": (8, 1, 64, 512), "the demo's LeNet": (8, 64), "MLP": (8, 64, 512)}
GOALS = {("LeNet", 8, "scores"): (5.0, 6.5), ("LeNet", 8, "weights"): (3.5, 4.0)}


def against_autograd(quick: bool) -> list[Figure]:
    """Measure processor time of fits and forward passes, autograd with the same selection of edges
    to ours.
    """
    torch.set_num_threads(1)
    networks: dict[str, Callable[[], Model]] = {
        "LeNet": paper_lenet,
        "the demo's LeNet": lambda: Model(lenet((1, 28, 28), 10, channels=(16, 32), hidden=64)),
        "MLP": lambda: Model(mlp((1, 28, 28), 10)),
    }
    cells = [(name, batch) for name, sizes in CELLS.items() for batch in sizes[: 1 if quick else 9]]
    repeats = 2 if quick else 5
    figures = [_after_ten_rounds(repeats)]
    for name, batch in cells:
        figures += _cell(name, networks[name](), batch, repeats)
    return figures


def _after_ten_rounds(repeats: int) -> Figure:
    """Measure a client of the paper in round 11: more activations are zero than in round 1."""
    data, ours = Pictures(), paper_learner()
    ranking = ours.supernet.ranking
    for start in range(0, 50, 5):
        voters = [
            (replace(ours, client_id=n), data.client(n).train) for n in range(start, start + 5)
        ]
        ranking = elect(voter.fit_scores(ranking, examples) for voter, examples in voters)
    examples = data.client(50).train
    return _beside_autograd(
        f"scores, LeNet, batch of {BATCH}, after ten rounds",
        ours,
        lambda learner: learner.fit_scores(ranking, examples),
        repeats,
        (5.0, 6.5),
    )


def _cell(name: str, model: Model, batch: int, repeats: int) -> list[Figure]:
    """Measure one network at one batch size."""
    examples = Pictures(samples=max(128, batch)).client(0).train
    ours = build_learner(model, Settings(epochs=1, batch_size=batch), 0)
    works: dict[str, Callable[[Learner], object]] = {
        "scores": lambda learner: learner.fit_scores(learner.supernet.ranking, examples),
        "weights": lambda learner: learner.fit(learner.initial, examples),
        "forward": lambda learner: learner.tally(learner.initial, examples),
    }
    return [
        _beside_autograd(
            f"{kind}, {name}, batch of {batch}",
            ours,
            work,
            repeats,
            GOALS.get((name, batch, kind), (1.0, 1.5)),
        )
        for kind, work in works.items()
    ]


def _beside_autograd(
    what: str,
    ours: Learner,
    work: Callable[[Learner], object],
    repeats: int,
    goal: tuple[float, float],
) -> Figure:
    """Measure the processor time of some work with autograd, relative to ours."""
    rival = replace(ours, engine=AutogradEngine(ours.model))
    times: dict[bool, list[float]] = {True: [], False: []}
    work(ours)
    for _ in range(repeats):
        for own, learner in ((True, ours), (False, rival)):
            times[own] += seconds(partial(work, learner), 1, time.process_time)
    return Figure(f"{what}, ours to autograd", "x", ratios(times[False], times[True]), goal=goal)


def rankings(quick: bool) -> list[Figure]:
    """Measure sorting, voting and encoding, beside NumPy."""
    model = paper_lenet()
    supernet = model.supernet(0)
    edges = {name: score.size for name, score in supernet.sorted_scores.items()}
    scores = supernet.scores(supernet.ranking)[max(edges, key=lambda name: edges[name])]
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

    message = ExactBallots((0,), (ballots[0],))
    raw = message.to_bytes(model.spec)

    def plain_encode() -> dict[str, kernels.UInt8]:
        return {name: reference.pack_order_of_rank(rank) for name, rank in ballots[0].items()}

    packed = plain_encode()

    def plain_decode() -> None:
        for name in edges:
            reference.unpack_rank(packed[name], edges[name])

    order, rank = kernels.order_of, kernels.rank_of
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "order of the largest layer": (lambda: order(scores), lambda: reference.order_of(scores)),
        "rank of the largest layer": (lambda: rank(scores), lambda: reference.rank_of(scores)),
        f"vote of {VOTERS} decoded rankings": (lambda: elect(ballots), plain_vote),
        f"vote of {VOTERS} orders": (vote_orders, plain_vote),
        "encoding a ranking": (lambda: message.to_bytes(model.spec), plain_encode),
        "decoding a ranking": (lambda: ExactBallots.from_bytes(raw, model.spec), plain_decode),
    }
    figures = []
    for what, (ours, plain) in pairs.items():
        ours()
        fast, slow = [], []
        for _ in range(2 if quick else 5):
            fast.append(statistics.median(seconds(ours, 3)))
            slow += seconds(plain)
        # Orders are the same work on both sides; decoded ballots are ranks, which need less.
        goal = (15.0, 40.0) if what.endswith("orders") else None
        figures += [
            Figure(what, "ms", scaled(fast, 1e3)),
            Figure(f"{what}, plain", "ms", scaled(slow, 1e3)),
            Figure(f"{what}, ours to plain", "x", ratios(slow, fast), goal=goal),
        ]
    return figures
