"""Users' own rows, checked and divided among clients; given as arrays by client, or in an .npz.

`OwnData` reads the columns that say whose a row is, its label, group and split, and gives each
client its training and test rows, for each seed anew. Errors name the row.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Doc

from e2fl.data.federated import (
    TEST,
    TRAIN,
    ClientRows,
    Examples,
    MinSamples,
    Partition,
    PartitionedData,
    TestShare,
    split_clients,
)
from e2fl.data.files import existing, load_arrays
from e2fl.data.partition import BasePartitioner, Rows
from e2fl.data.sheet import Origin, Texts, as_number, as_text, codes_of, texts_of
from e2fl.errors import ConfigError, DataError
from e2fl.files import sha256_of

# Settings of own data.
Seed = Annotated[int | None, Doc("of the partition and the split; default: the seed of the run")]
PooledTest = Annotated[bool, Doc("test all clients on the same rows")]
Unprivileged = Annotated[
    str | int | None, Doc("the unprivileged group of fairness measures; default: the first")
]
Positive = Annotated[
    str | int | None,
    Doc("the favourable one of two labels, class 1; default: the later in order"),
]

LABEL_LIMIT = 10_000  # classes
STRAY = 0.05  # a smaller share of rows outside their client's main group is probably a mistake
SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}
CHANNELS = (1, 3, 4)  # of grey and colour images
SAMPLE = 1000  # rows that tell the scale of inputs
UNIT_SCALE = (1e-2, 10.0)  # root mean squares of inputs that need no warning

# x, y, and a group for all rows or for each; or a data set of such rows, of which no type is known.
Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any] | Any
Inputs = NDArray[np.uint8] | NDArray[np.float32]
Roles = Mapping[str, NDArray[Any]]  # label, client, and perhaps group and split, of each row


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnData(PartitionedData):
    """A user's own rows, split into clients; without a seed of its own, anew for each run's seed.

    Whatever reads the rows passes them to `start`.
    """

    seed: Seed = None
    test_share: TestShare = 0.2
    min_samples: MinSamples = 2
    pooled_test: PooledTest = False
    unprivileged: Unprivileged = None
    positive: Positive = None

    origin: Origin = field(init=False, repr=False)
    roles: Roles = field(init=False, repr=False)
    x: Inputs | None = field(init=False, repr=False)  # None: from the cells of a table
    scale: float = field(init=False, repr=False)
    sha256: str | None = field(init=False, repr=False)  # of a file
    _run_seed: int = field(init=False, repr=False)

    name = "arrays"

    def start(
        self, origin: Origin, roles: Roles, x: NDArray[Any] | None, sha256: str | None = None
    ) -> "OwnData":
        """Check the rows, and divide them among clients."""
        inputs, scale = (None, 1.0) if x is None else _inputs(x, origin)
        vars(self).update(origin=origin, roles=roles, x=inputs, scale=scale, sha256=sha256)
        return self._divide(0)

    def _divide(self, run_seed: int) -> "OwnData":
        for cached in ("population", "_pooled_test"):
            vars(self).pop(cached, None)
        seed = run_seed if self.seed is None else self.seed
        roles = {role: self._texts(role, cells) for role, cells in self.roles_for(seed).items()}
        y, labels = self._labels(roles["label"])
        groups: tuple[str, ...] = ()
        group, inside, first = None, False, as_text(self.unprivileged)
        if "group" in roles or first:
            group, groups = numbered(roles.get("group", np.array([], object)), "group", first=first)
            inside = self._lie_inside(group, groups, roles["client"])
        clients, unseen = self._clients(roles, None if inside else group, seed)
        train = np.sort(np.concatenate([rows.train for rows in clients]))
        pooled = np.setdiff1d(np.arange(len(y)), train) if self.pooled_test else None
        if pooled is not None and not len(pooled):
            raise DataError("all rows are training rows; some must be test rows")
        of_rows = group if inside or pooled is not None else None
        vars(self).update(label_names=labels, classes=len(labels), group_names=groups)
        x = self.inputs(train, grouped=of_rows is not None)
        parts = Partition(Examples(x, y, of_rows, self.scale), clients, unseen, len(groups), pooled)
        vars(self).update(shape=x.shape[1:], partitioned=parts, _run_seed=run_seed)
        return self

    def roles_for(self, seed: int) -> Roles:
        """Return label, client, and perhaps group and split, for this seed."""
        return self.roles

    def inputs(self, train: Rows, *, grouped: bool) -> Inputs:
        """Return the inputs of all rows; train: those to learn from; grouped: rows have groups."""
        assert self.x is not None
        return self.x

    def for_seed(self, seed: int) -> "OwnData":
        if self.seed is not None or seed == self._run_seed:
            return self
        return copy(self)._divide(seed)

    def about(self) -> dict[str, object]:
        parts = self.partitioned
        return {
            "rows": len(parts.examples),
            "clients": len(parts.clients),
            "unseen_clients": len(parts.unseen),
            "labels": list(self.label_names),
            "groups": list(self.group_names),
            "tested_on": "own rows" if parts.pooled_test is None else "the same rows",
            **({} if self.scale == 1.0 else {"input_scale": self.scale}),
            **({} if self.sha256 is None else {"sha256": self.sha256}),
        }

    def _texts(self, role: str, cells: NDArray[Any]) -> Texts:
        """Return a role as texts, with a warning of names that are probably one, misspelt."""
        texts = texts_of(cells)
        if (texts == "").any():
            raise self.origin.error(texts == "", f"has no {role}")
        names = pd.Series(np.unique(texts), dtype=object)
        same = names[names.str.casefold().str.split().str.join(" ").duplicated(keep=False)]
        if len(same) and role != "split":
            shown = " and ".join(f"'{name[:40]}'" for name in same[:2])
            self.origin.warn(f"{role}s {shown} differ only in case or spaces, and count as two")
        return texts

    def _labels(self, texts: Texts) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        positive = as_text(self.positive)
        y, labels = numbered(texts, "label", last=positive)
        parts = np.array([as_number(label) % 1 for label in labels])
        if np.isfinite(parts).all() and parts.any():
            raise self.origin.error(parts[y] > 0, "has a label with decimals: labels are classes")
        if not 2 <= len(labels) <= (2 if positive else LABEL_LIMIT):
            most = "2 if one is positive" if positive else f"2 to {LABEL_LIMIT}"
            raise DataError(f"{self.origin.where}: {len(labels)} different labels, not {most}")
        return y, labels

    def _lie_inside(self, group: NDArray[np.int64], names: tuple[str, ...], client: Texts) -> bool:
        """Return whether a client has rows of several groups, with a warning if few rows differ."""
        codes, _ = pd.factorize(client)
        strays = group != pd.crosstab(codes, group).to_numpy().argmax(axis=1)[codes]
        if 0 < strays.sum() <= STRAY * len(group):
            row = int(strays.argmax())
            self.origin.warn(
                f"{self.origin.row_name(row)} of client '{client[row][:40]}' is in group "
                f"'{names[group[row]][:40]}', unlike most of its rows ({strays.sum()} such rows in "
                "all): groups lie inside clients; if each client has one, correct these rows"
            )
        return bool(strays.any())

    def _clients(
        self, roles: Mapping[str, Texts], group: NDArray[np.int64] | None, seed: int
    ) -> tuple[tuple[ClientRows, ...], tuple[ClientRows, ...]]:
        """Return the clients and the unseen clients; group: that which clients declare."""
        names, client = np.unique(roles["client"], return_inverse=True)
        split = None
        if "split" in roles:
            parts = pd.Series(roles["split"]).str.lower().map(SPLITS)
            unknown = parts.isna().to_numpy()
            if unknown.any():
                word = roles["split"][unknown][0]
                raise self.origin.error(unknown, f"has the split '{word}'; use train or test")
            split = parts.to_numpy().astype(np.int64)
        clients, unseen, untested = split_clients(
            client,
            seed=seed,
            test_share=self.test_share,
            split=split,
            names=names.tolist(),
            group=group,
            min_samples=self.min_samples,
        )
        if untested and not self.pooled_test:
            raise DataError(
                f"client '{untested[0].name}' has training rows but no test rows; "
                "add some, or test all clients on the same rows with pooled_test = true"
            )
        return (*clients, *untested), tuple(unseen)


def numbered(
    texts: Texts, what: str = "", *, first: str = "", last: str = ""
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return texts as 0, 1, ... and their names, in numeric or alphabetical order.

    first, last: the name that comes before or after all others; what: what they name, for messages.
    """
    names = np.unique(texts).tolist()
    if not {first, last} <= {"", *names}:
        known = ", ".join(names[:5]) or "there are none"
        raise ConfigError(f"there is no {what} '{first or last}'; known: {known}")
    if np.isfinite([as_number(name) for name in names]).all():
        names.sort(key=lambda name: (as_number(name), name))
    names.sort(key=lambda name: (name == last) - (name == first))
    return codes_of(texts, tuple(names)), tuple(names)


