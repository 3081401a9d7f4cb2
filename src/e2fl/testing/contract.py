"""The contract of algorithms, as checks on a small synthetic problem.

`check_algorithm(mine)` runs them all; each failure is an AssertionError that says what is broken.
"""

import copy
import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.data.federated import FederatedData
from e2fl.errors import WireError
from e2fl.evaluation import total
from e2fl.learning import Settings, build_learner
from e2fl.models import Model, ModelSpec
from e2fl.networks import mlp
from e2fl.participation import Participation
from e2fl.randomness import stream
from e2fl.rounds import Round, RoundRequest, Server, run
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.testing.toy import Toy
from e2fl.torch_streams import torch_seeded
from e2fl.wire import Message

OUT_OF_RANGE = {
    float: (1e20, 3.4e38, 1e308, -1e308, 0.0, math.inf, math.nan),
    int: (2**31 - 1, -(2**31), -1, 0),
}


def _mlp(inputs: tuple[int, ...], classes: int) -> nn.Module:
    return mlp(inputs, classes, hidden=(24,))


@dataclass(frozen=True)
class Problem:
    """An algorithm, and the problem it is checked on."""

    algorithm: AnyAlgorithm
    data: FederatedData = field(default_factory=lambda: Toy(clients=8, examples=36, styles=True))
    settings: Settings = field(
        default_factory=lambda: Settings(learning_rate=0.1, epochs=2, batch_size=8)
    )
    rounds: int = 10
    accuracy: float = 70.0  # percent, to be reached in these rounds
    seed: int = 3
    network: Callable[..., nn.Module] = _mlp  # makes the network of (inputs, classes)
    participation: Participation | None = None  # default: the policy that the algorithm names

    @cached_property
    def recorded_rounds(self) -> list["RecordedRound"]:
        """The first two rounds, step by step; they are trained once."""
        algorithm, federation = self.algorithm, self.federation()
        population = federation.population
        server = self.server(federation, 2)
        rounds = []
        for _ in range(2):
            state, request = server.state, server.ask()
            replies = federation.train(request)
            served = server.checks.messages(
                algorithm.serve(state, population.ids), population.ids, server.types.served, "serve"
            )
            answers = dict(replies.answers)
            checked = {
                client: algorithm.check(state, client, answer) for client, answer in answers.items()
            }
            rounds.append(RecordedRound(state, request, answers, checked, served))
            server.take(replies)
        return rounds

    @cached_property
    def uninterrupted(self) -> list[Round]:
        """A run of four rounds that is never interrupted; it is trained once."""
        return list(self.run(self.federation(), 4))

    def model(self) -> Model:
        build = partial(self.network, self.data.shape, self.data.classes)
        with torch_seeded(stream(self.seed, "network")):  # buffers may be drawn
            model = Model(build(), build=build)
        model.require_fit(self.data.shape, self.data.classes, "network")
        return model

    def federation(self, threads: int = 2, memories: Path | None = None) -> SimulatedFederation:
        learner = build_learner(self.model(), self.settings, self.seed)
        return SimulatedFederation(
            self.data, self.algorithm, learner, threads=threads, memories=Memories(memories)
        )

    def server(
        self, federation: SimulatedFederation, rounds: int, resume: Round | None = None
    ) -> Server:
        policy = self.participation or self.algorithm.participation
        settings: Any = {"seed": self.seed, "evaluate_every": 2, "participation": policy}
        model, population = federation.learner.model, federation.population
        return Server(self.algorithm, model, population, rounds=rounds, resume=resume, **settings)

    def run(
        self, federation: SimulatedFederation, rounds: int, resume: Round | None = None
    ) -> Iterator[Round]:
        return run(self.server(federation, rounds, resume), federation)


@dataclass(frozen=True)
class RecordedRound:
    """One round before aggregation, with everything that was sent."""

    state: Any
    request: RoundRequest
    replies: Mapping[int, Message]  # as they arrived
    checked: Mapping[int, Message]  # the same, as `check` returned them
    served: Mapping[int, Message]


def messages_survive_the_wire(problem: Problem) -> None:
    """Every message survives encoding and decoding."""
    spec = problem.model().spec
    for recorded in problem.recorded_rounds:
        for name, messages, model in (
            ("broadcast", recorded.request.inbox, spec),
            ("train", recorded.replies, spec.only(recorded.request.ask.layers)),
            ("serve", recorded.served, spec),
        ):
            assert messages, f"{name} returns no message in round {recorded.request.round_number}"
            for message in messages.values():
                survives(message, model, name)


def equal_seeds_give_equal_runs(problem: Problem) -> None:
    """The same seed gives the same bits with 2 and 3 threads; a resumed run has 1."""
    again = list(problem.run(problem.federation(threads=3), 4))
    assert same(problem.uninterrupted, again), "3 threads give another run than 2"


def the_order_of_replies_does_not_matter(problem: Problem) -> None:
    """Replies in another order give the same state, up to the rounding of sums."""
    for recorded in problem.recorded_rounds:
        backwards = dict(sorted(recorded.checked.items(), reverse=True))
        assert same(
            problem.algorithm.aggregate(recorded.state, recorded.checked),
            problem.algorithm.aggregate(recorded.state, backwards),
            tolerance=1e-5,
        ), "aggregate depends on the order of replies"


def aggregate_changes_none_of_its_arguments(problem: Problem) -> None:
    """Aggregation leaves the state and the replies unchanged."""
    for recorded in problem.recorded_rounds:
        before = copy.deepcopy((recorded.state, recorded.checked))
        problem.algorithm.aggregate(recorded.state, recorded.checked)
        assert same(before, (recorded.state, recorded.checked)), "aggregate changed its arguments"


