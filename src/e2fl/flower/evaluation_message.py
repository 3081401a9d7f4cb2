"""A client's score as a message. It comes from a client, so everything in it is checked before it is used."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TypeVar

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.flower.records import require_passes
from e2fl.wire import Message

COUNTS = 5  # integers in a tally; its sixth value is the summed loss
MAX_VIEWS = 16
MAX_NAME = 64

Value = TypeVar("Value")


@dataclass(frozen=True)
class EvaluationMessage(Message):
    """The score of one client: the names of its views, and a tally for each view and group."""

    names: tuple[int, ...]  # UTF-8, each name followed by a zero
    groups: tuple[int, ...]  # the same in every view
    counts: tuple[int, ...]  # n, correct, true and false positives, false negatives: of each group, in each view
    losses: tuple[float, ...]
    group: int  # whose model the client was served, or `NO_GROUP`
    grouping_passes: float

    @classmethod
    def from_score(cls, score: Score) -> "EvaluationMessage":
        """Return the message that carries this score."""
        groups = tuple(sorted(next(iter(score.views.values()))))
        tallies = [view[group] for view in score.views.values() for group in groups]
        integers = [(t.n, t.correct, t.true_positive, t.false_positive, t.false_negative) for t in tallies]
        return cls(
            names=tuple(byte for name in score.views for byte in (*name.encode(), 0)),
            groups=groups,
            counts=tuple(count for counts in integers for count in counts),
            losses=tuple(tally.loss for tally in tallies),
            group=NO_GROUP if score.group is None else score.group,
            grouping_passes=score.passes,
        )

    def to_score(self, client_id: ClientId, population: Population, offered: tuple[GroupId, ...] = ()) -> Score:
        """Return the score, or raise `WireError` if this client cannot have it.

        offered: the groups the client could be served as (`offered_groups`).
        """
        names, groups = _names(self.names), self.groups
        _check_groups(groups, client_id, population)
        cells = len(names) * len(groups)
        if len(self.losses) != cells or len(self.counts) != COUNTS * cells:
            raise WireError(f"a score has {len(self.losses)} losses and {len(self.counts)} counts for {cells} tallies")
        require_passes(self.grouping_passes)
        # If no groups are offered, an algorithm may still have its own, but not more than there are clients.
        if self.group != NO_GROUP and self.group not in (offered or range(max(population.groups, len(population)))):
            raise WireError(f"a score claims to be served as group {self.group}")
        tallies = [_tally(self.counts[COUNTS * cell : COUNTS * (cell + 1)], self.losses[cell]) for cell in range(cells)]
        views = {
            name: dict(zip(groups, tallies[place * len(groups) : (place + 1) * len(groups)], strict=True))
            for place, name in enumerate(names)
        }
        return Score(views, None if self.group == NO_GROUP else self.group, self.grouping_passes)


def offered_groups(message: Message) -> tuple[GroupId, ...]:
    """Return the groups a client may be served as: those the message names, or one for each of its models."""
    named = getattr(message, "groups", None)
    if isinstance(named, tuple):
        return named
    return tuple(range(max((len(value) for value in vars(message).values() if isinstance(value, tuple)), default=0)))


def comparable(
    scores: Mapping[ClientId, Score], offered: Mapping[ClientId, tuple[GroupId, ...]]
) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
    """Return the scores that can be compared, and what is wrong with the others.

    All must have the views that most have. Among clients with the same number of groups to choose from, either all are
    served as a group or none is; the majority decides.
    """
    faults: dict[ClientId, str] = {}
    usual_views = _most_common(tuple(score.views) for score in scores.values())
    for client, score in scores.items():
        if tuple(score.views) != usual_views:
            faults[client] = "malformed: the score has other views than those of most clients"
    by_choice: dict[int, list[ClientId]] = {}
    for client in scores.keys() - faults.keys():
        by_choice.setdefault(len(offered[client]), []).append(client)
    for clients in by_choice.values():
        grouped = {client: scores[client].group is not None for client in sorted(clients)}
        usually = _most_common(grouped.values())
        for client in [client for client, has_group in grouped.items() if has_group != usually]:
            faults[client] = f"malformed: served as {'no' if usually else 'a'} group, unlike most clients"
    return {client: score for client, score in scores.items() if client not in faults}, dict(sorted(faults.items()))


def _most_common(values: Iterable[Value]) -> Value | None:
    """Return the most common value, the first of those that are equally common; None if there is none."""
    counted = Counter(values)
    return max(counted, key=lambda value: counted[value]) if counted else None


def _names(raw: Iterable[int]) -> list[str]:
    try:
        text = bytes(raw).decode()
    except ValueError:  # not a byte, or not UTF-8
        raise WireError("the names of a score's views are not UTF-8") from None
    *names, rest = text.split("\0")
    if rest or not 1 <= len(names) <= MAX_VIEWS or len(set(names)) != len(names):
        raise WireError(f"a score must have 1 to {MAX_VIEWS} views with different names")
    if not all(0 < len(name) <= MAX_NAME and name.isprintable() for name in names):
        raise WireError(f"the name of a view must have 1 to {MAX_NAME} printable characters")
    return names


def _check_groups(groups: tuple[GroupId, ...], client_id: ClientId, population: Population) -> None:
    if not groups or list(groups) != sorted(set(groups)):
        raise WireError("a score must have at least one group, each once and in rising order")
    declared = population.declared[client_id]
    if declared is not None and groups != (declared,):
        raise WireError(f"a score is for groups {list(groups)[:10]}; the client declared group {declared}")
    if groups != (NO_GROUP,) and not (groups[0] >= 0 and groups[-1] < population.groups):
        raise WireError(f"a score is for groups {list(groups)[:10]}; there are {population.groups} groups")


def _tally(counts: tuple[int, ...], loss: float) -> Tally:
    n, correct, true_positive, false_positive, false_negative = counts
    tally = Tally(n, correct, loss, true_positive, false_positive, false_negative)
    if not (
        n >= 1
        and min(counts) >= 0
        and true_positive <= correct
        and false_positive + false_negative <= n - correct
        # An infinite or NaN loss is accepted: that of an honest client whose model diverged.
        and not loss < 0
    ):
        raise WireError(f"the counts of a score contradict each other: {astuple(tally)}")
    return tally
