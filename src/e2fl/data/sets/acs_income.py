"""ACS income: people in the American Community Survey; the label is an income above $50,000.

The task ACSIncome of Ding et al., "Retiring Adult: New Datasets for Fair Machine Learning", 2021,
from the files that their package folktables downloads (psam_p*.csv, one for each state; the task's
filter is applied here), or from one CSV with STATE and the other `COLUMNS`, where PINCP is 0 or 1
already. Both may be compressed with gzip.

Numbers are standardised with the training rows. The other columns are one-hot, with the categories
of the Census Bureau's dictionary and not of the rows: occupations in its 26 major groups, places of
birth by continent.
"""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.federated import Directory, Examples, Partition, PartitionedData, split_clients
from e2fl.data.files import data_directory, existing
from e2fl.data.sets.adult import standardised
from e2fl.errors import DataError, reason_of, require_setting
from e2fl.randomness import stream

CODES = tomllib.loads((files("e2fl.data.sets") / "acs_income.toml").read_text(encoding="utf-8"))
CATEGORIES: dict[str, int] = CODES["categories"]  # their number, by column
STATES = {int(number): name for number, name in CODES["states"].items()}
NUMBERS = ("AGEP", "SCHL", "WKHP")  # age, schooling, hours a week
COLUMNS = (*NUMBERS, *CATEGORIES, "PINCP")
RELSHIPP = 20  # the first code of this column, which replaced RELP in 2019
INCOME = 50_000
FILTER = {"AGEP": 16, "PINCP": 100, "WKHP": 0}  # folktables keeps people above these
# 0 is the unprivileged group.
GROUP_NAMES = {"sex": ("female", "male"), "race": ("not white", "white")}
GROUPS = {"state": "", "sex": "SEX", "race": "RAC1P"}


@dataclass(frozen=True)
class ACSIncome(PartitionedData):
    """ACS income: people in US states; the label is an income above $50,000.

    `states` selects states, and each is split into `clients_per_state` clients. `group` makes
    state, sex or race the group; sex and race lie inside clients.
    """

    seed: Annotated[int, Doc("of the clients and their test rows")] = 0
    dir: Directory = None
    path: Annotated[
        str | None, Doc("a CSV, or a folder with folktables' files; default: search `dir`")
    ] = None
    states: Annotated[
        tuple[str, ...] | None, Doc('such as ["AK", "NC"]; default: all that the files have')
    ] = None
    clients_per_state: Annotated[int, Doc("each state is split evenly among so many")] = 5
    rows_per_client: Annotated[int | None, Doc("at most, drawn at random; default: all")] = None
    test_share: Annotated[float, Doc("of each client's rows")] = 0.2
    group: Annotated[
        Literal["state", "sex", "race"],
        Doc("sex and race lie inside clients, and are then not inputs"),
    ] = "state"

    name = "acs_income"
    classes = 2
    label_names = ("<=50K", ">50K")

    @cached_property
    def source(self) -> Path:
        """The file or folder of the rows."""
        return existing(self.path) if self.path else _find(data_directory(self.dir))

    @cached_property
    def people(self) -> pd.DataFrame:
        """The rows: STATE by name, the columns by their codes (-1 if missing), and PINCP."""
        people = read(self.source)
        known = sorted(set(people["STATE"]))
        chosen = self.states or known
        rule = f"of {', '.join(known)}"
        require_setting({*chosen} <= {*known}, "data.states", rule, ", ".join(chosen))
        return people[people["STATE"].isin(chosen)].reset_index(drop=True)

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The states that are used, in alphabetical order."""
        return tuple(sorted(set(self.people["STATE"])))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # known once the data is read
        return self.partitioned.examples.x.shape[1:]

    @property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return GROUP_NAMES.get(self.group, self.state_names)

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        people, y = self.people, self.people["PINCP"].to_numpy()
        state = pd.factorize(people["STATE"], sort=True)[0]
        numbers = range(1, self.clients_per_state + 1)
        declared = self.group == "state"
        clients, _, _ = split_clients(
            self._clients(state),
            seed=self.seed,
            test_share=self.test_share,
            names=[f"{state} {number}" for state in self.state_names for number in numbers],
            group=state if declared else None,
        )
        x = self._inputs(np.concatenate([rows.train for rows in clients]))
        inside = None if declared else (people[GROUPS[self.group]] == 1).to_numpy().astype(np.int64)
        groups = len(self.state_names) if declared else 2
        return Partition(Examples(x, y, inside), tuple(clients), (), groups)

    def about(self) -> dict[str, object]:
        clients = self.partitioned.clients
        return {
            "source": self.source.name,
            "rows": sum(len(rows.all()) for rows in clients),
            "states": list(self.state_names),
            "clients": len(clients),
            "inputs": self.shape[0],
        }

    def _clients(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the client of each row; -1 for rows that are not used."""
        client = np.full(len(state), -1, dtype=np.int64)
        for number, name in enumerate(self.state_names):
            draw = stream(self.seed, "acs clients", number)
            rows = draw.permutation(np.flatnonzero(state == number))
            most = len(rows) // 2
            rule = f"at most {most}, for state {name} has {len(rows)} rows"
            wanted = self.clients_per_state
            require_setting(wanted <= most, "data.clients_per_state", rule, wanted)
            for position, chosen in enumerate(np.array_split(rows, self.clients_per_state)):
                client[chosen[: self.rows_per_client]] = number * self.clients_per_state + position
        return client

    def _inputs(self, train: NDArray[np.int64]) -> NDArray[np.float32]:
        columns = [
            standardised(self.people[name].to_numpy(dtype=np.float64), train)[:, None]
            for name in NUMBERS
        ]
        for name, size in CATEGORIES.items():
            if name != GROUPS[self.group]:
                codes = _category(name, self.people[name].to_numpy(), size)
                columns.append(np.eye(size, dtype=np.float32)[codes])
        return np.concatenate(columns, axis=1)


