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
from e2fl.flower.evaluation_message import EvaluationMessage
from e2fl.flower.records import METADATA, PAYLOAD, Reply, read_reply, reply_content
from e2fl.flower.server import run_on
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.learning.learner import Meter
from e2fl.runs.runner import Watcher, run_experiment
from tests.flower_grid import QUICK, LocalGrid, Misbehaviour, with_all_clients
from tests.test_runtimes_agree import on_flower, plain


def misbehaving(kind: str, act: Callable[[Message, Message], list[Message]], client: int = 3) -> Misbehaviour:
    """Let the node of one client act differently on messages of this type."""

    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        if partition == client and message.metadata.message_type.startswith(kind):
            return act(message, honest)
        return [honest]

    return misbehave


def content(honest: Message, **values: object) -> RecordDict:
    """Return a reply with other metadata."""
    return RecordDict(
        {PAYLOAD: honest.content[PAYLOAD], METADATA: ConfigRecord({**honest.content[METADATA], **values})}
    )


def payload(values: np.ndarray, honest: Message) -> RecordDict:
    return RecordDict({PAYLOAD: ArrayRecord({"bytes": Array(values)}), METADATA: honest.content[METADATA]})


def flipped(honest: Message) -> np.ndarray:
    raw = honest.content[PAYLOAD]["bytes"].numpy().copy()
    raw[len(raw) // 2] ^= 1
    return raw


FAULTS: dict[str, tuple[str, Callable[[Message, Message], list[Message]]]] = {
    "an error from the client": ("failed", lambda m, h: [Message(Error(2, "boom"), reply_to=m)]),
    "a dead process": ("lost", lambda m, h: [Message(Error(8, "ClientApp stopped responding"), reply_to=m)]),
    "a node that is gone": ("lost", lambda m, h: [Message(Error(5, "Node Unavailable"), reply_to=m)]),
    "no reply": ("missing", lambda m, h: []),
    "another client's id": ("impostor", lambda m, h: [Message(content(h, client_id=4), reply_to=m)]),
    "another round": ("malformed", lambda m, h: [Message(content(h, round_number=99), reply_to=m)]),
    "no metadata": ("malformed", lambda m, h: [Message(RecordDict({PAYLOAD: h.content[PAYLOAD]}), reply_to=m)]),
    "nothing at all": ("malformed", lambda m, h: [Message(RecordDict(), reply_to=m)]),
    "other records": ("malformed", lambda m, h: [Message(RecordDict({METADATA: MetricRecord({"a": 1})}), reply_to=m)]),
    "a flipped bit": ("malformed", lambda m, h: [Message(payload(flipped(h), h), reply_to=m)]),
    "no bytes": ("malformed", lambda m, h: [Message(payload(np.zeros(0, np.uint8), h), reply_to=m)]),
    "floats": ("malformed", lambda m, h: [Message(payload(np.ones(64), h), reply_to=m)]),
    "a table": ("malformed", lambda m, h: [Message(payload(np.zeros((4, 4), np.uint8), h), reply_to=m)]),
}


NOT_INTEGERS = [None, "1", 1.0, True]
ABSURD: list[tuple[str, object]] = [
    *(("grouping_passes", value) for value in (None, "1", 1, True, math.nan, math.inf, -1.0, -math.inf, 1e308, 1.1e9)),
    *(("ballot_bits", value) for value in (None, "1", 1, True, math.nan, math.inf, -1.0, 1.1e15)),
    *(("trained_examples", value) for value in (*NOT_INTEGERS, -1, 2**53 + 1, 2**63 - 1, -(2**63))),
    *(("examples", value) for value in (*NOT_INTEGERS, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63))),
    *(("client_id", value) for value in NOT_INTEGERS),
    *(("round_number", value) for value in (*NOT_INTEGERS, 2**63 - 1, -1)),
]


@pytest.mark.parametrize(("name", "value"), ABSURD)
def test_absurd_values_in_a_reply_are_rejected(name: str, value: object) -> None:
    honest = reply_content(b"raw", 3, 2, Meter(40, 1.0, 9.5), 20)
    assert read_reply(honest, 3, 2) == Reply(b"raw", Meter(40, 1.0, 9.5), 20)
    values = {key: kept for key, kept in honest[METADATA].items() if key != name}
    claim = ConfigRecord(values if value is None else {**values, name: value})
    with pytest.raises(WireError):
        read_reply(RecordDict({PAYLOAD: honest[PAYLOAD], METADATA: claim}), 3, 2)


@pytest.mark.parametrize(
    ("name", "value"), [("grouping_passes", 1e308), ("trained_examples", 2**63 - 1), ("examples", 0)]
)
def test_a_client_that_reports_absurd_work_is_left_out_of_the_round_and_of_the_totals(
    name: str, value: object, toy: Experiment, tmp_path: Path
) -> None:
    def act(message: Message, honest: Message) -> list[Message]:
        return [Message(content(honest, **{name: value}), reply_to=message)]

    experiment = replace(with_all_clients(toy), rounds=1)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("train", act))
    silent = on_flower(experiment, tmp_path / "silent", QUICK, misbehave=misbehaving("train", lambda m, h: []))
    assert run.history[0]["faults"] == {"malformed": 1}
    assert run.history[0]["answered"] == 7
    assert plain(run.state) == plain(silent.state)
    same = [{key: value for key, value in line.items() if key != "faults"} for line in (*run.history, *silent.history)]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_reply_is_counted_by_kind_and_the_others_decide(name: str, toy: Experiment, tmp_path: Path) -> None:
    kind, act = FAULTS[name]
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("train", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}] * 3
    assert [(line["asked"], line["answered"]) for line in run.history] == [(8, 7)] * 3
    silent = on_flower(
        with_all_clients(toy), tmp_path / "silent", QUICK, misbehave=misbehaving("train", lambda m, h: [])
    )
    assert plain(run.state) == plain(silent.state)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_score_is_counted_by_kind_and_left_out(name: str, toy: Experiment, tmp_path: Path) -> None:
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
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave)
    assert [line["faults"] for line in run_on(grid, with_all_clients(toy), QUICK).history] == [
        {"missing": 1},
        {"late": 1, "missing": 1},
        {"late": 1, "missing": 1},
    ]


