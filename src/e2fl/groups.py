"""How many groups are there? Rank clustering over several numbers of groups, and what to make of it.

Every client trains once from the start, as the preparation of rank clustering asks, and its ballot is clustered into
2, 3 and more groups. Two figures tell a good number: different starts should agree (stability), and clients should be
nearer to their own group than to the next one (silhouette). Both are compared with ballots in which every edge's ranks
were dealt out anew among the clients: what groups look like where there are none.

Where clients declare groups, it is also told how far those are found, by what is kept and by a start on average.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from e2fl import compiled, metrics
from e2fl.algorithms.e2fl import E2FL, FirstRankings
from e2fl.data.federated import ClientId, FederatedData, GroupId
from e2fl.errors import ConfigError, RunError
from e2fl.experiment import Experiment
from e2fl.grouping import RankClustering
from e2fl.grouping.rank_clustering import Attempt, stability
from e2fl.grouping.table import Table
from e2fl.randomness import stream
from e2fl.ranking import Ranking
from e2fl.simulator import Simulated
from e2fl.tables import aligned

STEADY = 0.3  # agreement between starts from which on groups are more than an accident of the start
CLEAR = 0.01  # by how much a silhouette must exceed that of ballots without groups
FIRM = 0.8  # agreement between starts that leaves little to chance
STARTS = 3  # at least; one start alone agrees with itself
JUDGES = 400  # clients that silhouettes are taken over, at most; drawn evenly


@dataclass(frozen=True)
class Agreement:
    """Percent of clients in the group they declare, of the clustering that is kept and on average over all starts."""

    matched: float  # found groups matched with declared ones one to one
    purity: float  # each found group taken for the declared one most of it is of
    mean_matched: float
    mean_purity: float


@dataclass(frozen=True)
class Row:
    """One number of groups."""

    groups: int
    stability: float  # agreement between starts: 1 is full, 0 is chance
    silhouette: float  # -1 to 1: how much nearer clients are to their own group than to the next
    chance_stability: float  # the same where there are no groups
    chance_silhouette: float
    smallest: int  # clients of the smallest group
    cost: float  # the mean distance of a client to its group's centroid, as a fraction of that for one group
    agreement: Agreement | None = None  # with the groups clients declare, if they do

    @property
    def clear(self) -> bool:
        steady = self.stability >= max(STEADY, self.chance_stability + STEADY / 2)
        return steady and self.gain >= CLEAR

    @property
    def gain(self) -> float:
        """How much better than chance."""
        return self.silhouette - self.chance_silhouette


@dataclass(frozen=True)
class Survey:
    """What was found for each number of groups."""

    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The number of groups that fits best, or None where no groups are clear."""
        clear = [row for row in self.rows if row.clear]
        # The better groups are told apart, and the less they depend on the start, the better.
        return max(clear, key=lambda row: (row.gain * row.stability, -row.groups)) if clear else None

    def table(self) -> str:
        """One line for each number of groups."""
        head = ["", "stability", "", "silhouette", "", "", ""]
        names = ["groups", "found", "by chance", "found", "by chance", "smallest group", "cost"]
        if self.rows[0].agreement:
            head += ["as declared, %", "", "mean start, %", ""]
            names += ["matched", "purity", "matched", "purity"]
        return aligned([names, *(self._cells(row) for row in self.rows)], head)

    def _cells(self, row: Row) -> list[str]:
        cells = [
            f"{row.groups}{' *' if row == self.best else ''}",
            f"{row.stability:.2f}",
            f"{row.chance_stability:.2f}",
            f"{row.silhouette:.3f}",
            f"{row.chance_silhouette:.3f}",
            str(row.smallest),
            f"{row.cost:.3f}",
        ]
        if known := row.agreement:
            cells += [f"{value:.1f}" for value in (known.matched, known.purity, known.mean_matched, known.mean_purity)]
        return cells

    def advice(self) -> str:
        """What to do, in plain words."""
        best = self.best
        if best is None:
            return (
                "Warning: these groups look like noise. With no number of groups do different starts agree "
                f"(stability of at least {STEADY}) and clients stand clearly nearer to their own group than chance "
                f"would have it (a silhouette higher by {CLEAR}). Use one group (algorithm frl), or let clients train "
                "longer first (learner.epochs)."
            )
        text = (
            f'Use {best.groups} groups: grouping = {{ name = "rank_clustering", groups = {best.groups} }}. '
            f"Clients stand clearly nearer to their own group than chance would have it, and different starts agree to "
            f"{best.stability:.2f}."
        )
        if best.stability < FIRM:
            text += " That is not much: keep many starts (restarts), and read the groups as a tendency."
        if best.smallest < 5:
            text += f" The smallest group is very small ({best.smallest})."
        return text