def read(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV, or of all folktables files in a folder."""
    paths = sorted(path.rglob("psam_p*.csv*")) if path.is_dir() else [path]
    people = pd.concat([pd.DataFrame(), *map(_read_file, paths)], ignore_index=True)
    if not len(people):
        raise DataError(f"{path} has no rows of people who work: it needs psam_p*.csv or a CSV")
    return people


def _read_file(path: Path) -> pd.DataFrame:
    """Return STATE, the columns as integers, and the label in PINCP."""
    wanted = {"ST", "STATE", "RELSHIPP", *COLUMNS}
    try:
        people = pd.read_csv(path, usecols=lambda name: name in wanted)
        raw = "STATE" not in people
        if raw:
            people["STATE"] = people["ST"].astype(int).map(STATES)
        if "RELSHIPP" in people:
            people["RELP"] = people["RELSHIPP"] - RELSHIPP
        people = people[["STATE", *COLUMNS]]
        people[list(COLUMNS)] = people[list(COLUMNS)].fillna(-1).astype(np.int64)
    except Exception as error:  # whatever pandas does with another or a damaged file
        reason = f"is not a file of folktables, nor one with STATE: {reason_of(error)}"
        raise DataError(f"{path} {reason}") from error
    if raw:
        for name, least in FILTER.items():
            people = people[people[name] > least]
        people["PINCP"] = (people["PINCP"] > INCOME).astype(np.int64)
    if not (people["STATE"].isin(STATES.values()) & people["PINCP"].isin((0, 1))).all():
        raise DataError(f"{path} has an unknown state, or a PINCP other than 0 and 1")
    return people


def _category(name: str, codes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the category of each code, 0 to size - 1; missing codes are in the last one."""
    if name == "OCCP":
        category = np.searchsorted(CODES["occupations"], codes, side="right") - 1
    elif name == "POBP":  # United States, Europe, Asia, Americas, Africa, Oceania
        category = np.minimum(codes // 100, size - 1)
    else:
        category = codes if name == "RELP" else codes - 1
    if (category >= size).any():
        raise DataError(f"column {name} has the unknown code {codes[category >= size][0]}")
    return np.where(codes < 0, size - 1, np.maximum(category, 0))


def _find(home: Path) -> Path:
    for folder in (home / "acs", home):
        if csvs := sorted(folder.glob("acs_income*.csv*")):
            return csvs[0]
        if any(folder.rglob("psam_p*.csv*")):
            return folder
    raise DataError(
        f"no ACS files in {home / 'acs'}: download them there with folktables, as docs/data.md "
        "shows, or name a CSV or folder with data.path"
    )
