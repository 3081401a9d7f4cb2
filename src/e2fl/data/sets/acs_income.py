"""ACS income: people in the American Community Survey, with US states as groups; the label is an income above $50,000.

The task ACSIncome of Ding et al., "Retiring Adult: New Datasets for Fair Machine Learning", 2021. Read from the files
that their package folktables downloads (psam_p*.csv, one for each state; the task's filter is applied here), or from
one CSV with the columns STATE, AGEP, COW, SCHL, MAR, OCCP, POBP, RELP, WKHP, SEX, RAC1P and PINCP, where PINCP is 0 or
1 already. Both may be compressed with gzip.

Each state is split at random into `clients_per_state` clients of equal size, and each client's rows into training and
test rows. Age, schooling and hours a week are standardised with the training rows. The other columns are one-hot, with
the categories of the Census Bureau's dictionary and not of the rows: occupations in its 26 major groups, places of
birth by continent.
"""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Examples
from e2fl.data.files.places import data_directory, existing
from e2fl.data.partitioned import UNDECIDED, ClientRows, Partition, PartitionedData, rows_by_client, split_clients
from e2fl.data.sets.adult import standardised
from e2fl.errors import ConfigError, DataError
from e2fl.files import regular_file
from e2fl.randomness import stream

COLUMNS = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP")
NUMBERS = ("AGEP", "SCHL", "WKHP")
# The number of categories of each column; codes start at 1, except RELP's.
CATEGORIES = {"COW": 9, "MAR": 5, "OCCP": 26, "POBP": 6, "RELP": 19, "SEX": 2, "RAC1P": 9}
# First code of each major group of occupations: management, business, finance, ..., military, unemployed.
OCCUPATIONS = (0, 500, 800, 1005, 1305, 1600, 2001, 2100, 2205, 2600, 3000, 3601, 3700, 4000, 4200, 4330, 4700, 5000,
               6005, 6200, 6800, 7000, 7700, 9000, 9800, 9920)  # fmt: skip
RELSHIPP = 20  # the first code of this column, which replaced RELP in 2019
INCOME = 50_000
FILTER = {"AGEP": 16, "PINCP": 100, "WKHP": 0}  # folktables keeps people above these
FILE_LIMIT = 4 * 2**30  # bytes of one file, unpacked
_STATES = """AL 1 AK 2 AZ 4 AR 5 CA 6 CO 8 CT 9 DE 10 DC 11 FL 12 GA 13 HI 15 ID 16 IL 17 IN 18 IA 19 KS 20 KY 21 LA 22
ME 23 MD 24 MA 25 MI 26 MN 27 MS 28 MO 29 MT 30 NE 31 NV 32 NH 33 NJ 34 NM 35 NY 36 NC 37 ND 38 OH 39 OK 40 OR 41 PA 42
RI 44 SC 45 SD 46 TN 47 TX 48 UT 49 VT 50 VA 51 WA 53 WV 54 WI 55 WY 56 PR 72""".split()  # noqa: SIM905
STATES = dict(zip(map(int, _STATES[1::2]), _STATES[::2], strict=True))  # names by the Census Bureau's numbers
GROUPS = {"state": None, "sex": "SEX", "race": "RAC1P"}