def to_another_message(message: Message, honest: Message) -> list[Message]:
    """Client 3 claims to reply to the message sent to client 4, which is the next."""
    position = int(message.metadata.message_id.removeprefix("message-"))
    reply = Message(content(honest, client_id=4), reply_to=message)
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
    silent = on_flower(with_all_clients(toy), tmp_path / "silent", QUICK, misbehave=misbehaving(kind, lambda m, h: []))
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
        grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave)
        strategy = AlgorithmStrategy(with_all_clients(toy), QUICK)
        result = strategy.start(grid, timeout=0.05)
        return dict(result.train_metrics_clientapp[1]), plain(strategy.state)

    metrics, state = states(act)
    assert metrics == {"asked": 8, "answered": 7, "faults-impostor": 1}
    assert state == states(lambda m, h: [])[1]


def test_a_second_reply_that_names_another_message_is_an_impostor_too(toy: Experiment, tmp_path: Path) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, *to_another_message(message, honest)]

    run = on_flower(with_all_clients(toy), tmp_path, QUICK, misbehave=misbehaving("train", twice))
    assert [line["faults"] for line in run.history] == [{"impostor": 1}] * 3
    assert plain(run.state) == plain(run_experiment(with_all_clients(toy)).state)


def test_a_reply_that_flower_cannot_read_affects_no_other(toy: Experiment, tmp_path: Path) -> None:
    class Poisoned(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            found = super().pull_messages(message_ids)
            if any(m.metadata.src_node_id == 1000 and m.metadata.message_type == "train" for m in found):
                raise ValueError("no such class")
            return found

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = Poisoned(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    assert [line["faults"] for line in run_on(grid, with_all_clients(toy), QUICK).history] == [{"malformed": 1}] * 3


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
    # Only the reply being uploaded is missing; when it is complete, it is late and changes nothing.
    assert [line["faults"] for line in run.history] == [{"missing": 1}, {}, {"late": 1}]
    assert [line["answered"] for line in run.history] == [7, 8, 8]
    silent = misbehaving("train", lambda m, h: [] if h.content[METADATA]["round_number"] == 1 else [h])
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
    assert dict(result.train_metrics_clientapp[1]) == {"asked": 8, "answered": 7, "faults-missing": 1}
    assert dict(result.train_metrics_clientapp[2]) == {"asked": 8, "answered": 8}


def test_a_round_with_too_few_replies_changes_nothing(toy: Experiment, tmp_path: Path) -> None:
    misbehave = misbehaving("train", lambda m, h: [])
    with pytest.raises(RunError, match="nothing was learned; the last reason was: few: 7 replies"):
        on_flower(with_all_clients(toy), tmp_path, replace(QUICK, least_answers=8), misbehave=misbehave)


def test_a_group_with_too_few_replies_is_left_out(toy: Experiment, tmp_path: Path) -> None:
    misbehave = misbehaving("train", lambda m, h: [])  # client 3, of group 1, which has three others
    run = on_flower(with_all_clients(toy), tmp_path, replace(QUICK, least_answers_per_group=4), misbehave=misbehave)
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
        return [Message(Error(2, "boom"), reply_to=message)] if message.metadata.message_type == "train" else [honest]

    with pytest.raises(RunError, match="nothing was learned; the last reason was: failed: boom"):
        on_flower(toy, tmp_path, QUICK, misbehave=misbehave)


def test_a_run_in_which_no_client_can_be_evaluated_fails(toy: Experiment, tmp_path: Path) -> None:
    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if message.metadata.message_type == "evaluate" else [honest]

    with pytest.raises(RunError, match="no client could"):
        on_flower(toy, tmp_path, QUICK, misbehave=misbehave)


def test_a_client_with_other_views_than_most_does_not_spoil_the_evaluation(toy: Experiment, tmp_path: Path) -> None:
    experiment = with_all_clients(toy)
    spec = experiment.build_model(experiment.build_data()).spec

    def other(message: Message, honest: Message) -> list[Message]:
        score = Score({"mine": {1: Tally(10, 10)}})
        round_number = int(honest.content[METADATA]["round_number"])
        return [
            Message(
                reply_content(EvaluationMessage.from_score(score).to_bytes(spec), 3, round_number), reply_to=message
            )
        ]

    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("evaluate", other))
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
    spec = experiment.build_model(experiment.build_data()).spec

    def act(message: Message, honest: Message) -> list[Message]:
        score = EvaluationMessage.from_bytes(honest.content[PAYLOAD]["bytes"].numpy().tobytes(), spec)
        round_number = int(honest.content[METADATA]["round_number"])
        return [Message(reply_content(replace(score, **lie).to_bytes(spec), 3, round_number), reply_to=message)]

    config = replace(QUICK, out=str(tmp_path / "run"))
    run = on_flower(experiment, tmp_path, config, misbehave=misbehaving("evaluate", act))
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]
