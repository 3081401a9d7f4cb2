"""How many groups are there? Rank clustering for several numbers of groups, and which number fits.

Every client trains once from the start, as rank clustering prepares, and its ballot is clustered
into 2, 3 and more groups. A good number has groups that are found without a quarter of the clients
too (stability), few clients between them (blur, compared with that of a reference cloud without
groups), and clients nearer to their own group than to the next (silhouette).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from e2fl import metrics
from e2fl.algorithms.e2fl import E2FL
from e2fl.config.experiment import Experiment
from e2fl.config.sections import section_of
from e2fl.data.federated import FederatedData
from e2fl.errors import ConfigError
from e2fl.grouping import RankClustering
from e2fl.grouping.rank_clustering import ClusteringInput, first_rankings
from e2fl.grouping.separation import silhouette
from e2fl.metrics.accuracy import MAX_RELATIVE_BLUR, MIN_STABILITY
from e2fl.rounds import Server
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.text import aligned

NEARLY_BEST = 0.99  # a silhouette this close to the highest counts as equal: fewer groups then
FLAT = 0.9  # as long as silhouettes stay this close to the highest, more groups may be right
AS_STABLE = 0.05  # a stability this close to another one counts as equal
NOISE = (
    "Warning: these groups look like noise. No number of groups is both stable (at least "
    f"{MIN_STABILITY}) and clearly separated (a blur of at most {MAX_RELATIVE_BLUR} times that of "
    "a reference cloud). Use one group (algorithm frl), or let clients train longer first "
    "(learner.epochs)."
)


@dataclass(frozen=True)
class Row:
    """One number of groups."""

    groups: int
    stability: float  # agreement with what a quarter fewer clients give: 1 is full, 0 is chance
    silhouette: float  # -1 to 1: how much nearer clients are to their own group than to the next
    blur: float  # 0 to 1: how far clients lie from the centre of their group towards the next
    cloud: float  # the blur of a reference cloud cut into as many pieces
    smallest: int  # clients of the smallest group
    matched: float | None = None  # percentage of clients in the group they declare, one to one

    @property
    def clear(self) -> bool:
        return self.stability >= MIN_STABILITY and self.blur <= MAX_RELATIVE_BLUR * self.cloud


@dataclass(frozen=True)
class Survey:
    """The measures for each number of groups, and how rankings were clustered."""

    rows: tuple[Row, ...]
    clustering: RankClustering = field(default_factory=RankClustering)

    @property
    def fitting(self) -> list[Row]:
        """The clear numbers of groups that may be right; the first is the best.

        The best is the smallest with nearly the highest silhouette; those that follow have a
        silhouette that is not much lower.
        """
        clear = sorted((row for row in self.rows if row.clear), key=lambda row: row.groups)
        highest = max((row.silhouette for row in clear), default=0.0)
        nearly = [row.groups for row in clear if row.silhouette >= NEARLY_BEST * highest]
        return [
            row for row in clear if row.groups >= nearly[0] and row.silhouette >= FLAT * highest
        ]

    def table(self) -> str:
        """Return one line for each number of groups; a star marks the best."""
        titles = ("groups", "stability", "silhouette", "blur", "of a cloud", "smallest group")
        lines = [[*titles, "as declared, %"]]
        for row in self.rows:
            number = f"{row.groups}{' *' if row in self.fitting[:1] else ''}"
            values = f"{row.stability:.2f}", f"{row.silhouette:.3f}", f"{row.blur:.2f}"
            matched = [] if row.matched is None else [f"{row.matched:.1f}"]
            lines.append([number, *values, f"{row.cloud:.2f}", f"{row.smallest}", *matched])
        return aligned([line[: len(lines[-1])] for line in lines])

    def advice(self) -> str:
        """Return a recommendation, as text."""
        if not self.fitting:
            return NOISE
        best, last = self.fitting[0], self.fitting[-1]
        most = [row for row in self.fitting if row.stability >= best.stability - AS_STABLE][-1]
        text = (
            f"Use {best.groups} groups: grouping = {self.grouping(best.groups)}. Without a quarter "
            f"of the clients, the groups found agree to {best.stability:.2f}; the smallest has "
            f"{best.smallest} client{'s' if best.smallest > 1 else ''}."
        )
        if last != best:
            text += (
                f" Silhouettes are flat from {best.groups} to {last.groups} groups, so the number "
                "is uncertain: fewer groups hide small ones."
            )
        if most != best:
            text += (
                f" {most.groups} groups are as stable ({most.stability:.2f}): "
                f"grouping = {self.grouping(most.groups)}."
            )
        return text

    def grouping(self, groups: int) -> str:
        """Return the settings of this clustering that differ from the defaults, as TOML."""
        clustering = replace(self.clustering, groups=groups)
        settings = {"name": "", "groups": groups} | section_of(clustering, "grouping")
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

    Layers and start are those of the experiment's own rank clustering, if it has one.
    """
    data = experiment.build.data() if data is None else data.for_seed(experiment.seed)
    if not 2 <= first <= last < len(data.population):
        raise ConfigError(
            f"--from must be at least 2, --to not less than --from and less than the "
            f"{len(data.population)} clients, not {first} and {last}"
        )
    grouping, seed = getattr(experiment.build.algorithm(), "grouping", None), experiment.seed
    own = grouping if isinstance(grouping, RankClustering) else RankClustering()
    clustering = replace(own, groups=last)
    tell(f"training {len(data.population)} clients once")
    algorithm, model = E2FL(grouping=clustering), experiment.build.model(data)
    learner = experiment.build.learner(model)
    federation = SimulatedFederation(data, algorithm, learner, threads=experiment.threads)
    server = Server(algorithm, model, data.population, rounds=1, seed=seed, evaluate_every=1)
    ballots = first_rankings(federation.train(server.ask()).answers)  # type: ignore[arg-type]
    tell(f"comparing {len(ballots)} ballots")
    compared = ClusteringInput(clustering.table(ballots, seed), seed)
    declared = [data.population.declared[client] for client in compared.table.clients]
    rows = []
    for groups in range(first, last + 1):
        tell(f"clustering into {groups} groups")
        kept = clustering.result(compared, groups)
        rows.append(
            Row(
                groups,
                silhouette=silhouette(compared.distances, kept.assigned[compared.sampled]),
                smallest=min(kept.assigned.tolist().count(group) for group in range(groups)),
                matched=None if None in declared else metrics.matched(kept.assigned, declared),
                **compared.quality(kept, groups),
            )
        )
    return Survey(tuple(rows), clustering)