def absurd_numbers_do_no_harm(problem: Problem) -> None:
    """Whatever number one client sends, it is rejected, or the messages that follow stay valid."""
    algorithm, population, spec = problem.algorithm, problem.data.population, problem.model().spec
    for recorded in problem.recorded_rounds:
        client = min(recorded.replies)
        honest: Any = recorded.replies[client]
        for name in (part.name for part in dataclasses.fields(honest)):
            for number in OUT_OF_RANGE.get(type(getattr(honest, name)), ()):
                forged = dataclasses.replace(honest, **{name: number})
                try:
                    checked = algorithm.check(recorded.state, client, forged)
                except WireError:
                    continue
                state = algorithm.aggregate(recorded.state, {**recorded.checked, client: checked})
                for send in (algorithm.broadcast, algorithm.serve):
                    messages = send(state, population.ids).values()
                    for message in {id(message): message for message in messages}.values():
                        survives(message, spec, f"after a reply with {name} = {number}")


def survives(message: Any, model: ModelSpec, where: str) -> None:
    """Assert that a message survives encoding and decoding."""
    try:
        raw = message.to_bytes(model)
        again = type(message).from_bytes(raw, model)
    except WireError as error:
        raise AssertionError(f"{where}: {error}") from error
    assert same(message, again), f"{where}: a message does not survive the wire"
    assert again.to_bytes(model) == raw


def a_toy_task_is_learnt(problem: Problem) -> None:
    """After some rounds, accuracy is far above chance."""
    *_, last = problem.run(problem.federation(), problem.rounds)
    assert last.scores is not None
    tallies = [total(next(iter(score.views.values())).values()) for score in last.scores.values()]
    reached = float(np.mean([tally.accuracy for tally in tallies]))
    words = f"accuracy is only {reached:.1f} % after {problem.rounds} rounds"
    assert reached >= problem.accuracy, words


def resumed_equals_uninterrupted(problem: Problem) -> None:
    """A run that is killed and resumed from its checkpoint ends like one that was never killed."""
    through, kind = problem.uninterrupted, types_of(problem.algorithm).state
    with tempfile.TemporaryDirectory() as directory:
        for stop in {0, len(through) - 2}:
            folder = Path(directory) / f"stop-{stop}"
            federation = problem.federation(memories=folder / "clients")
            # One more round runs than is saved: it must be dropped.
            for done, _ in zip(problem.run(federation, 4), range(stop + 2), strict=False):
                if done.number == through[stop].number:
                    ever = done.ever_answered
                    saved = Checkpoint(done.number, done.state, ever_answered=ever)
                    checkpoint.save(folder, saved)
            latest = checkpoint.latest(folder, kind)
            assert latest is not None
            federation = problem.federation(threads=1, memories=folder / "clients")
            federation.memories.rewind(latest.round_number)
            resume = Round(latest.round_number, latest.state, latest.ever_answered)
            rest = list(problem.run(federation, 4, resume))
            assert same(through[stop + 1 :], rest), (
                f"resumed after round {latest.round_number}, a run ends differently"
            )


def states_survive_a_checkpoint(problem: Problem) -> None:
    """A state survives being saved and loaded."""
    with tempfile.TemporaryDirectory() as directory:
        for number, recorded in enumerate(problem.recorded_rounds, start=1):
            checkpoint.save(Path(directory), Checkpoint(number, recorded.state))
            saved = checkpoint.latest(Path(directory), types_of(problem.algorithm).state)
            assert saved is not None
            assert same((number, recorded.state), (saved.round_number, saved.state)), (
                "a state does not survive its checkpoint"
            )


def an_unseen_client_gets_a_model(problem: Problem) -> None:
    """A client that never took part gets a model."""
    stranger = dataclasses.replace(problem.data.client(0), id=10**6, memory={})
    state = problem.uninterrupted[-1].state
    unseen = problem.federation().evaluate_unseen(state, {stranger.id: stranger})
    assert not unseen.faults, f"an unseen client gets no model: {unseen.faults[stranger.id]}"
    tallies = next(iter(unseen.scores[stranger.id].views.values()))
    assert total(tallies.values()).n == len(stranger.test)


CHECKS: dict[str, Callable[[Problem], None]] = {
    check.__name__: check
    for check in (
        aggregate_changes_none_of_its_arguments,  # first: the others share its rounds
        messages_survive_the_wire,
        equal_seeds_give_equal_runs,
        the_order_of_replies_does_not_matter,
        absurd_numbers_do_no_harm,
        a_toy_task_is_learnt,
        resumed_equals_uninterrupted,
        states_survive_a_checkpoint,
        an_unseen_client_gets_a_model,
    )
}


def check_algorithm(algorithm: AnyAlgorithm, **problem: Any) -> None:
    """Check that an algorithm keeps the contract.

    problem: settings of `Problem`, such as rounds or data.
    """
    stated = Problem(algorithm, **problem)
    for check in CHECKS.values():
        check(stated)


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values are equal, down to every array in them. NaN equals NaN."""
    if isinstance(one, torch.Tensor | np.ndarray):
        a, b = torch.as_tensor(one), torch.as_tensor(other)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not a.is_floating_point():
            return torch.equal(a, b)
        return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if dataclasses.is_dataclass(one):
        fields = [part.name for part in dataclasses.fields(one)]
        pairs = [(getattr(one, name), getattr(other, name, None)) for name in fields]
        return type(one) is type(other) and all(same(a, b, tolerance) for a, b in pairs)
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(same(one[key], other[key], tolerance) for key in one)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        pairs = list(zip(one, other, strict=False))
        return len(one) == len(other) and all(same(a, b, tolerance) for a, b in pairs)
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return one == other or both_nan or abs(one - other) <= tolerance * max(1.0, abs(one))
    return bool(one == other)
