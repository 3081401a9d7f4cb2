"""A table of rankings, one row per client, that may be larger than memory.

Distances and votes are computed layer by layer and in blocks of clients, on all cores. Beyond a
limit the rows are stored in a temporary file, so that memory stays bounded for any number of
clients.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from e2fl import kernels
from e2fl.data.federated import ClientId, Lazy
from e2fl.models import Layer, ModelSpec
from e2fl.randomness import stream
from e2fl.rankings.order import Ranking, Ranks
from e2fl.rankings.votes import BordaCount

Centroids = dict[str, NDArray[np.int32]]  # by layer: [groups, edges]
Item = TypeVar("Item")
Result = TypeVar("Result")

IN_MEMORY = 512 * 2**20  # bytes of all rows together
BLOCK = 16 * 2**20  # bytes read at a time
PROBES = 8  # clients whose exact distances show how good a sample of edges is


@dataclass(frozen=True)
class View:
    """Which edges of a layer are compared, and the weight of a difference."""

    layer: str
    edges: int
    sample: NDArray[np.int64] | None  # the edges compared, rising; None: all
    scale: float  # from the footrule of these edges to that of the layer, or to its fraction of the largest

    @property
    def width(self) -> int:
        return self.edges if self.sample is None else len(self.sample)

    def of(self, rank: Ranks) -> Ranks:
        """Return the ranking of the compared edges among themselves."""
        if len(rank) == self.width:
            return rank
        assert self.sample is not None
        return kernels.rank_of_sums(rank[self.sample].astype(np.int64))


def views_of(
    model: ModelSpec, sample_edges: int, seed: int, *, normalise: bool
) -> tuple[View, ...]:
    """Return the view of each layer."""
    found = []
    for number, layer in enumerate(model.layers):
        sample, width = None, layer.edges
        if 0 < sample_edges < layer.edges:
            width = sample_edges
            sample = np.sort(
                stream(seed, "sampled edges", number).choice(layer.edges, width, replace=False)
            )
        # Both the number of edges and their rank differences grow with the layer.
        scale = (layer.edges / width) ** 2
        if normalise:
            scale /= max(1, layer.edges**2 // 2)
        found.append(View(layer.name, layer.edges, sample, scale))
    return tuple(found)


class Rows:
    """The rows of one layer, [clients, edges], in memory or in a temporary file."""

    def __init__(self, count: int, width: int, *, on_disk: bool):
        self.shape = (count, width)
        self.bytes = 4 * width
        self.memory = None if on_disk else np.empty(self.shape, dtype=np.int32)
        if on_disk:
            self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed and deleted with this object

    def write(self, place: int, rank: Ranks) -> None:
        if self.memory is not None:
            self.memory[place] = rank
        else:
            os.pwrite(self.file.fileno(), rank.tobytes(), place * self.bytes)

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return the rows of some clients; thread-safe."""
        if self.memory is not None:
            return self.memory[start:stop]
        raw = os.pread(self.file.fileno(), (stop - start) * self.bytes, start * self.bytes)
        return np.frombuffer(raw, dtype=np.int32).reshape(stop - start, self.shape[1])


