"""Scoring many clients without doing equal work twice: each distinct model on each distinct set of examples, once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from e2fl.algorithms import ClientModel, ClientModels
from e2fl.data.federated import Client, Examples, GroupId
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.ranking import Mask

BLOCK = 2000  # examples scored at a time; fixed, so that sums of losses are the same on every machine

Key = tuple[int, int]  # of a model object and an examples object


@dataclass(frozen=True)
class Job:
    """One model, and pieces of examples to try it on."""

    model: Params | Mask
    pieces: tuple[tuple[Key, Examples, slice], ...]


@dataclass
class Scoreboard:
    """Plans what must be scored, then holds what came out."""

    models: dict[int, Params | Mask] = field(default_factory=dict)
    trials: dict[Key, Examples] = field(default_factory=dict)
    parts: dict[int, list[tuple[GroupId | None, Examples]]] = field(default_factory=dict)
    tallies: dict[Key, Tally] = field(default_factory=dict)
    kept: list[Examples] = field(default_factory=list)  # an id is an identity only while its object lives

    def plan(self, use: ClientModel, test: Examples) -> None:
        """Note that this will be asked for."""
        for group, examples in self._split(test):
            model = use.model if group is None else use.by_group.get(group, use.model)
            self.models[id(model)] = model
            self.trials[id(model), id(examples)] = examples

    def jobs(self) -> Iterator[Job]:
        """The distinct work, in blocks of about equal size."""
        by_model: dict[int, list[tuple[Key, Examples, slice]]] = {}
        for key, examples in self.trials.items():
            pieces = by_model.setdefault(key[0], [])
            for start in range(0, len(examples), BLOCK):
                pieces.append((key, examples, slice(start, min(start + BLOCK, len(examples)))))
        for model, pieces in by_model.items():
            block: list[tuple[Key, Examples, slice]] = []
            size = 0
            for piece in pieces:
                block.append(piece)
                size += piece[2].stop - piece[2].start
                if size >= BLOCK:
                    yield Job(self.models[model], tuple(block))
                    block, size = [], 0
            if block:
                yield Job(self.models[model], tuple(block))

    def settle(self, job: Job, found: list[Tally]) -> None:
        """Take in what a job counted; jobs are settled in the order they were planned."""
        for (key, _, _), tally in zip(job.pieces, found, strict=True):
            self.tallies[key] = total((self.tallies[key], tally)) if key in self.tallies else tally

    def result(self, use: ClientModel, test: Examples, group: GroupId | None) -> Mapping[GroupId, Tally]:
        """How this use fares on these examples, by group."""
        found: dict[GroupId, Tally] = {}
        for inside, examples in self._split(test):
            model = use.model if inside is None else use.by_group.get(inside, use.model)
            place = inside if inside is not None else NO_GROUP if group is None else group
            found[place] = self.tallies.get((id(model), id(examples)), Tally())  # no examples, nothing counted
        return found

    def _split(self, test: Examples) -> list[tuple[GroupId | None, Examples]]:
        """The examples of each group that lies inside them, or all as they are."""
        if id(test) not in self.parts:
            self.kept.append(test)
            if test.group is None:
                self.parts[id(test)] = [(None, test)]
            else:
                self.parts[id(test)] = [(int(group), test.of_group(int(group))) for group in np.unique(test.group)]
        return self.parts[id(test)]


def do(job: Job, learner: Learner) -> list[Tally]:
    """Count what a job asks for."""
    params = learner.weights_of(job.model)
    return [learner.tally(params, examples, rows) for _, examples, rows in job.pieces]


def score_alone(uses: ClientModels, client: Client, learner: Learner) -> Score:
    """What one client counts when it tries its models by itself; the same, to the bit, as in company."""
    board = Scoreboard()
    for use in uses.views.values():
        board.plan(use, client.test)
    for job in board.jobs():
        board.settle(job, do(job, learner))
    views = {name: board.result(use, client.test, client.group) for name, use in uses.views.items()}
    return Score(views, uses.group, learner.meter.grouping_passes)
