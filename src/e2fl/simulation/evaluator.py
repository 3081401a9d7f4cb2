"""Evaluation of many clients without repeating work: each distinct model on each distinct set of
examples, once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from e2fl.algorithms import ClientModel, ClientModels
from e2fl.data.federated import Client, Examples, GroupId
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.rankings.order import Mask

# Examples scored at a time; fixed, so that sums of losses are the same on every machine.
BLOCK = 2000

Key = tuple[int, int]  # of a model object and an examples object


@dataclass(frozen=True)
class Job:
    """One model, and the examples to evaluate it on."""

    model: Params | Mask
    pieces: tuple[tuple[Key, Examples, slice], ...]


@dataclass
class Scoreboard:
    """A plan of what must be evaluated, which then holds the results."""

    models: dict[int, Params | Mask] = field(default_factory=dict)
    trials: dict[Key, Examples] = field(default_factory=dict)
    parts: dict[int, list[tuple[GroupId | None, Examples]]] = field(default_factory=dict)
    tallies: dict[Key, Tally] = field(default_factory=dict)
    # Keeps the objects alive, since their ids are used as keys.
    kept: list[Examples] = field(default_factory=list)

    def plan(self, client_model: ClientModel, test: Examples) -> None:
        """Plan to evaluate this model on these examples."""
        for group, examples in self._split(test):
            model = (
                client_model.model
                if group is None
                else client_model.by_group.get(group, client_model.model)
            )
            self.models[id(model)] = model
            self.trials[id(model), id(examples)] = examples

    def jobs(self) -> Iterator[Job]:
        """Yield the distinct work, in blocks of about equal size."""
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

    def add(self, job: Job, found: list[Tally]) -> None:
        """Add the result of a job; jobs are added in the order they were planned."""
        for (key, _, _), tally in zip(job.pieces, found, strict=True):
            self.tallies[key] = total((self.tallies[key], tally)) if key in self.tallies else tally

    def result(
        self, client_model: ClientModel, test: Examples, group: GroupId | None
    ) -> Mapping[GroupId, Tally]:
        """Return the result of this model on these examples, by group."""
        found: dict[GroupId, Tally] = {}
        for inside, examples in self._split(test):
            model = (
                client_model.model
                if inside is None
                else client_model.by_group.get(inside, client_model.model)
            )
            place = inside if inside is not None else NO_GROUP if group is None else group
            # No examples: all counts are 0.
            found[place] = self.tallies.get((id(model), id(examples)), Tally())
        return found

    def _split(self, test: Examples) -> list[tuple[GroupId | None, Examples]]:
        """Split the examples by the groups inside them; without such groups, return them whole."""
        if id(test) not in self.parts:
            self.kept.append(test)
            if test.group is None:
                self.parts[id(test)] = [(None, test)]
            else:
                self.parts[id(test)] = [
                    (int(group), test.of_group(int(group))) for group in np.unique(test.group)
                ]
        return self.parts[id(test)]


def run_job(job: Job, learner: Learner) -> list[Tally]:
    """Evaluate one job."""
    params = learner.weights_of(job.model)
    tallies = []
    for _, examples, rows in job.pieces:
        tally = learner.tally(params, examples, rows)
        if learner.measures and rows.start == 0:  # of all rows at once: not every measure adds up
            tally = replace(tally, own=learner.own_measures(params, examples))
        tallies.append(tally)
    return tallies


def score_alone(models: ClientModels, client: Client, learner: Learner) -> Score:
    """Evaluate the models of a single client; the same, to the bit, as together with others."""
    board = Scoreboard()
    for model in models.views.values():
        board.plan(model, client.test)
    for job in board.jobs():
        board.add(job, run_job(job, learner))
    views = {
        name: board.result(model, client.test, client.group) for name, model in models.views.items()
    }
    return Score(views, models.group, learner.meter.grouping_passes)