def survey(
    experiment: Experiment,
    first: int,
    last: int,
    *,
    data: FederatedData | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Survey:
    """Cluster the ballots of every client into `first` to `last` groups.

    How rankings are compared (layers, restarts and so on) is what the experiment's own rank clustering says, if it
    has one.
    """
    if not 2 <= first <= last:
        raise ConfigError(f"--from must be at least 2, and --to not less than it; not {first} and {last}")
    data = data or experiment.build_data()
    if last >= len(data.roll):
        raise ConfigError(f"--to is {last}, but there are only {len(data.roll)} clients; there must be fewer groups")
    clustering = _clustering(experiment)
    clustering = replace(clustering, groups=last, restarts=max(STARTS, clustering.restarts))
    tell(f"training {len(data.roll)} clients once")
    ballots = collect(experiment, clustering, data)
    if last >= len(ballots):
        raise RunError(f"only {len(ballots)} clients sent a ballot; --to {last} asks for as many groups or more")
    tell(f"comparing {len(ballots)} ballots")
    table = clustering.table(ballots, experiment.seed)
    without = clustering.table(Shuffled(table, experiment.seed), experiment.seed)
    judges = np.sort(stream(experiment.seed, "judges").permutation(len(table))[:JUDGES])
    distances, by_chance = (some.pairwise(judges.tolist())[judges] for some in (table, without))
    declared = [data.roll.declared[client] for client in table.clients]
    alone = next(clustering.attempts(table, 1, experiment.seed)).cost
    rows = []
    for groups in range(first, last + 1):
        tell(f"clustering into {groups} groups")
        attempts = list(clustering.attempts(table, groups, experiment.seed))
        kept = clustering.best(attempts)
        chance = list(replace(clustering, restarts=STARTS).attempts(without, groups, experiment.seed))
        accident = clustering.best(chance)
        rows.append(
            Row(
                groups,
                stability(attempts),
                silhouette(distances, kept.assigned[judges]),
                stability(chance),
                silhouette(by_chance, accident.assigned[judges]),
                int(np.bincount(kept.assigned, minlength=groups).min()),
                kept.cost / alone if alone else 1.0,
                _agreement(kept, attempts, declared),
            )
        )
    tell("done")
    return Survey(tuple(rows))


def _agreement(kept: Attempt, attempts: Sequence[Attempt], declared: Sequence[GroupId | None]) -> Agreement | None:
    true = [group for group in declared if group is not None]
    if len(true) < len(declared):
        return None  # somebody's group is not known
    return Agreement(
        metrics.matched(kept.assigned, true),
        metrics.purity(kept.assigned, true),
        float(np.mean([metrics.matched(attempt.assigned, true) for attempt in attempts])),
        float(np.mean([metrics.purity(attempt.assigned, true) for attempt in attempts])),
    )


def collect(experiment: Experiment, clustering: RankClustering, data: FederatedData) -> Mapping[ClientId, Ranking]:
    """One ballot of every client, as before the first round of E2FL with rank clustering."""
    algorithm = E2FL(grouping=clustering)
    model = experiment.build_model(data)
    federation = Simulated(data, algorithm, experiment.build_learner(model), threads=experiment.threads)
    state = algorithm.start(model, data.roll, experiment.seed)
    replies = federation.train(0, algorithm.broadcast(state, data.roll.ids))
    if len(replies.answers) < 3:
        raise RunError(f"only {len(replies.answers)} clients sent a ballot; there is nothing to cluster")
    return FirstRankings(replies.answers)  # type: ignore[arg-type]  # E2FL's replies are ballots


def silhouette(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """The mean silhouette: (b - a) / max(a, b), with a the mean distance to the own group, b to the nearest other.

    distances: [clients, clients]. A client alone in its group counts 0; so does everything if there is one group.
    """
    names, group = np.unique(assigned, return_inverse=True)
    if len(names) < 2:
        return 0.0
    member = np.eye(len(names))[group]  # [clients, groups]
    sizes = member.sum(axis=0)
    sums = distances @ member
    rows = np.arange(len(group))
    own = sums[rows, group] / np.maximum(sizes[group] - 1, 1)
    means = sums / sizes
    means[rows, group] = np.inf
    other = means.min(axis=1)
    largest = np.maximum(own, other)
    values = np.divide(other - own, largest, out=np.zeros_like(own), where=largest > 0)
    return float(np.where(sizes[group] > 1, values, 0.0).mean())


class Shuffled(Mapping[ClientId, Ranking]):
    """The same ballots, with the ranks of every edge dealt out anew among the clients: no groups are left in them.

    Neighbouring edges are dealt out together, and what a client gets is ranked again.
    """

    def __init__(self, table: Table, seed: int, blocks: int = 64):
        self.table = table
        self.places = {client: place for place, client in enumerate(table.clients)}
        self.deals = [stream(seed, "shuffled edges", block).permutation(len(table)) for block in range(blocks)]

    def __getitem__(self, client: ClientId) -> Ranking:
        place = self.places[client]
        return {view.layer: self._dealt(view.layer, place) for view in self.table.views}

    def _dealt(self, layer: str, place: int) -> NDArray[np.int32]:
        rows = self.table.rows[layer]
        cuts = np.linspace(0, rows.shape[1], len(self.deals) + 1).astype(int).tolist()
        pieces = [
            rows.piece(int(deal[place]), start, stop)
            for deal, (start, stop) in zip(self.deals, pairwise(cuts), strict=True)
        ]
        return compiled.rank_of_sums(np.concatenate(pieces).astype(np.int64))

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.table.clients)

    def __len__(self) -> int:
        return len(self.table)


def _clustering(experiment: Experiment) -> RankClustering:
    algorithm = experiment.build_algorithm()
    grouping = getattr(algorithm, "grouping", None)
    return grouping if isinstance(grouping, RankClustering) else RankClustering()
