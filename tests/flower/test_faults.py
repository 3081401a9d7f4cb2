"""Flower with bad replies, or too few of them; all in one process."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score, Tally
from e2fl.flower import transport
from e2fl.flower.client import client_app
from e2fl.flower.records import (
    METADATA,
    Work,
    read_reply,
    reply_content,
    reply_parts,
    require_reply,
)
from e2fl.flower.scores import score_parts
from e2fl.flower.server import run_on
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.runs.runner import run_experiment
from e2fl.runs.watcher import Watcher
from tests.flower.grid import QUICK, LocalGrid, Misbehaviour, with_all_clients
from tests.flower.test_runtimes_agree import on_flower, plain


def misbehaving(
    kind: str, act: Callable[[Message, Message], list[Message]], client: int = 3
) -> Misbehaviour:
    """Let the node of one client act differently on messages of this type."""

    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        if partition == client and message.metadata.message_type.startswith(kind):
            return act(message, honest)
        return [honest]

    return misbehave


def changed(honest: Message, record: str, **values: Any) -> RecordDict:
    """Return a reply with other values in one record; None removes a value."""
    kept = {**honest.content[record], **values}
    stated = {name: value for name, value in kept.items() if value is not None}
    return RecordDict({**dict(honest.content), record: ConfigRecord(stated)})


def with_payload(values: np.ndarray, honest: Message) -> RecordDict:
    payload = ArrayRecord({"bytes": Array(values)})
    return RecordDict({**dict(honest.content), "payload-3": payload})


def without(honest: Message, *kept: str) -> RecordDict:
    """Return a reply with these records only."""
    return RecordDict({name: honest.content[name] for name in kept})


def flipped(honest: Message) -> np.ndarray:
    raw = honest.content["payload-3"]["bytes"].numpy().copy()
    raw[len(raw) // 2] ^= 1
    return raw


Act = Callable[[Message, Message], list[Message]]


def replying(make: Callable[[Message], RecordDict]) -> Act:
    """Reply with other content."""
    return lambda message, honest: [Message(make(honest), reply_to=message)]


def failing(code: int, reason: str) -> Act:
    """Let Flower reply with an error."""
    return lambda message, honest: [Message(Error(code, reason), reply_to=message)]


FAULTS: dict[str, tuple[str, Act]] = {
    "an error from the client": ("failed", failing(2, "boom")),
    "a failure of the client": (
        "failed",
        replying(lambda h: RecordDict({**dict(h.content), "error-3": ConfigRecord({})})),
    ),
    "a dead process": ("lost", failing(8, "ClientApp stopped responding")),
    "a node that is gone": ("lost", failing(5, "Node Unavailable")),
    "no reply": ("missing", lambda m, h: []),
    "another client's id": ("impostor", replying(lambda h: changed(h, METADATA, clients=[4]))),
    "one more client": ("impostor", replying(lambda h: changed(h, METADATA, clients=[3, 4]))),
    "another round": ("malformed", replying(lambda h: changed(h, METADATA, round_number=99))),
    "no metadata": (
        "malformed",
        replying(lambda h: without(h, *(name for name in h.content if name != METADATA))),
    ),
    "nothing else": ("malformed", replying(lambda h: without(h, METADATA))),
    "nothing at all": ("malformed", replying(lambda h: RecordDict())),
    "other records": (
        "malformed",
        replying(lambda h: RecordDict({METADATA: MetricRecord({"a": 1})})),
    ),
}
BAD_PAYLOADS: dict[str, tuple[str, Act]] = {
    "a flipped bit": ("malformed", replying(lambda h: with_payload(flipped(h), h))),
    "no bytes": ("malformed", replying(lambda h: with_payload(np.zeros(0, np.uint8), h))),
    "floats": ("malformed", replying(lambda h: with_payload(np.ones(64), h))),
    "a table": ("malformed", replying(lambda h: with_payload(np.zeros((4, 4), np.uint8), h))),
}


NOT_INTEGERS = [None, "1", 1.0, True]
ABSURD: list[tuple[str, object]] = [
    *(
        ("grouping_passes", value)
        for value in ("1", True, math.nan, math.inf, -1.0, -math.inf, 1e308, 1.1e9)
    ),
    *(("ballot_bits", value) for value in ("1", True, math.nan, math.inf, -1.0, 1.1e15)),
    *(("trained_examples", value) for value in ("1", 1.0, True, -1, 2**53 + 1, -(2**63))),
    *(("examples", value) for value in ("1", 1.0, True, 0, -1, 2**53 + 1, 2**63 - 1)),
    *(("training_loss", value) for value in ("1", True, [1.0])),
    ("unknown", 1),
]


@pytest.mark.parametrize(("name", "value"), ABSURD)
def test_absurd_values_in_a_reply_are_rejected(name: str, value: object) -> None:
    work = Work(trained_examples=40, grouping_passes=1.0, ballot_bits=9.5, examples=20)
    honest = reply_content({3: reply_parts(b"raw", work)}, 2)
    require_reply(honest, [3], 2)
    assert read_reply(honest, 3) == (b"raw", work)
    claim = ConfigRecord({**honest["work-3"], name: value})
    with pytest.raises(WireError):
        read_reply(RecordDict({**dict(honest), "work-3": claim}), 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("clients", value) for value in (None, 3, "3", [], [3.0], [True], [3, 3])),
        *(("round_number", value) for value in (*NOT_INTEGERS, 2**63 - 1, -1)),
    ],
)
def test_absurd_metadata_of_a_reply_are_rejected(name: str, value: Any) -> None:
    honest = reply_content({3: reply_parts(b"raw", Work())}, 2)
    values = {key: kept for key, kept in honest[METADATA].items() if key != name}
    claim = ConfigRecord(values if value is None else {**values, name: value})
    with pytest.raises(WireError):
        require_reply(RecordDict({**dict(honest), METADATA: claim}), [3], 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("grouping_passes", 1e308), ("trained_examples", 2**63 - 1), ("examples", 0)],
)
def test_a_client_that_reports_absurd_work_is_left_out_of_the_round_and_of_the_totals(
    name: str, value: object, toy: Experiment, tmp_path: Path
) -> None:
    def act(message: Message, honest: Message) -> list[Message]:
        return [Message(changed(honest, "work-3", **{name: value}), reply_to=message)]

    experiment = replace(with_all_clients(toy), rounds=1)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("train", act))
    silent = on_flower(
        experiment, tmp_path / "silent", QUICK, misbehave=misbehaving("train", lambda m, h: [])
    )
    assert run.history[0]["faults"] == {"malformed": 1}
    assert run.history[0]["answered"] == 7
    assert plain(run.state) == plain(silent.state)
    same = [
        {key: value for key, value in line.items() if key != "faults"}
        for line in (*run.history, *silent.history)
    ]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", FAULTS | BAD_PAYLOADS)
def test_a_bad_reply_is_counted_by_kind_and_the_others_decide(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    kind, act = (FAULTS | BAD_PAYLOADS)[name]
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("train", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}] * 3
    assert [(line["asked"], line["answered"]) for line in run.history] == [(8, 7)] * 3
    silent = on_flower(
        with_all_clients(toy),
        tmp_path / "silent",
        QUICK,
        misbehave=misbehaving("train", lambda m, h: []),
    )
    assert plain(run.state) == plain(silent.state)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_score_is_counted_by_kind_and_left_out(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    kind, act = FAULTS[name]
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("evaluate", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}] * 3
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]


def test_a_client_cannot_vote_twice(toy: Experiment, tmp_path: Path) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, Message(RecordDict(dict(honest.content)), reply_to=message)]

    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("train", twice))
    assert [line["faults"] for line in run.history] == [{"repeated": 1}] * 3
    assert plain(run.state) == plain(run_experiment(with_all_clients(toy)).state)


def test_a_late_reply_is_not_used_in_the_next_round(toy: Experiment, tmp_path: Path) -> None:
    late: dict[str, list[Message]] = {}

    def delay(message: Message, honest: Message) -> list[Message]:
        grid.replies.update(late)
        late.clear()
        late[message.metadata.message_id] = [honest]
        return []

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    misbehave = misbehaving("train", delay)
    grid = LocalGrid(
        client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave
    )
    run = run_on(grid, with_all_clients(toy), QUICK)
    assert [line["faults"] for line in run.history] == [{"missing": 1}] * 3
    silent = misbehaving("train", lambda m, h: [])
    assert plain(run.state) == plain(
        on_flower(with_all_clients(toy), tmp_path / "silent", QUICK, misbehave=silent).state
    )


def to_another_message(message: Message, honest: Message) -> list[Message]:
    """Client 3 claims to reply to the message sent to client 4, which is the next."""
    position = int(message.metadata.message_id.removeprefix("message-"))
    reply = Message(changed(honest, METADATA, clients=[4]), reply_to=message)
    reply.metadata.__dict__["_reply_to_message_id"] = f"message-{position + 1}"
    return [reply]


def of_another_run(message: Message, honest: Message) -> list[Message]:
    honest.metadata.__dict__["_reply_to_message_id"] = "of another run"
    return [honest]


@pytest.mark.parametrize("act", [to_another_message, of_another_run])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_reply_counts_for_the_message_it_was_pulled_for_whatever_it_claims(
    act: Callable[[Message, Message], list[Message]], kind: str, toy: Experiment, tmp_path: Path
) -> None:
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving(kind, act))
    silent = on_flower(
        with_all_clients(toy),
        tmp_path / "silent",
        QUICK,
        misbehave=misbehaving(kind, lambda m, h: []),
    )
    assert [line["faults"] for line in run.history] == [{"impostor": 1}] * 3
    assert run.clients == silent.clients
    assert plain(run.state) == plain(silent.state)


@pytest.mark.parametrize("act", [to_another_message, of_another_run])
def test_the_strategy_does_not_trust_the_claim_either(
    act: Callable[[Message, Message], list[Message]], toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())

    def states(act: Callable[[Message, Message], list[Message]]) -> tuple[dict[str, Any], object]:
        misbehave = misbehaving("train", act)
        grid = LocalGrid(
            client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave
        )
        strategy = AlgorithmStrategy(with_all_clients(toy), QUICK)
        result = strategy.start(grid, timeout=0.05)
        return dict(result.train_metrics_clientapp[1]), plain(strategy.state)

    metrics, state = states(act)
    assert metrics == {"asked": 8, "answered": 7, "faults-impostor": 1}
    assert state == states(lambda m, h: [])[1]


def test_a_second_reply_that_names_another_message_is_an_impostor_too(
    toy: Experiment, tmp_path: Path
) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, *to_another_message(message, honest)]

    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("train", twice))
    assert [line["faults"] for line in run.history] == [{"impostor": 1}] * 3
    assert plain(run.state) == plain(run_experiment(with_all_clients(toy)).state)


def test_a_reply_that_flower_cannot_read_affects_no_other(toy: Experiment, tmp_path: Path) -> None:
    class Poisoned(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            found = super().pull_messages(message_ids)
            if any(
                m.metadata.src_node_id == 1000 and m.metadata.message_type == "train" for m in found
            ):
                raise ValueError("no such class")
            return found

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = Poisoned(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    assert [line["faults"] for line in run_on(grid, with_all_clients(toy), QUICK).history] == [
        {"malformed": 1}
    ] * 3


class Unfinished(LocalGrid):
    """Client 3 starts to upload its first reply, and does not finish until it is released."""

    def __init__(self, experiment: Experiment, folder: Path):
        path = folder / "experiment.toml"
        path.write_text(experiment.to_toml())
        super().__init__(client_app(path), range(8), node_config={"memory": str(folder)})
        self.stuck = ""
        self.release = threading.Event()
        self.timed_out = False

    def pull_messages(self, message_ids: Any) -> list[Message]:
        (name,) = message_ids
        (sent,) = [message for message in self.sent if message.metadata.message_id == name]
        node = self.contexts[sent.metadata.dst_node_id]
        if sent.metadata.message_type == "train" and node.node_config["partition-id"] == 3:
            self.stuck = self.stuck or name
        if name == self.stuck:
            self.timed_out = not self.release.wait(600)
        return super().pull_messages([name])


def test_an_endless_upload_delays_no_other_client(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "GRACE_SECONDS", 2.0)
    grid = Unfinished(with_all_clients(toy), tmp_path)

    class Release(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 2:
                grid.release.set()

    run = run_on(grid, with_all_clients(toy), QUICK, watcher=Release())
    assert not grid.timed_out
    # Only the reply being uploaded is missing; when it is complete, it changes nothing.
    assert [line["faults"] for line in run.history] == [{"missing": 1}, {}, {}]
    assert [line["answered"] for line in run.history] == [7, 8, 8]
    silent = misbehaving(
        "train", lambda m, h: [] if h.content[METADATA]["round_number"] == 1 else [h]
    )
    assert plain(run.state) == plain(
        on_flower(with_all_clients(toy), tmp_path / "silent", QUICK, misbehave=silent).state
    )


def test_an_endless_upload_does_not_delay_the_strategy(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "GRACE_SECONDS", 2.0)
    grid = Unfinished(with_all_clients(toy), tmp_path)
    result = AlgorithmStrategy(with_all_clients(toy), QUICK).start(grid, timeout=0.05)
    grid.release.set()
    assert not grid.timed_out
    assert dict(result.train_metrics_clientapp[1]) == {
        "asked": 8,
        "answered": 7,
        "faults-missing": 1,
    }
    assert dict(result.train_metrics_clientapp[2]) == {"asked": 8, "answered": 8}


def test_a_round_with_too_few_replies_changes_nothing(toy: Experiment, tmp_path: Path) -> None:
    misbehave = misbehaving("train", lambda m, h: [])
    with pytest.raises(RunError, match="nothing was learned; the last reason was: few: 7 replies"):
        on_flower(
            with_all_clients(toy), tmp_path, replace(QUICK, least_answers=8), misbehave=misbehave
        )


def test_a_group_with_too_few_replies_is_left_out(toy: Experiment, tmp_path: Path) -> None:
    misbehave = misbehaving(
        "train", lambda m, h: []
    )  # client 3, of group 1, which has three others
    run = on_flower(
        with_all_clients(toy),
        tmp_path,
        replace(QUICK, least_answers_per_group=4),
        misbehave=misbehave,
    )
    assert run.history[0]["faults"] == {"few": 3, "missing": 1}
    assert run.history[0]["answered"] == 4
    assert sorted(run.state.groups) == [0]


def test_a_group_without_replies_does_not_end_a_run(toy: Experiment, tmp_path: Path) -> None:
    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if partition % 2 and message.metadata.message_type == "train" else [honest]

    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehave)
    assert run.history[0]["faults"] == {"missing": 4}
    assert sorted(run.state.groups) == [0]


def test_a_run_in_which_no_client_ever_replies_fails(toy: Experiment, tmp_path: Path) -> None:
    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        return (
            [Message(Error(2, "boom"), reply_to=message)]
            if message.metadata.message_type == "train"
            else [honest]
        )

    with pytest.raises(RunError, match="nothing was learned; the last reason was: failed: boom"):
        on_flower(toy, tmp_path, QUICK, misbehave=misbehave)


def test_a_run_in_which_no_client_can_be_evaluated_fails(toy: Experiment, tmp_path: Path) -> None:
    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if message.metadata.message_type == "evaluate" else [honest]

    with pytest.raises(RunError, match="no client could"):
        on_flower(toy, tmp_path, QUICK, misbehave=misbehave)


def test_a_client_with_other_views_than_most_does_not_spoil_the_evaluation(
    toy: Experiment, tmp_path: Path
) -> None:
    experiment = with_all_clients(toy)

    def other(honest: Message) -> RecordDict:
        score = Score({"mine": {1: Tally(10, 10)}})
        return reply_content({3: score_parts(score)}, honest.content[METADATA]["round_number"])

    act = misbehaving("evaluate", replying(other))
    run = on_flower(experiment, tmp_path, QUICK, misbehave=act)
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert len(run.clients) == 7


LIES: list[tuple[str, dict[str, Any]]] = [
    ("e2fl", {"group": -1}),
    ("e2fl", {"group": 0}),  # client 3 is in group 1
    ("e2fl", {"group": 2**31 - 1}),
    ("ifca", {"group": -1}),
    ("ifca", {"group": 2}),
    ("ifca", {"grouping_passes": 1e308}),
    ("fedavg", {"group": 0}),
    ("fedavg", {"group": 2**31 - 1}),
    ("local", {"group": 0}),
]


@pytest.mark.parametrize(("name", "lie"), LIES)
def test_a_client_that_lies_about_its_group_or_its_work_is_left_out_of_the_evaluation(
    name: str, lie: dict[str, Any], toy: Experiment, tmp_path: Path
) -> None:
    experiment = replace(toy.variant(name), rounds=1)
    act = replying(lambda honest: changed(honest, "score-3", **lie))
    config = replace(QUICK, out=str(tmp_path / "run"))
    run = on_flower(experiment, tmp_path, config, misbehave=misbehaving("evaluate", act))
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]
