"""Scores as bytes. They come from clients, so everything in them is checked before it is believed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TypeVar

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.flower.records import refuse_passes
from e2fl.wire import Message

COUNTS = 5  # whole numbers in a tally; its sixth is the summed loss
MOST_VIEWS = 16
LONGEST_NAME = 64

Shape = TypeVar("Shape")


@dataclass(frozen=True)
class ScoreSheet(Message):
    """One client's score: names of the views, then, view by view, the groups and what was counted in each."""

    names: tuple[int, ...]  # UTF-8, a zero after each name
    groups: tuple[int, ...]  # the same in every view
    counts: tuple[int, ...]  # n, correct, true and false positives, false negatives: of each group, in each view
    losses: tuple[float, ...]
    group: int  # that the client was served as, or `NO_GROUP`
    passes: float


def fill(score: Score) -> ScoreSheet:
    """The sheet that says this score."""
    groups = tuple(sorted(next(iter(score.views.values()))))
    tallies = [view[group] for view in score.views.values() for group in groups]
    whole = [(t.n, t.correct, t.true_positive, t.false_positive, t.false_negative) for t in tallies]
    return ScoreSheet(
        names=tuple(byte for name in score.views for byte in (*name.encode(), 0)),
        groups=groups,
        counts=tuple(count for counts in whole for count in counts),
        losses=tuple(tally.loss for tally in tallies),
        group=NO_GROUP if score.group is None else score.group,
        passes=score.passes,
    )


def offered(message: Message) -> tuple[GroupId, ...]:
    """The groups a client may be served as by what it is given: those named there, or one for each of many models."""
    named = getattr(message, "groups", None)
    if isinstance(named, tuple):
        return named
    return tuple(range(max((len(value) for value in vars(message).values() if isinstance(value, tuple)), default=0)))


def read(sheet: ScoreSheet, client: ClientId, population: Population, offer: tuple[GroupId, ...] = ()) -> Score:
    """The score on a sheet that this client may send, or `WireError`. offer: the groups it could choose from."""
    names, groups = _names(sheet.names), sheet.groups
    _check_groups(groups, client, population)
    cells = len(names) * len(groups)
    if len(sheet.losses) != cells or len(sheet.counts) != COUNTS * cells:
        raise WireError(f"a score has {len(sheet.losses)} losses and {len(sheet.counts)} counts for {cells} tallies")
    refuse_passes(sheet.passes)
    # Where there is no choice of models, an algorithm may still have groups of its own; hardly more than clients.
    if sheet.group != NO_GROUP and sheet.group not in (offer or range(max(population.groups, len(population)))):
        raise WireError(f"a score claims to be served as group {sheet.group}")
    tallies = [_tally(sheet.counts[COUNTS * cell : COUNTS * (cell + 1)], sheet.losses[cell]) for cell in range(cells)]
    views = {
        name: dict(zip(groups, tallies[place * len(groups) : (place + 1) * len(groups)], strict=True))
        for place, name in enumerate(names)
    }
    return Score(views, None if sheet.group == NO_GROUP else sheet.group, sheet.passes)


def agreeing(
    scores: Mapping[ClientId, Score], offers: Mapping[ClientId, tuple[GroupId, ...]]
) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
    """The scores that can be compared, and what is wrong with the others.

    They show the same views as most; and of the clients that had a choice of so many groups, all are served as one, or
    none is.
    """
    faults: dict[ClientId, str] = {}
    usual = _usual(tuple(score.views) for score in scores.values())
    for client, score in scores.items():
        if tuple(score.views) != usual:
            faults[client] = "malformed: the score shows other views than most"
    kinds: dict[int, list[ClientId]] = {}
    for client in scores.keys() - faults.keys():
        kinds.setdefault(len(offers[client]), []).append(client)
    for alike in kinds.values():
        grouped = {client: scores[client].group is not None for client in sorted(alike)}
        usually = _usual(grouped.values())
        for client in [client for client, has in grouped.items() if has != usually]:
            faults[client] = f"malformed: served as {'no' if usually else 'a'} group, unlike most"
    return {client: score for client, score in scores.items() if client not in faults}, dict(sorted(faults.items()))


def _usual(values: Iterable[Shape]) -> Shape | None:
    """What there is most of; the first of equals."""
    counted = Counter(values)
    return max(counted, key=lambda value: counted[value]) if counted else None


def _names(raw: Iterable[int]) -> list[str]:
    try:
        text = bytes(raw).decode()
    except ValueError:  # not a byte, or not UTF-8
        raise WireError("a score has views whose names cannot be read") from None
    *names, rest = text.split("\0")
    if rest or not 1 <= len(names) <= MOST_VIEWS or len(set(names)) != len(names):
        raise WireError(f"a score must have 1 to {MOST_VIEWS} views with different names")
    if not all(0 < len(name) <= LONGEST_NAME and name.isprintable() for name in names):
        raise WireError(f"a view's name must be 1 to {LONGEST_NAME} printable characters")
    return names


def _check_groups(groups: tuple[GroupId, ...], client: ClientId, population: Population) -> None:
    if not groups or list(groups) != sorted(set(groups)):
        raise WireError("a score must be of at least one group, each named once")
    declared = population.declared[client]
    if declared is not None and groups != (declared,):
        raise WireError(f"a score is of groups {list(groups)}; its client declared group {declared}")
    if groups != (NO_GROUP,) and not (groups[0] >= 0 and groups[-1] < population.groups):
        raise WireError(f"a score is of groups {list(groups)[:10]}; there are {population.groups}")


def _tally(counts: tuple[int, ...], loss: float) -> Tally:
    n, correct, true_positive, false_positive, false_negative = counts
    tally = Tally(n, correct, loss, true_positive, false_positive, false_negative)
    if not (
        n >= 1
        and min(counts) >= 0
        and true_positive <= correct
        and false_positive + false_negative <= n - correct
        # A loss may be infinite or no number: a client whose model went astray fares badly, it does not lie.
        and not loss < 0
    ):
        raise WireError(f"a score counts what cannot be: {astuple(tally)}")
    return tally
