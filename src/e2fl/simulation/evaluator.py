"""Evaluation of many clients without repeating work: each distinct model on each distinct set of
examples, once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby

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


@dataclass(frozen=True)
class ClientEvaluation:
    """What a client evaluates: its models, on these examples."""

    models: ClientModels
    test: Examples
    group: GroupId | None  # of the client
    passes: float = 0.0  # that it spent to find its group
    validation: Examples | None = None


@dataclass
class Scoreboard:
    """A plan of what must be evaluated, which then holds the results."""

    models: dict[int, Params | Mask] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)  # by model: how many clients use it
    work: dict[Key, Examples] = field(default_factory=dict)
    tallies: dict[Key, Tally] = field(default_factory=dict)
    # The parts of test sets; keeps the objects alive, since their ids are used as keys.
    parts: dict[int, tuple[Examples, list[Part]]] = field(default_factory=dict)

    def plan(self, trial: ClientEvaluation) -> None:
        """Plan what this client evaluates."""
        used: dict[int, Params | Mask] = {}
        for client_model in trial.models.views.values():
            for examples in (trial.test, trial.validation):
                for _, model, part in self._parts(client_model, examples) if examples else ():
                    used[id(model)] = model
                    self.work[id(model), id(part)] = part
        self.models |= used
        self.uses.update(used.keys())

    def jobs(self) -> Iterator[Job]:
        """Yield the distinct work that was not done yet, in blocks of about equal size."""
        by_model: dict[int, list[Piece]] = {}
        for key, examples in self.work.items():
            if key not in self.tallies:
                for start in range(0, len(examples), BLOCK):
                    rows = slice(start, min(start + BLOCK, len(examples)))
                    by_model.setdefault(key[0], []).append((key, examples, rows))
        for model, pieces in by_model.items():
            ends = accumulate(rows.stop - rows.start for _, _, rows in pieces)
            blocks = groupby(zip(ends, pieces, strict=True), lambda piece: (piece[0] - 1) // BLOCK)
            for _, block in blocks:
                yield Job(self.models[model], tuple(piece for _, piece in block))

    def add(self, job: Job, tallies: list[Tally]) -> None:
        """Add the result of a job; jobs are added in the order they were planned."""
        for (key, _, _), tally in zip(job.pieces, tallies, strict=True):
            self.tallies[key] = total((self.tallies[key], tally)) if key in self.tallies else tally

    def score(self, trial: ClientEvaluation) -> Score:
        """Return the score of a client, of whose work all was done."""
        known = trial.validation
        validation = None if known is None else self._views(trial, known)
        return Score(self._views(trial, trial.test), trial.models.group, trial.passes, validation)

    def forget_personal(self) -> None:
        """Drop models that one client used, such as its own: they take much memory."""
        personal = {model for model, count in self.uses.items() if count == 1}
        for model in personal:
            del self.models[model], self.uses[model]
        for key in [key for key in self.work if key[0] in personal]:
            del self.work[key]
            self.tallies.pop(key, None)

    def _views(
        self, trial: ClientEvaluation, examples: Examples
    ) -> dict[str, Mapping[GroupId, Tally]]:
        """Return the result of each view on these examples, by group."""
        usual = NO_GROUP if trial.group is None else trial.group
        # No examples: all counts are 0.
        return {
            name: {
                usual if group is None else group: self.tallies.get((id(model), id(part)), Tally())
                for group, model, part in self._parts(client_model, examples)
            }
            for name, client_model in trial.models.views.items()
        }

    def _parts(
        self, client_model: ClientModel, examples: Examples
    ) -> Iterator[tuple[GroupId | None, Params | Mask, Examples]]:
        """Yield the groups inside these examples, each with its model; without any, the whole."""
        if id(examples) not in self.parts:
            groups = [] if examples.group is None else np.unique(examples.group).tolist()
            inside: list[Part] = [(group, examples.of_group(group)) for group in groups]
            whole: list[Part] = [(None, examples)]
            self.parts[id(examples)] = examples, whole if examples.group is None else inside
        for group, part in self.parts[id(examples)][1]:
            own = client_model.model
            yield group, own if group is None else client_model.by_group.get(group, own), part


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
    trial = ClientEvaluation(models, client.test, client.group, learner.meter.grouping_passes)
    board.plan(trial)
    for job in board.jobs():
        board.add(job, run_job(job, learner))
    return board.score(trial)