def names_of(numbers: NDArray[np.int64]) -> Texts:
    """Return numbers as texts of equal width."""
    return np.char.zfill(numbers.astype(str), len(str(numbers.max()))).astype(np.object_)


@dataclass(frozen=True, eq=False, kw_only=True)
class Npz(OwnData):
    """An .npz with the arrays x, y and client, and optionally group and split."""

    path: Annotated[str, Doc("an .npz")]

    name = "npz"

    def __post_init__(self) -> None:
        super().__post_init__()
        file = existing(self.path)
        roles = load_arrays(file, ("x", "y", "client"), optional=("group", "split"))
        x, roles["label"] = roles.pop("x"), roles.pop("y")
        count = len(x) if x.ndim else 0
        for what, values in roles.items():
            if not count or values.shape != (count,):
                raise DataError(f"{file}: there must be one {what} for each of {count} rows")
        self.start(Origin(str(file), pd.RangeIndex(count)), roles, x, sha256_of(file))


def from_arrays(
    clients: Mapping[Any, Given], *, test: Mapping[Any, Given] | None = None, **settings: Any
) -> OwnData:
    """Return a federation of clients, each with (x, y), (x, y, group), or a data set of such rows.

    x: numbers as the network should read them, or bytes (uint8), which are divided by 255 unless
    none is above 1. group: one for the whole client, or one for each row. test: test rows by
    client; without it a share of each client's rows is drawn. settings: seed, test_share,
    min_samples, pooled_test, unprivileged, positive, as of `OwnData`.
    """
    parts, names, splits = {}, [], []
    for split, by_client in {"train": clients, "test": test or {}}.items():
        if not isinstance(by_client, Mapping) or not clients:
            raise DataError("clients must be a dictionary of (x, y) by name, with one or more")
        for name, rows in by_client.items():
            where = f"client '{name}'" + (", test rows" if split == "test" else "")
            parts[where] = _arrays(where, rows)
            names.append(as_text(name))
            splits.append(split)
    if len(set(zip(names, splits, strict=True))) < len(clients) + len(test or {}) or "" in names:
        raise DataError("names of clients must be unique, and not mean a missing value")
    forms = {(x.shape[1:], group is None): where for where, (x, _, group) in parts.items()}
    if len(forms) > 1:
        shapes = "; ".join(f"{where} has {shape}" for (shape, _), where in forms.items())
        raise DataError(
            f"inputs must be of one shape, and all or none have groups; of a row, {shapes}"
        )
    xs, ys, groups = zip(*parts.values(), strict=True)
    sizes = list(map(len, ys))
    owner = np.repeat(np.arange(len(parts)), sizes)
    roles = {"label": np.concatenate(ys), "client": np.array(names, dtype=np.object_)[owner]}
    if groups[0] is not None:
        roles["group"] = np.concatenate([group.astype(str) for group in groups])
    if test is not None:
        roles["split"] = np.array(splits)[owner]
    places = pd.Categorical.from_codes(owner, pd.Index(list(parts), dtype=object))
    numbers = np.concatenate([np.arange(size) for size in sizes])
    origin = Origin("the arrays", pd.MultiIndex.from_arrays([places, numbers]))
    return OwnData(**settings).start(origin, roles, np.concatenate(xs))


