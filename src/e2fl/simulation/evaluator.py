"""Evaluation of many clients without repeating work: each distinct model on each distinct set of
examples, once.
"""

from collections import Counter
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
Piece = tuple[Key, Examples, slice]
Part = tuple[GroupId | None, Examples]


@dataclass(frozen=True)
class Job:
    """One model, and the examples to evaluate it on."""

    model: Params | Mask
    pieces: tuple[Piece, ...]


@dataclass
class Scoreboard:
    """A plan of what must be evaluated, which then holds the results."""

    models: dict[int, Params | Mask] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)  # by model: how often it was planned
    trials: dict[Key, Examples] = field(default_factory=dict)
    tallies: dict[Key, Tally] = field(default_factory=dict)
    # The parts of test sets; keeps the objects alive, since their ids are used as keys.
    parts: dict[int, tuple[Examples, list[Part]]] = field(default_factory=dict)

    def plan(self, client_model: ClientModel, test: Examples) -> None:
        """Plan to evaluate this model on these examples."""
        planned = list(self._trials(client_model, test))
        for _, model, examples in planned:
            self.models[id(model)] = model
            self.trials[id(model), id(examples)] = examples
        self.uses.update({id(model) for _, model, _ in planned})

    def jobs(self) -> Iterator[Job]:
        """Yield the distinct work that was not done yet, in blocks of about equal size."""
        by_model: dict[int, list[Piece]] = {}
        for key, examples in self.trials.items():
            if key in self.tallies:
                continue
            for start in range(0, len(examples), BLOCK):
                rows = slice(start, min(start + BLOCK, len(examples)))
                by_model.setdefault(key[0], []).append((key, examples, rows))
        for model, pieces in by_model.items():
            block: list[Piece] = []
            size = 0
            for piece in pieces:
                block.append(piece)
                size += piece[2].stop - piece[2].start
                if size >= BLOCK:
                    yield Job(self.models[model], tuple(block))
                    block, size = [], 0
            if block:
                yield Job(self.models[model], tuple(block))

    def add(self, job: Job, tallies: list[Tally]) -> None:
        """Add the result of a job; jobs are added in the order they were planned."""
        for (key, _, _), tally in zip(job.pieces, tallies, strict=True):
            self.tallies[key] = total((self.tallies[key], tally)) if key in self.tallies else tally

    def forget_personal(self) -> None:
        """Drop models that were planned once, such as a client's own: they take much memory."""
        personal = {model for model, count in self.uses.items() if count == 1}
        for model in personal:
            del self.models[model], self.uses[model]
        for key in [key for key in self.trials if key[0] in personal]:
            del self.trials[key]
            self.tallies.pop(key, None)

    def result(
        self, client_model: ClientModel, test: Examples, group: GroupId | None
    ) -> Mapping[GroupId, Tally]:
        """Return the result of this model on these examples, by group."""
        usual = NO_GROUP if group is None else group
        # No examples: all counts are 0.
        return {
            usual if inside is None else inside: self.tallies.get(
                (id(model), id(examples)), Tally()
            )
            for inside, model, examples in self._trials(client_model, test)
        }

    def _trials(
        self, client_model: ClientModel, test: Examples
    ) -> Iterator[tuple[GroupId | None, Params | Mask, Examples]]:
        """Yield the groups inside these examples, each with its model; without any, the whole."""
        if id(test) not in self.parts:
            groups = [] if test.group is None else np.unique(test.group).tolist()
            inside: list[Part] = [(group, test.of_group(group)) for group in groups]
            self.parts[id(test)] = (test, [(None, test)] if test.group is None else inside)
        for group, examples in self.parts[id(test)][1]:
            own = client_model.model
            yield group, own if group is None else client_model.by_group.get(group, own), examples


def run_job(job: Job, learner: Learner) -> list[Tally]:
    """Evaluate one job."""
    params = learner.weights_of(job.model)
    tallies = learner.tallies(params, [(examples, rows) for _, examples, rows in job.pieces])
    for place, (_, examples, rows) in enumerate(job.pieces):
        if learner.measures and rows.start == 0:  # of all rows at once: not every measure adds up
            own = learner.own_measures(params, examples)
            tallies[place] = replace(tallies[place], own=own)
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
