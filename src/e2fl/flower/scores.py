"""A client's score as Flower's record. It comes from a client: everything in it is checked here."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

from flwr.app import RecordDict
from pydantic import Field

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.flower.records import Count, Parts, Passes, Values, named, read, require_success
from e2fl.wire import Message

SCORE = "score"  # the record of one client

Value = TypeVar("Value")
Name = Annotated[str, Field(min_length=1, max_length=64)]


class ScoreValues(Values):
    """A score: its views, its groups (the same in every view), and counts for each of both."""

    views: Annotated[list[Name], Field(min_length=1, max_length=16)]
    groups: Annotated[list[int], Field(min_length=1)]
    n: list[Annotated[Count, Field(ge=1)]]
    correct: list[Count]
    loss: list[float]  # infinite or NaN for an honest client whose model diverged
    true_positive: list[Count]
    false_positive: list[Count]
    false_negative: list[Count]
    group: int  # whose model the client was served, or `NO_GROUP`
    grouping_passes: Passes

    def tallies(self) -> list[Tally]:
        """Return the tallies: of each group in the first view, then in the second, and so on."""
        columns = (
            self.n,
            self.correct,
            self.loss,
            self.true_positive,
            self.false_positive,
            self.false_negative,
        )
        cells = len(self.views) * len(self.groups)
        if any(len(column) != cells for column in columns):
            raise WireError(f"a score needs {cells} tallies")
        tallies = [Tally(*row) for row in zip(*columns, strict=True)]
        for tally in tallies:
            wrong = tally.n - tally.correct
            if (
                wrong < 0
                or tally.true_positive > tally.correct
                or tally.false_positive + tally.false_negative > wrong
                or tally.loss < 0
            ):
                raise WireError(f"the counts of a score contradict each other: {tally}")
        return tallies


def score_parts(score: Score) -> Parts:
    """Return a score as a record."""
    groups = sorted(next(iter(score.views.values())))
    tallies = [view[group] for view in score.views.values() for group in groups]
    values = ScoreValues(
        views=list(score.views),
        groups=[int(group) for group in groups],
        n=[int(tally.n) for tally in tallies],
        correct=[int(tally.correct) for tally in tallies],
        loss=[float(tally.loss) for tally in tallies],
        true_positive=[int(tally.true_positive) for tally in tallies],
        false_positive=[int(tally.false_positive) for tally in tallies],
        false_negative=[int(tally.false_negative) for tally in tallies],
        group=NO_GROUP if score.group is None else int(score.group),
        grouping_passes=float(score.passes),
    )
    return {SCORE: values.record()}


def read_score(
    content: RecordDict,
    client_id: ClientId,
    population: Population,
    offered: tuple[GroupId, ...] = (),
) -> Score:
    """Return the score of this client, or raise `WireError` if the client cannot have it.

    offered: the groups the client could be served as (`offered_groups`).
    """
    require_success(content, client_id)
    values = read(ScoreValues, content, named(SCORE, client_id))
    names, groups = values.views, values.groups
    if len(set(names)) != len(names) or not all(name.isprintable() for name in names):
        raise WireError("the views of a score must have different, printable names")
    _require_groups(groups, population, population.declared[client_id])
    # If no groups are offered, an algorithm may still have its own, but not more than clients.
    allowed = offered or range(max(population.groups, len(population)))
    if values.group != NO_GROUP and values.group not in allowed:
        raise WireError(f"a score claims to be served as group {values.group}")
    tallies = iter(values.tallies())
    views = {name: {group: next(tallies) for group in groups} for name in names}
    served_as = None if values.group == NO_GROUP else values.group
    return Score(views, served_as, values.grouping_passes)


def offered_groups(message: Message) -> tuple[GroupId, ...]:
    """Return the groups a client may be served as.

    These are the groups that the message names, or one for each of its models.
    """
    groups = getattr(message, "groups", None)
    if isinstance(groups, tuple):
        return groups
    models = [len(value) for value in vars(message).values() if isinstance(value, tuple)]
    return tuple(range(max(models, default=0)))


def comparable(
    scores: Mapping[ClientId, Score], offered: Mapping[ClientId, tuple[GroupId, ...]]
) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
    """Return the scores that can be compared, and what is wrong with the others.

    All must have the views that most have. Among clients with the same number of groups to choose
    from, either all are served as a group or none is; the majority decides.
    """
    faults: dict[ClientId, str] = {}
    usual_views = _most_common(tuple(score.views) for score in scores.values())
    for client, score in scores.items():
        if tuple(score.views) != usual_views:
            faults[client] = "malformed: the score has other views than those of most clients"
    by_choice: dict[int, list[ClientId]] = {}
    for client in sorted(scores.keys() - faults.keys()):
        by_choice.setdefault(len(offered[client]), []).append(client)
    for clients in by_choice.values():
        usual = _most_common(scores[client].group is not None for client in clients)
        for client in clients:
            if (scores[client].group is not None) != usual:
                what = "no" if usual else "a"
                faults[client] = f"malformed: served as {what} group, unlike most clients"
    kept = {client: score for client, score in scores.items() if client not in faults}
    return kept, dict(sorted(faults.items()))


def _most_common(values: Iterable[Value]) -> Value | None:
    """Return the most common value, the first of those that are equally common."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def _require_groups(groups: list[int], population: Population, declared: GroupId | None) -> None:
    """Raise `WireError` unless a client that declared this group can have these groups."""
    if groups != sorted(set(groups)):
        raise WireError("a score must have each group once and in rising order")
    if declared is not None and groups != [declared]:
        raise WireError(f"a score is for groups {groups[:10]}; the client declared {declared}")
    if groups != [NO_GROUP] and not 0 <= groups[0] <= groups[-1] < population.groups:
        raise WireError(f"a score is for groups {groups[:10]} of {population.groups} groups")
