"""A table of rankings, one row per client, that may be larger than memory.

Distances and votes are computed layer by layer and in blocks of clients, on all cores. Beyond a
limit the rows are stored in a temporary file, so that memory stays bounded for any number of
clients.
"""

import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from e2fl import kernels
from e2fl.data.federated import ClientId, Lazy
from e2fl.models import Layer, ModelSpec
from e2fl.randomness import stream
from e2fl.rankings.order import Ranking, Ranks
from e2fl.rankings.votes import BordaCount

Centroids = dict[str, NDArray[np.int32]]  # by layer: [groups, edges]

MAX_BYTES_IN_MEMORY = 512 * 2**20  # bytes of all rows together
BYTES_PER_READ = 16 * 2**20  # bytes read at a time


@dataclass(frozen=True)
class LayerView:
    """Which edges of a layer are compared, and the weight of a difference."""

    layer: str
    width: int  # the number of edges compared
    sample: NDArray[np.int64] | None  # these edges, rising; None: all
    scale: float  # from the footrule of these edges to that of the layer

    def of(self, rank: Ranks) -> Ranks:
        """Return the ranking of the compared edges among themselves."""
        if self.sample is None or len(rank) == self.width:
            return rank
        return kernels.rank_of_sums(rank[self.sample].astype(np.int64))


def views_of(model: ModelSpec, sample_edges: int, seed: int) -> tuple[LayerView, ...]:
    """Return the view of each layer."""
    views = []
    for position, layer in enumerate(model.layers):
        sample, width = None, layer.edges
        if 0 < sample_edges < layer.edges:
            width = sample_edges
            rng = stream(seed, "sampled edges", position)
            sample = np.sort(rng.choice(layer.edges, width, replace=False))
        # Both the number of edges and their rank differences grow with the layer.
        views.append(LayerView(layer.name, width, sample, (layer.edges / width) ** 2))
    return tuple(views)


class Rows:
    """The rows of one layer, [clients, edges], in memory or in a temporary file."""

    def __init__(self, count: int, width: int, *, on_disk: bool):
        self.shape = (count, width)
        self.bytes = 4 * width
        self.memory = None if on_disk else np.empty(self.shape, dtype=np.int32)
        if on_disk:
            self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # ends with the rows
            weakref.finalize(self, self.file.close)

    def write(self, position: int, rank: Ranks) -> None:
        if self.memory is not None:
            self.memory[position] = rank
        else:
            os.pwrite(self.file.fileno(), rank.tobytes(), position * self.bytes)

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return the rows of some clients; thread-safe."""
        if self.memory is not None:
            return self.memory[start:stop]
        raw = os.pread(self.file.fileno(), (stop - start) * self.bytes, start * self.bytes)
        return np.frombuffer(raw, dtype=np.int32).reshape(stop - start, self.shape[1])


class BallotTable:
    """The rankings of many clients, restricted to the edges that clustering compares."""

    def __init__(self, ballots: Mapping[ClientId, Ranking], views: Sequence[LayerView]):
        self.clients = tuple(sorted(ballots))
        self.views = tuple(views)
        size = 4 * len(self) * sum(view.width for view in views)
        self.on_disk = on_disk = size > MAX_BYTES_IN_MEMORY
        self.rows = {view.layer: Rows(len(self), view.width, on_disk=on_disk) for view in views}
        self.pool = ThreadPoolExecutor(os.cpu_count() or 1)
        for position, client in enumerate(self.clients):
            ballot = ballots[client]  # read once: it may be decoded on access
            for view in views:
                self.rows[view.layer].write(position, view.of(ballot[view.layer]))

    def __len__(self) -> int:
        return len(self.clients)

    def distances(self, centroids: Centroids, first: int = 0) -> NDArray[np.float64]:
        """Return the distance of every client to every centroid: [clients, groups].

        Exact without scaling. first: clients before this one are left out; their distances are 0.
        """
        total = np.zeros((len(self), len(next(iter(centroids.values())))))
        share = -(-len(self) // (4 * (os.cpu_count() or 1)))

        def add(view: LayerView, start: int, stop: int) -> None:
            rows = self.rows[view.layer].read(start, stop)
            total[start:stop] += view.scale * kernels.footrules(rows, centroids[view.layer])

        for view in self.views:
            step = max(1, min(BYTES_PER_READ // (4 * view.width), share))
            starts = range(first, len(self), step)
            stops = [min(start + step, len(self)) for start in starts]
            list(self.pool.map(add, [view] * len(starts), starts, stops))
        return total

    def vote(self, assigned: NDArray[np.int64], before: Centroids) -> Centroids:
        """Return the centroid of every group: the vote of its members.

        An empty group keeps its centroid. Clients of group -1 do not vote.
        """
        after = {layer: centroids.copy() for layer, centroids in before.items()}

        def elect(view: LayerView, group: int) -> None:
            count = BordaCount(view.width)
            for position in np.flatnonzero(assigned == group).tolist():
                count.add(self.rows[view.layer].read(position, position + 1)[0])
            after[view.layer][group] = count.elect()

        groups = np.unique(assigned[assigned >= 0]).tolist()
        pairs = [(view, group) for view in self.views for group in groups]
        list(self.pool.map(elect, *zip(*pairs, strict=True)))
        return after

    def take(self, positions: Sequence[int]) -> Centroids:
        """Return the rows of these clients."""
        rankings = [self._row(position) for position in positions]
        return {layer: np.stack([ranking[layer] for ranking in rankings]) for layer in self.rows}

    def pairwise(self) -> NDArray[np.float64]:
        """Return the distances between clients: [clients, clients]. In parts, to bound memory."""
        at_once = max(1, BYTES_PER_READ // (4 * max(view.width for view in self.views)))
        half = np.zeros((len(self), len(self)))
        for start in range(0, len(self), at_once):
            block = range(start, min(start + at_once, len(self)))
            half[:, start : block.stop] = self.distances(self.take(block), first=start)
        return np.maximum(half, half.T)

    def thinned(self, positions: Sequence[int], edges: int, seed: int) -> "BallotTable":
        """Return a table of these clients, with at most this many edges of each layer."""
        whole = ModelSpec(tuple(Layer(view.layer, (view.width,)) for view in self.views))
        thin = views_of(whole, edges, seed)
        scaled = [
            replace(few, scale=few.scale * view.scale)
            for few, view in zip(thin, self.views, strict=True)
        ]
        rows = Lazy(range(len(positions)), lambda client: self._row(positions[client]))
        return BallotTable(rows, scaled)

    def _row(self, position: int) -> Ranking:
        return {layer: rows.read(position, position + 1)[0] for layer, rows in self.rows.items()}