@dataclass(frozen=True)
class ACSIncome(PartitionedData):
    """ACS income: people in the American Community Survey, US states as groups; the label is an income above $50,000.

    `states` selects states, and each is split into `clients_per_state` clients. `group` makes state, sex or race the
    group; sex and race lie inside clients.
    """

    seed: int = 0  # of the clients and their test rows
    dir: str | None = None  # the data directory to search; default: E2FL_DATA, or the user's cache
    path: str | None = None  # a CSV, or a folder with folktables' files; default: search `dir`
    states: tuple[str, ...] | None = None  # such as ["AK", "NC"]; default: all that the files have
    clients_per_state: int = 5  # each state is split evenly among so many
    rows_per_client: int | None = None  # at most, drawn at random; default: all
    test_share: float = 0.2  # of each client's rows
    group: Literal["state", "sex", "race"] = "state"  # sex and race lie inside clients, and are then not inputs

    name = "acs_income"
    classes = 2
    label_names = ("<=50K", ">50K")

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ConfigError(f"data.group is one of {', '.join(GROUPS)}; not '{self.group}'")
        if self.clients_per_state < 1 or (self.rows_per_client is not None and self.rows_per_client < 2):
            raise ConfigError("data.clients_per_state must be at least 1, data.rows_per_client at least 2")
        if not 0 < self.test_share < 1:
            raise ConfigError(f"data.test_share must lie between 0 and 1, not {self.test_share}")

    @cached_property
    def source(self) -> Path:
        """The file or folder of the rows."""
        return existing(self.path) if self.path else _find(data_directory(self.dir))

    @cached_property
    def people(self) -> "People":
        people = read(self.source)
        if self.states is None:
            return people
        for state in self.states:
            if state not in people.states:
                raise ConfigError(f"{self.source} has no state '{state}'; it has: {', '.join(people.states)}")
        wanted = [people.states.index(state) for state in self.states]
        return people.take(np.flatnonzero(np.isin(people.state, wanted)))

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # depends on the settings
        return (len(NUMBERS) + sum(size for name, size in CATEGORIES.items() if name != GROUPS[self.group]),)

    @cached_property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        if self.group == "sex":
            return ("female", "male")  # 0 is the unprivileged group
        return self.people.states if self.group == "state" else ("not white", "white")

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known only once the data has been read
        people = self.people
        client = self._clients(people.state)
        rows = np.flatnonzero(client >= 0)
        names = {number: self._name(number) for number in np.unique(client[rows]).tolist()}
        sources = rows_by_client(client[rows], np.full(len(rows), UNDECIDED), names)
        clients, _, _ = split_clients(sources, test_share=self.test_share, seed=self.seed)
        people = people.take(rows)
        x = self._inputs(people, np.concatenate([found.train for found in clients]))
        if self.group == "state":
            clients = [
                ClientRows(found.name, found.train, found.test, int(people.state[found.train[0]])) for found in clients
            ]
            return Partition(Examples(x, people.y), tuple(clients), (), len(people.states))
        inside = (people.columns["SEX"] == 1) if self.group == "sex" else (people.columns["RAC1P"] == 1)
        return Partition(Examples(x, people.y, inside.astype(np.int64)), tuple(clients), (), 2)

    def about(self) -> dict[str, object]:
        return {
            "source": self.source.name,
            "rows": len(self.partitioned.examples),
            "states": list(self.people.states),
            "clients": len(self.partitioned.clients),
            "inputs": self.shape[0],
        }

    def _clients(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the client of each row; -1 for rows that are not used."""
        client = np.full(len(state), -1, dtype=np.int64)
        for number in np.unique(state).tolist():
            rows = stream(self.seed, "acs clients", number).permutation(np.flatnonzero(state == number))
            if len(rows) < 2 * self.clients_per_state:
                raise ConfigError(
                    f"state {self.people.states[number]} has {len(rows)} rows, too few for {self.clients_per_state} "
                    "clients; choose fewer clients_per_state, or leave the state out with states = [...]"
                )
            for place, chosen in enumerate(np.array_split(rows, self.clients_per_state)):
                client[chosen[: self.rows_per_client]] = number * self.clients_per_state + place
        return client

    def _name(self, client: int) -> str:
        state, place = divmod(client, self.clients_per_state)
        return f"{self.people.states[state]} {place + 1}"

    def _inputs(self, people: "People", train: NDArray[np.int64]) -> NDArray[np.float32]:
        columns = [standardised(people.columns[name].astype(np.float64), train)[:, None] for name in NUMBERS]
        for name, size in CATEGORIES.items():
            if name != GROUPS[self.group]:
                columns.append(np.eye(size, dtype=np.float32)[_category(name, people.columns[name], size)])
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class People:
    """The rows of all states."""

    states: tuple[str, ...]
    state: NDArray[np.int64]  # an index into `states`
    columns: dict[str, NDArray[np.int64]]  # -1 where a value is missing
    y: NDArray[np.int64]  # 1: more than 50,000 dollars

    def take(self, rows: NDArray[np.int64]) -> "People":
        """Return only these rows, and their states."""
        kept, state = np.unique(self.state[rows], return_inverse=True)
        columns = {name: values[rows] for name, values in self.columns.items()}
        return People(tuple(self.states[number] for number in kept), state.astype(np.int64), columns, self.y[rows])


def read(path: Path) -> People:
    """Return the rows of a CSV, or of all folktables files in a folder."""
    files = sorted(path.rglob("psam_p*.csv*")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} has no files psam_p*.csv of folktables")
    parts = [part for file in files for part in [_read_file(file)] if len(part)]
    if not parts:
        raise DataError(f"{path} has no rows of people who work")
    table = np.concatenate(parts)
    names = np.array([STATES[number] for number in table[:, 0].tolist()])
    states, state = np.unique(names, return_inverse=True)
    columns = {name: table[:, place] for place, name in enumerate(COLUMNS[:-1], 1)}
    return People(tuple(states.tolist()), state.astype(np.int64), columns, table[:, -1])


def _read_file(path: Path) -> NDArray[np.int64]:
    """Return [people, 12]: the number of the state, the columns, and the label."""
    regular_file(path)
    try:
        with _open(path) as file:
            rows = csv.reader(_bounded(file, path))
            header = [name.strip().upper() for name in next(rows, [])]
            shift = RELSHIPP if "RELSHIPP" in header else 0
            header = ["RELP" if name == "RELSHIPP" else name for name in header]
            raw = "STATE" not in header
            wanted = ["ST" if raw else "STATE", *COLUMNS]
            for name in wanted:
                if name not in header:
                    raise DataError(f"{path} has no column {name}; it must be a file of folktables or have {COLUMNS}")
            places = [header.index(name) for name in wanted]
            numbers = {name: number for number, name in STATES.items()}
            found = [_person(row, places, None if raw else numbers, path, rows.line_num) for row in rows]
    except (OSError, EOFError, csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    table = np.array(found, dtype=np.int64).reshape(-1, 1 + len(COLUMNS))
    relation = table[:, 1 + COLUMNS.index("RELP")]
    relation[relation >= 0] -= shift
    if raw:
        for name, least in FILTER.items():
            table = table[table[:, 1 + COLUMNS.index(name)] > least]
        table[:, -1] = table[:, -1] > INCOME
    if not np.isin(table[:, -1], (0, 1)).all():
        raise DataError(f"{path}: PINCP must be 0 or 1 where there is a column STATE")
    return table


def _person(
    row: Sequence[str], places: Sequence[int], states: dict[str, int] | None, path: Path, line: int
) -> list[int]:
    """Return the numbers in one row; -1 for empty cells."""
    try:
        cells = [row[place].strip() for place in places]
        if states is not None:
            cells[0] = str(states[cells[0]])
        found = [int(float(cell)) if cell else -1 for cell in cells]
        if found[0] not in STATES:
            raise ValueError(f"unknown state {found[0]}")
        return found
    except (IndexError, KeyError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: line {line} is not a row of ACS: {type(error).__name__}: {error}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _bounded(file: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file; raise an error if it unpacks to more than the limit."""
    left = FILE_LIMIT
    while line := file.readline(2**20):
        left -= len(line)
        if left < 0 or len(line) == 2**20:
            raise DataError(f"{path} has too long a line, or more than {FILE_LIMIT // 2**30} GiB")
        yield line


def _category(name: str, codes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the category of each code, 0 to size - 1; missing codes are in the last one."""
    if name == "OCCP":
        found = np.searchsorted(OCCUPATIONS, codes, side="right") - 1
    elif name == "POBP":
        found = np.minimum(codes // 100, size - 1)  # United States, Europe, Asia, Americas, Africa, Oceania
    else:
        found = codes if name == "RELP" else codes - 1
    if (found >= size).any():
        raise DataError(f"column {name} has the unknown code {codes[found >= size][0]}")
    return np.where(codes < 0, size - 1, np.maximum(found, 0))


def _find(home: Path) -> Path:
    for folder in (home / "acs", home):
        csvs = sorted(folder.glob("acs_income*.csv*")) if folder.is_dir() else []
        if csvs:
            return csvs[0]
        if folder.is_dir() and next(folder.rglob("psam_p*.csv*"), None) is not None:
            return folder
    raise DataError(
        f"no ACS files in {home / 'acs'}: download them there with folktables "
        "(ACSDataSource(survey_year='2018', horizon='1-Year', survey='person', root_dir=...).get_data(states=[...], "
        "download=True)), or name a CSV or folder with data.path"
    )