def from_partitioner(
    x: ArrayLike,
    y: ArrayLike,
    partitioner: BasePartitioner,
    *,
    group: ArrayLike | None = None,
    columns: Mapping[str, Any] | None = None,
    **settings: Any,
) -> OwnData:
    """Return rows split into clients by a partitioner: by "label", "group" or one of `columns`.

    settings: as of `from_arrays`.
    """
    inputs, labels, groups = _arrays("the arrays", (x, y) if group is None else (x, y, group))
    roles = {"label": labels} | ({} if groups is None else {"group": groups.astype(str)})
    roles["client"] = names_of(partitioner.clients({**roles, **(columns or {})}))
    origin = Origin("the arrays", pd.RangeIndex(len(labels)))
    return OwnData(**settings).start(origin, roles, inputs)


def _inputs(x: NDArray[Any], origin: Origin) -> tuple[Inputs, float]:
    """Return inputs as bytes or finite numbers, and their scale: 1/255 for bytes above 1."""
    x = x[:, None] if x.ndim < 2 else x
    shape = x.shape[1:]
    if len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS:
        origin.warn(
            f"inputs of shape {shape} are read as {shape[0]} channels of {shape[1]} x {shape[2]}; "
            "if they are images [height, width, channels], pass x.transpose(0, 3, 1, 2)"
        )
    if x.dtype == np.uint8:
        return x, 1 / 255 if x.max(initial=0) > 1 else 1.0
    if x.dtype.kind not in "fiub":
        raise DataError(f"{origin.where}: inputs must be numbers; put strings into a table")
    numbers = x.astype(np.float32, copy=False)
    origin.require_finite(numbers)
    some = numbers[:: max(1, len(x) // SAMPLE)].astype(np.float64)
    size = float(np.sqrt(np.mean(some**2))) if some.size else 0.0
    if size and not UNIT_SCALE[0] <= size <= UNIT_SCALE[1]:
        origin.warn(
            f"the inputs have a root mean square of {size:.3g}; networks train best with about 1. "
            "Standardise each column, or divide images by their largest value"
        )
    return numbers, 1.0


def _arrays(where: str, given: Given) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return inputs, labels and groups as arrays that fit together."""
    try:
        parts = [_array(part) for part in (given if isinstance(given, tuple) else rows_of(given))]
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{where} has rows that are not all alike: {error}") from error
    x, y, *group = parts if len(parts) in (2, 3) else (np.empty(0), np.empty(0))
    rows = x.shape[:1]
    if rows in ((), (0,)) or y.shape != rows or (group and group[0].shape not in ((), rows)):
        shapes = ", ".join(str(part.shape) for part in parts)
        raise DataError(f"{where} must be (x, y) or (x, y, group), equally long, not {shapes}")
    return x, y, np.broadcast_to(group[0], rows) if group else None


def rows_of(dataset: Any) -> tuple[NDArray[Any], ...]:
    """Return the rows of a data set as arrays (x, y), or (x, y, group) where rows have a group.

    dataset: its rows are tuples, as in torch, or dictionaries with these columns in this order, as
    in Hugging Face; x is a number, an array, a tensor or a PIL image. All rows are read into
    memory.
    """
    rule = "must have rows (x, y) or (x, y, group), each part of one shape"
    try:
        rows = [dataset[position] for position in range(len(dataset))]
        cells = [row.values() if isinstance(row, Mapping) else row for row in rows]
        parts = tuple(np.stack(list(map(_array, part))) for part in zip(*cells, strict=True))
    # A data set of torch without __getitem__ raises NotImplementedError.
    except (TypeError, ValueError, LookupError, NotImplementedError) as error:
        raise DataError(f"a {type(dataset).__name__} as data {rule}: {error}") from error
    if len(parts) not in (2, 3) or hasattr(dataset, "__array__"):
        raise DataError(f"a {type(dataset).__name__} as data {rule}; it has {len(parts)} parts")
    return parts


def _array(values: Any) -> NDArray[Any]:
    """Return values given in Python, a tensor or a PIL image as an array; NaN where one is missing.

    A picture becomes [channels, height, width].
    """
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if hasattr(values, "getbands"):
        return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    if array.dtype == np.object_:  # as pandas has some integers
        array = np.asarray(np.where(pd.isna(array), np.nan, array).tolist())
    return array
