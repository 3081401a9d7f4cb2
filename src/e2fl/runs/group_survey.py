"""How many groups are there? Rank clustering for several numbers of groups, and which number fits.

Every client trains once from the start, as rank clustering prepares, and its ballot is clustered
into 2, 3 and more groups. Three measures indicate a good number: the same groups are found without
a quarter of the clients (stability), few clients lie between two groups (blur), and clients are
nearer to their own group than to the next (silhouette). Blur is compared with that of a reference
cloud with the same covariance and no groups, cut into as many pieces.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from e2fl import metrics
from e2fl.algorithms.e2fl import E2FL
from e2fl.config.experiment import Experiment
from e2fl.config.from_python import section_of
from e2fl.data.federated import ClientId, FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.grouping import Grouping, RankClustering
from e2fl.grouping.rank_clustering import Pairs, cheapest, first_rankings, kmeans, stability
from e2fl.grouping.separation import blur, cloud, pieces, silhouette
from e2fl.metrics.accuracy import MIN_STABILITY
from e2fl.randomness import stream
from e2fl.rankings.order import Ranking
from e2fl.rounds import Server
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.text import aligned

MAX_RELATIVE_BLUR = 0.5  # of clear groups, as a fraction of the blur of a reference cloud
NEARLY_BEST = 0.99  # a silhouette this close to the highest counts as equal: fewer groups then
AS_STABLE = 0.01  # a stability this close to another one counts as equal
FIRM_STABILITY = 0.8  # minimum stability for groups to be reported without a caveat
BLUR_CLIENTS = 400  # blur is computed over at most this many clients, drawn uniformly
CLOUDS = 5  # reference clouds drawn, for the mean of their blur


@dataclass(frozen=True)
class Row:
    """One number of groups."""

    groups: int
    stability: float  # agreement with what a quarter fewer clients give: 1 is full, 0 is chance
    silhouette: float  # -1 to 1: how much nearer clients are to their own group than to the next
    blur: float  # 0 to 1: how far clients lie from the centre of their group towards the next
    cloud: float  # the blur of a reference cloud cut into as many pieces
    smallest: int  # clients of the smallest group
    cost: float  # mean distance of a client to its group's centroid, relative to one group
    matched: float | None = None  # percentage of clients in the group they declare, one to one
    purity: float | None = None  # the same; a found group stands for that of most of its members

    @property
    def clear(self) -> bool:
        return self.stability >= MIN_STABILITY and self.blur <= MAX_RELATIVE_BLUR * self.cloud


@dataclass(frozen=True)
class Survey:
    """The measures for each number of groups."""

    rows: tuple[Row, ...]
    # Its settings; its number of groups is not used.
    clustering: RankClustering = field(default_factory=RankClustering)

    @property
    def best(self) -> Row | None:
        """The number of groups that fits best, or None if no groups are clear."""
        return min(self.flat, key=lambda row: row.groups, default=None)

    @property
    def flat(self) -> list[Row]:
        """The clear numbers of groups whose silhouettes hardly differ from the highest."""
        clear = [row for row in self.rows if row.clear]
        highest = max((row.silhouette for row in clear), default=0.0)
        return [row for row in clear if row.silhouette >= NEARLY_BEST * highest]

    def table(self) -> str:
        """Return one line for each number of groups; a star marks the best."""
        head = ["", "", "", "blur", "", "", "", "as declared, %"]
        titles = (
            "groups",
            "stability",
            "silhouette",
            "found",
            "of a cloud",
            "smallest group",
            "cost",
        )
        lines = [[*titles, "matched", "purity"]]
        for row in self.rows:
            cells = [f"{row.groups}{' *' if row == self.best else ''}"]
            cells += [f"{row.stability:.2f}", f"{row.silhouette:.3f}", f"{row.blur:.2f}"]
            cells += [f"{row.cloud:.2f}", f"{row.smallest}", f"{row.cost:.3f}"]
            shares = [share for share in (row.matched, row.purity) if share is not None]
            lines.append(cells + [f"{share:.1f}" for share in shares])
        shown = len(lines[1])
        return aligned([line[:shown] for line in lines], head[:shown])

    def advice(self) -> str:
        """Return a recommendation, as text."""
        best = self.best
        if best is None:
            return (
                "Warning: these groups look like noise. No number of groups is both stable without "
                f"a quarter of the clients (at least {MIN_STABILITY}) and clearly separated (a "
                f"blur of at most {MAX_RELATIVE_BLUR} times that of a reference cloud). Use one "
                "group (algorithm frl), or let clients train longer first (learner.epochs)."
            )
        text = (
            f"Use {best.groups} groups: grouping = {self.grouping(best.groups)}. Few clients lie "
            "between groups, and the groups found without a quarter of the clients agree to "
            f"{best.stability:.2f}."
        )
        if best.stability < FIRM_STABILITY:
            text += " That is low: treat these groups with caution."
        if best.smallest < 5:
            text += f" The smallest group is very small ({best.smallest})."
        last = max(self.flat, key=lambda row: row.groups)
        if last != best:
            text += (
                f" Silhouettes are flat from {best.groups} to {last.groups} groups, so the number "
                "is uncertain: fewer groups hide small ones."
            )
        stable = [row for row in self.flat if row.stability >= best.stability - AS_STABLE]
        most = max(stable, key=lambda row: row.groups)
        if most != best:
            text += (
                f" {most.groups} groups are as stable ({most.stability:.2f}); to keep small groups "
                f"apart: grouping = {self.grouping(most.groups)}."
            )
        return text

    def grouping(self, groups: int) -> str:
        """Return the settings of this clustering that differ from the defaults, as TOML."""
        name = {"name": "rank_clustering", "groups": groups}
        settings = name | section_of(self.clustering, "grouping") | name
        words = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        return f"{{ {', '.join(words)} }}"


def survey(
    experiment: Experiment,
    first: int,
    last: int,
    *,
    data: FederatedData | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Survey:
    """Cluster the ballots of every client into `first` to `last` groups.

    Rankings are compared (layers, restarts and so on) as the experiment's own rank clustering does,
    if it has one.
    """
    if not 2 <= first <= last:
        raise ConfigError(
            f"--from must be at least 2, and --to not less than it; not {first} and {last}"
        )
    data = experiment.build_data() if data is None else data.for_seed(experiment.seed)
    if last >= len(data.population):
        raise ConfigError(f"--to must be less than the {len(data.population)} clients, not {last}")
    grouping: Grouping | None = getattr(experiment.build_algorithm(), "grouping", None)
    own = None if grouping is None else grouping.clustering()
    clustering = replace(own or RankClustering(), groups=last)
    tell(f"training {len(data.population)} clients once")
    ballots = collect(experiment, clustering, data)
    if last >= len(ballots):
        raise RunError(f"only {len(ballots)} clients sent a ballot; --to must be less")
    tell(f"comparing {len(ballots)} ballots")
    seed = experiment.seed
    table = clustering.table(ballots, seed)
    pairs = Pairs.of(table, seed)
    sampled = np.sort(stream(seed, "judges").permutation(len(pairs.places))[:BLUR_CLIENTS])
    distances = pairs.distances[np.ix_(sampled, sampled)]
    clouds = [cloud(distances, stream(seed, "cloud", number)) for number in range(CLOUDS)]
    declared = [data.population.declared[client] for client in table.clients]
    centre = table.vote(np.zeros(len(table), dtype=np.int64), table.take([0]))
    alone = kmeans(table, centre, 1).cost
    rows = []
    for groups in range(first, last + 1):
        tell(f"clustering into {groups} groups")
        kept = cheapest(clustering.results(table, groups, seed, pairs))
        assigned = kept.assigned[pairs.places]
        row = Row(
            groups,
            stability(pairs, kept, groups, seed),
            silhouette(pairs.distances, assigned),
            blur(distances, assigned[sampled]),
            float(np.mean([blur(drawn, pieces(drawn, groups)) for drawn in clouds])),
            int(np.bincount(kept.assigned, minlength=groups).min()),
            kept.cost / alone if alone else 1.0,
        )
        if None not in declared:
            both = kept.assigned, declared
            row = replace(row, matched=metrics.matched(*both), purity=metrics.purity(*both))
        rows.append(row)
    tell("done")
    return Survey(tuple(rows), clustering)


def collect(
    experiment: Experiment, clustering: RankClustering, data: FederatedData
) -> Mapping[ClientId, Ranking]:
    """Return one ballot of every client, as before the first round of E2FL with rank clustering."""
    algorithm = E2FL(grouping=clustering)
    model = experiment.build_model(data)
    learner = experiment.build_learner(model)
    federation = SimulatedFederation(data, algorithm, learner, threads=experiment.threads)
    server = Server(
        algorithm, model, data.population, rounds=1, seed=experiment.seed, evaluate_every=1
    )
    replies = federation.train(server.ask())
    return first_rankings(replies.answers)  # type: ignore[arg-type]  # E2FL's replies are ballots
