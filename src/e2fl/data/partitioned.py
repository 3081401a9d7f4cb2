"""Rows of one array, dealt out to clients: what most data sets come down to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Population
from e2fl.data.partitioners import Rows, split_rows
from e2fl.errors import DataError
from e2fl.randomness import stream

TRAIN, TEST, UNDECIDED = 0, 1, 2  # what a row is for; undecided where the source does not say


@dataclass(frozen=True)
class Share:
    """Which rows are one client's."""

    name: str
    train: Rows
    test: Rows
    group: GroupId | None = None


@dataclass(frozen=True)
class Deal:
    """All rows, and whose they are."""

    rows: Examples
    shares: tuple[Share, ...]  # client number i has shares[i]
    newcomers: tuple[Share, ...] = ()  # kept out of training
    groups: int = 0  # how many there are, of clients or inside them; 0: not known
    pooled: Rows | None = None  # where all clients are tested on the same rows


class DealtData(FederatedData):
    """A data set that is a `Deal`; a client's rows are copied out when it is asked for."""

    dealt: Deal

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # known only when the data has been read
        declared = {number: share.group for number, share in enumerate(self.dealt.shares)}
        return Population(declared, self.dealt.groups)

    def client(self, number: ClientId) -> Client:
        return self._client(number, self.dealt.shares[number])

    def client_name(self, number: ClientId) -> str:
        return (self.dealt.shares + self.dealt.newcomers)[number].name

    def unseen(self) -> Mapping[ClientId, Client]:
        first = len(self.dealt.shares)
        return {first + place: self._client(first + place, share) for place, share in enumerate(self.dealt.newcomers)}

    @cached_property
    def _pooled(self) -> Examples | None:
        return None if self.dealt.pooled is None else self.dealt.rows.take(self.dealt.pooled)

    def _client(self, number: ClientId, share: Share) -> Client:
        rows = self.dealt.rows
        test = rows.take(share.test) if self._pooled is None else self._pooled
        return Client(number, rows.take(share.train), test, share.group)


@dataclass(frozen=True)
class Owner:
    """The rows of one client, by what they are for."""

    name: str
    rows: Mapping[int, Rows]  # TRAIN, TEST, UNDECIDED

    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.values())


def owners(client: NDArray[Any], split: NDArray[Any], names: Mapping[Any, str] | None = None) -> list[Owner]:
    """Whose rows are whose, in the order of the clients' values."""
    order = np.argsort(client, kind="stable")
    values, starts = np.unique(client[order], return_index=True)
    found = []
    for value, rows in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
        parts = {purpose: rows[split[rows] == purpose] for purpose in (TRAIN, TEST, UNDECIDED)}
        found.append(Owner(str(value) if names is None else names[value], parts))
    return found


def share_out(
    found: list[Owner], *, test_share: float, seed: int, min_samples: int = 2
) -> tuple[list[Share], list[Share], list[str]]:
    """Clients, newcomers, and the names of those who are neither.

    Rows that are undecided are split at random, client by client. Who has rows to test with but none to train with is
    a newcomer: half of its rows are to find its group with, the other half to test with; a single row is to test with.
    Who has fewer than `min_samples` is a newcomer too; what the source has for testing then stays for testing. Who has
    none to test with is left out.
    """
    shares, newcomers, left_out = [], [], []
    for place, owner in enumerate(found):
        train, test, undecided = (owner.rows[purpose] for purpose in (TRAIN, TEST, UNDECIDED))
        if len(undecided):
            if len(undecided) == 1:
                test = np.concatenate([test, undecided])
            else:
                more_train, more_test = split_rows(undecided, test_share, stream(seed, "client test", place))
                train, test = np.concatenate([train, more_train]), np.concatenate([test, more_test])
        if not len(test):
            left_out.append(owner.name)
        elif not len(train) or owner.count() < min_samples:
            if not (len(train) and len(owner.rows[TEST])):
                rows, rng = np.concatenate([train, test]), stream(seed, "newcomer", place)
                train, test = split_rows(rows, 0.5, rng) if len(rows) > 1 else (rows[:0], rows)
            newcomers.append(Share(owner.name, train, test))
        else:
            shares.append(Share(owner.name, train, test))
    if not shares and not left_out:
        raise DataError("no client has both rows to train and rows to test with")
    return shares, newcomers, left_out
