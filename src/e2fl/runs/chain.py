"""The chain of elections: what was counted in every round, so that others can count it again.

elections.jsonl has a line of rules, then a line for each round: the digest of every ballot with its
client and group, of what each group elected, and of the global vote. A line ends with its own
digest and holds that of the line before, so none can be changed, left out or added alone. With
`keep_ballots`, the ballots of a round lie in ballots/, one after the other. recount.py checks both.
"""

import json
import os
from contextlib import nullcontext
from pathlib import Path

from e2fl.algorithms import Election
from e2fl.data.federated import ClientId
from e2fl.errors import RunError
from e2fl.files import (
    append_text,
    parse,
    read_bytes,
    read_text,
    remove,
    replacing,
    sha256,
    write_text,
)
from e2fl.rankings.order import Ranking
from e2fl.runs.records import Json

CHAIN = "elections.jsonl"
BALLOTS = "ballots"
RECEIPTS = "receipts.jsonl"  # what a client keeps of its ballots


class MismatchError(RunError):
    """A chain, a ballot, a result or a receipt that does not match the others."""


def require(matches: bool, what: str) -> None:
    """Raise `MismatchError` unless something matches."""
    if not matches:
        raise MismatchError(f"{what} does not match")


def canonical(ranking: Ranking) -> bytes:
    """Return the ranks of all layers, one after the other, as little-endian 32-bit integers."""
    return b"".join(rank.astype("<i4", copy=False).tobytes() for rank in ranking.values())


def digest_of(ranking: Ranking) -> str:
    """Return the digest under which the chain knows a ranking."""
    return sha256(canonical(ranking))


def receipt(round_number: int, client: ClientId, rankings: tuple[Ranking, ...]) -> str:
    """Return the line that a client keeps, to look for its ballots in the chain."""
    digests = [digest_of(ranking) for ranking in rankings]
    return json.dumps({"round": round_number, "client": client, "ballots": digests}) + "\n"


def read_chain(folder: Path) -> list[Json]:
    """Return the rules and the rounds, if no line was changed, left out or added."""
    if not (folder / CHAIN).is_file():
        raise RunError(f"{folder} holds no {CHAIN}: only runs of E2FL and FRL have elections")
    lines = _linked(read_bytes(folder / CHAIN))
    require(len(lines) > 1, CHAIN)
    return lines


def _linked(raw: bytes) -> list[Json]:
    """Return the lines of a chain; `MismatchError` names the first that does not belong there."""
    lines: list[Json] = []
    for number, text in enumerate(raw.splitlines(keepends=True)):
        try:
            line = parse(json.loads, text.decode())
            body = {key: line[key] for key in line if key != "digest"}
            written = json.dumps(line).encode() + b"\n" == text and line["round"] == number
            linked = line["previous"] == (lines[-1]["digest"] if lines else "")
            matches = written and linked and line["digest"] == _digest(body)
        except (ValueError, KeyError, TypeError):
            matches = False
        require(matches, f"line {number + 1} of {CHAIN}")
        lines.append(line)
    return lines


def check_receipts(folder: Path, receipts: Path) -> int:
    """Return how many rounds of a client are in the chain with its ballots; all must be."""
    _, *rounds = read_chain(folder)
    try:
        lines = [parse(json.loads, text) for text in read_text(receipts).splitlines()]
        kept = {line["round"]: line for line in lines}
        for number, own in kept.items():
            ballots = rounds[number - 1]["ballots"] if 1 <= number <= len(rounds) else []
            counted = [known for client, _, known in ballots if client == own["client"]]
            what = f"round {number}: the receipt of client {own['client']}"
            require(counted != [] and sorted(counted) == sorted(own["ballots"]), what)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{receipts} holds no receipts of a client ({error!r})") from error
    require(bool(kept), f"{receipts}, which is empty,")
    return len(kept)


class Chain:
    """The chain in the folder of a run."""

    def __init__(self, folder: Path, keep_ballots: bool):
        self.path, self.ballots = folder / CHAIN, folder / BALLOTS
        self.keep_ballots = keep_ballots
        self.head = ""  # the digest of the last line

    def begin(self, after: int) -> None:
        """Continue the chain after this round; what was recorded later is dropped."""
        lines: list[bytes] = []
        if after >= 1 and self.path.is_file():
            # The rules and a line for each round; a line that was being written comes later.
            lines = read_bytes(self.path).splitlines(keepends=True)[: after + 1]
            require(len(lines) == after + 1, CHAIN)
        self.head = _linked(b"".join(lines))[-1]["digest"] if lines else ""
        if lines:
            write_text(self.path, b"".join(lines).decode())
        else:
            remove(self.path)
        for path in self.ballots.glob("round-???????.bin"):
            if path.stem > f"round-{max(after, 0):07d}":
                remove(path)

    def add(self, number: int, election: Election) -> None:
        """Record the election of a round."""
        ballots = []
        spool = replacing(self.ballots / f"round-{number:07d}.bin")
        with (
            spool if self.keep_ballots else nullcontext(Path(os.devnull)) as path,
            path.open("wb") as file,
        ):
            for client, group, ranking in election.ballots():
                raw = canonical(ranking)
                file.write(raw)
                ballots.append([client, group, sha256(raw)])
        if not self.head:
            edges = {layer: len(rank) for layer, rank in election.global_ranking.items()}
            self._append({"round": 0, "layers": edges, **election.rules})
        elected = {str(group): digest_of(own) for group, own in sorted(election.elected.items())}
        voters, result = sorted(election.voters), digest_of(election.global_ranking)
        results = {"elected": elected, "voters": voters, "global": result}
        self._append({"round": number, "ballots": ballots, **results})

    def _append(self, line: Json) -> None:
        line = line | {"previous": self.head}
        self.head = _digest(line)
        append_text(self.path, json.dumps(line | {"digest": self.head}) + "\n")


def _digest(line: Json) -> str:
    return sha256(json.dumps(line).encode())