class BallotTable:
    """The rankings of many clients, restricted to the edges that clustering compares."""

    def __init__(
        self,
        ballots: Mapping[ClientId, Ranking],
        views: Sequence[View],
        *,
        in_memory: int = IN_MEMORY,
    ):
        self.clients = tuple(sorted(ballots))
        self.views = tuple(views)
        size = 4 * len(self.clients) * sum(view.width for view in views)
        self.on_disk = size > in_memory
        self.rows = {
            view.layer: Rows(len(self.clients), view.width, on_disk=self.on_disk) for view in views
        }
        self.pool = ThreadPoolExecutor(os.cpu_count() or 1)
        probes: list[Ranking] = []
        sampled = any(view.sample is not None for view in views)
        step = max(1, len(self.clients) // PROBES)
        for place, client in enumerate(self.clients):
            ballot = ballots[client]
            for view in views:
                self.rows[view.layer].write(place, view.of(ballot[view.layer]))
            if sampled and place % step == 0 and len(probes) < PROBES:
                probes.append({view.layer: ballot[view.layer] for view in views})
        self.sampling_error = self._sampling_error(probes) if sampled else 0.0

    def __len__(self) -> int:
        return len(self.clients)

    def distances(self, centroids: Centroids) -> NDArray[np.float64]:
        """Return the distance of every client to every centroid: [clients, groups].

        Exact without scaling.
        """
        groups = len(next(iter(centroids.values())))
        found = np.zeros((len(self), groups))
        for view in self.views:
            rows, targets = self.rows[view.layer], centroids[view.layer]

            def fill(
                block: tuple[int, int],
                view: View = view,
                rows: Rows = rows,
                targets: Ranks = targets,
            ) -> None:
                start, stop = block
                found[start:stop] += view.scale * kernels.footrules(rows.read(start, stop), targets)

            self._each(fill, self._blocks(rows))
        return found

    def vote(self, assigned: NDArray[np.int64], before: Centroids) -> Centroids:
        """Return the centroid of every group: the vote of its members.

        An empty group keeps its centroid.

        Clients of group -1 do not vote.
        """
        after = {layer: centroids.copy() for layer, centroids in before.items()}
        todo = [
            (view, group)
            for view in self.views
            for group in np.unique(assigned[assigned >= 0]).tolist()
        ]

        def elect(item: tuple[View, int]) -> None:
            view, group = item
            count = BordaCount(view.width)
            for place in np.flatnonzero(assigned == group).tolist():
                count.add(self.rows[view.layer].read(place, place + 1)[0])
            after[view.layer][group] = count.elect()

        self._each(elect, todo)
        return after

    def take(self, places: Sequence[int]) -> Centroids:
        """Return the rows of these clients."""
        return {
            view.layer: np.stack(
                [self.rows[view.layer].read(place, place + 1)[0] for place in places]
            )
            for view in self.views
        }

    def pairwise(self, places: Sequence[int]) -> NDArray[np.float64]:
        """Return the distance of every client to these clients: [clients, places].

        In parts, to bound memory.
        """
        at_once = max(1, BLOCK // (4 * max(view.width for view in self.views)))
        parts = [places[start : start + at_once] for start in range(0, len(places), at_once)]
        return np.concatenate([self.distances(self.take(part)) for part in parts], axis=1)

    def thinned(self, places: Sequence[int], edges: int, seed: int) -> "BallotTable":
        """Return a table of these clients, with at most this many edges of each layer."""
        whole = ModelSpec(tuple(Layer(view.layer, (view.width,)) for view in self.views))
        views = views_of(whole, edges, seed, normalise=False)
        scaled = [
            replace(thin, scale=thin.scale * view.scale)
            for thin, view in zip(views, self.views, strict=True)
        ]
        return BallotTable(
            Lazy(range(len(places)), lambda number: self._row(places[number])), scaled
        )

    def _row(self, place: int) -> Ranking:
        return {layer: rows.read(place, place + 1)[0] for layer, rows in self.rows.items()}

    def _sampling_error(self, probes: Sequence[Ranking]) -> float:
        """Return the relative error of distances on the sample of edges: root mean square over
        pairs of clients.
        """
        errors = []
        for one, other in itertools.combinations(probes, 2):
            exact = estimated = 0.0
            for view in self.views:
                whole = view.scale * (view.width / view.edges) ** 2
                exact += whole * kernels.footrule(one[view.layer], other[view.layer])
                estimated += view.scale * kernels.footrule(
                    view.of(one[view.layer]), view.of(other[view.layer])
                )
            if exact:
                errors.append(estimated / exact - 1)
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0

    def _blocks(self, rows: Rows) -> Iterator[tuple[int, int]]:
        step = max(1, min(BLOCK // rows.bytes, -(-len(self) // (4 * (os.cpu_count() or 1)))))
        return ((start, min(start + step, len(self))) for start in range(0, len(self), step))

    def _each(
        self, work: Callable[[Item], Result], items: Iterator[Item] | Sequence[Item]
    ) -> list[Result]:
        return list(self.pool.map(work, items))
