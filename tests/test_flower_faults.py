"""Flower with bad answers, or too few of them; all in one process."""

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
from e2fl.errors import RunError
from e2fl.evaluation import Score, Tally
from e2fl.flower.client import client_app
from e2fl.flower.evaluation_message import ScoreSheet, fill
from e2fl.flower.records import FACTS, PAYLOAD, homeward
from e2fl.flower.server import run_on
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.runs.runner import Watcher, run_experiment
from tests.flower_grid import QUICK, LocalGrid, Trouble, everybody
from tests.test_runtimes_agree import on_flower, plain


def misbehaving(kind: str, act: Callable[[Message, Message], list[Message]], client: int = 3) -> Trouble:
    """One client's node does something else whenever it should train (or whatever kind of message this is)."""

    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        if partition == client and message.metadata.message_type.startswith(kind):
            return act(message, honest)
        return [honest]

    return trouble


def content(honest: Message, **facts: int) -> RecordDict:
    """An answer with other facts on it."""
    return RecordDict({PAYLOAD: honest.content[PAYLOAD], FACTS: ConfigRecord({**honest.content[FACTS], **facts})})


def payload(values: np.ndarray, honest: Message) -> RecordDict:
    return RecordDict({PAYLOAD: ArrayRecord({"bytes": Array(values)}), FACTS: honest.content[FACTS]})


def flipped(honest: Message) -> np.ndarray:
    raw = honest.content[PAYLOAD]["bytes"].numpy().copy()
    raw[len(raw) // 2] ^= 1
    return raw


FAULTS: dict[str, tuple[str, Callable[[Message, Message], list[Message]]]] = {
    "an error from the client": ("failed", lambda m, h: [Message(Error(2, "boom"), reply_to=m)]),
    "a dead process": ("lost", lambda m, h: [Message(Error(8, "ClientApp stopped responding"), reply_to=m)]),
    "a node that is gone": ("lost", lambda m, h: [Message(Error(5, "Node Unavailable"), reply_to=m)]),
    "no answer": ("missing", lambda m, h: []),
    "another client's id": ("impostor", lambda m, h: [Message(content(h, client=4), reply_to=m)]),
    "another round": ("malformed", lambda m, h: [Message(content(h, number=99), reply_to=m)]),
    "no facts": ("malformed", lambda m, h: [Message(RecordDict({PAYLOAD: h.content[PAYLOAD]}), reply_to=m)]),
    "nothing at all": ("malformed", lambda m, h: [Message(RecordDict(), reply_to=m)]),
    "other records": ("malformed", lambda m, h: [Message(RecordDict({FACTS: MetricRecord({"a": 1})}), reply_to=m)]),
    "a flipped bit": ("malformed", lambda m, h: [Message(payload(flipped(h), h), reply_to=m)]),
    "no bytes": ("malformed", lambda m, h: [Message(payload(np.zeros(0, np.uint8), h), reply_to=m)]),
    "floats": ("malformed", lambda m, h: [Message(payload(np.ones(64), h), reply_to=m)]),
    "a table": ("malformed", lambda m, h: [Message(payload(np.zeros((4, 4), np.uint8), h), reply_to=m)]),
}


@pytest.mark.parametrize("passes", [None, "1", 1, True, math.nan, math.inf, -1.0, 1e308])
def test_passes_that_cannot_be_are_not_believed(passes: object, toy: Experiment, tmp_path: Path) -> None:
    def act(message: Message, honest: Message) -> list[Message]:
        facts = {name: value for name, value in honest.content[FACTS].items() if name != "passes"}
        claim = ConfigRecord(facts if passes is None else {**facts, "passes": passes})
        return [Message(RecordDict({PAYLOAD: honest.content[PAYLOAD], FACTS: claim}), reply_to=message)]

    run = on_flower(replace(everybody(toy), rounds=1), tmp_path, QUICK, trouble=misbehaving("train", act))
    assert run.history[0]["faults"] == {"malformed": 1}
    assert run.history[0]["answered"] == 7


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_answer_is_counted_by_kind_and_the_others_decide(name: str, toy: Experiment, tmp_path: Path) -> None:
    kind, act = FAULTS[name]
    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("train", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}] * 3
    assert [(line["asked"], line["answered"]) for line in run.history] == [(8, 7)] * 3
    silent = on_flower(everybody(toy), tmp_path / "silent", QUICK, trouble=misbehaving("train", lambda m, h: []))
    assert plain(run.state) == plain(silent.state)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_score_is_counted_by_kind_and_left_out(name: str, toy: Experiment, tmp_path: Path) -> None:
    kind, act = FAULTS[name]
    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("evaluate", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}] * 3
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]


def test_a_client_cannot_vote_twice(toy: Experiment, tmp_path: Path) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, Message(RecordDict(dict(honest.content)), reply_to=message)]

    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("train", twice))
    assert [line["faults"] for line in run.history] == [{"repeated": 1}] * 3
    assert plain(run.state) == plain(run_experiment(everybody(toy)).state)


def test_a_late_answer_is_not_taken_for_the_next_round(toy: Experiment, tmp_path: Path) -> None:
    late: dict[str, list[Message]] = {}

    def delay(message: Message, honest: Message) -> list[Message]:
        grid.replies.update(late)
        late.clear()
        late[message.metadata.message_id] = [honest]
        return []

    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    trouble = misbehaving("train", delay)
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)}, trouble=trouble)
    assert [line["faults"] for line in run_on(grid, everybody(toy), QUICK).history] == [
        {"missing": 1},
        {"late": 1, "missing": 1},
        {"late": 1, "missing": 1},
    ]


def in_anothers_place(message: Message, honest: Message) -> list[Message]:
    """Client 3 answers the message that was sent to client 4, which is the next."""
    number = int(message.metadata.message_id.removeprefix("message-"))
    reply = Message(content(honest, client=4), reply_to=message)
    reply.metadata.__dict__["_reply_to_message_id"] = f"message-{number + 1}"
    return [reply]


def of_another_run(message: Message, honest: Message) -> list[Message]:
    honest.metadata.__dict__["_reply_to_message_id"] = "of another run"
    return [honest]


@pytest.mark.parametrize("act", [in_anothers_place, of_another_run])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_an_answer_counts_for_the_message_it_was_pulled_for_whatever_it_says(
    act: Callable[[Message, Message], list[Message]], kind: str, toy: Experiment, tmp_path: Path
) -> None:
    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving(kind, act))
    silent = on_flower(everybody(toy), tmp_path / "silent", QUICK, trouble=misbehaving(kind, lambda m, h: []))
    assert [line["faults"] for line in run.history] == [{"impostor": 1}] * 3
    assert run.clients == silent.clients
    assert plain(run.state) == plain(silent.state)


@pytest.mark.parametrize("act", [in_anothers_place, of_another_run])
def test_neither_does_the_strategy_take_its_word(
    act: Callable[[Message, Message], list[Message]], toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())

    def states(act: Callable[[Message, Message], list[Message]]) -> tuple[dict[str, Any], object]:
        trouble = misbehaving("train", act)
        grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)}, trouble=trouble)
        strategy = AlgorithmStrategy(everybody(toy), QUICK)
        result = strategy.start(grid, timeout=0.05)
        return dict(result.train_metrics_clientapp[1]), plain(strategy.state)

    metrics, state = states(act)
    assert metrics == {"asked": 8, "answered": 7, "faults-impostor": 1}
    assert state == states(lambda m, h: [])[1]


def test_a_second_answer_with_another_id_is_an_impostor_too(toy: Experiment, tmp_path: Path) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, *in_anothers_place(message, honest)]

    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("train", twice))
    assert [line["faults"] for line in run.history] == [{"impostor": 1}] * 3
    assert plain(run.state) == plain(run_experiment(everybody(toy)).state)


def test_an_answer_that_flower_cannot_read_takes_no_other_with_it(toy: Experiment, tmp_path: Path) -> None:
    class Poisoned(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            found = super().pull_messages(message_ids)
            if any(m.metadata.src_node_id == 1000 and m.metadata.message_type == "train" for m in found):
                raise ValueError("no such class")
            return found

    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = Poisoned(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    assert [line["faults"] for line in run_on(grid, everybody(toy), QUICK).history] == [{"malformed": 1}] * 3


class Unfinished(LocalGrid):
    """Client 3 begins to upload its first answer, and does not get on with it until it is told to."""

    def __init__(self, experiment: Experiment, folder: Path):
        path = folder / "experiment.toml"
        path.write_text(experiment.to_toml())
        super().__init__(client_app(path), range(8), node_config={"memory": str(folder)})
        self.stuck = ""
        self.go_on = threading.Event()
        self.held_up = False

    def pull_messages(self, message_ids: Any) -> list[Message]:
        (name,) = message_ids
        (sent,) = [message for message in self.sent if message.metadata.message_id == name]
        node = self.contexts[sent.metadata.dst_node_id]
        if sent.metadata.message_type == "train" and node.node_config["partition-id"] == 3:
            self.stuck = self.stuck or name
        if name == self.stuck:
            self.held_up = not self.go_on.wait(30)
        return super().pull_messages([name])


def test_an_upload_without_end_holds_up_nobody(toy: Experiment, tmp_path: Path) -> None:
    grid = Unfinished(everybody(toy), tmp_path)

    class Release(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 2:
                grid.go_on.set()

    run = run_on(grid, everybody(toy), QUICK, watcher=Release())
    assert not grid.held_up
    # Only what was being uploaded is missing; once it is there, it is late, and changes nothing.
    assert [line["faults"] for line in run.history] == [{"missing": 1}, {}, {"late": 1}]
    assert [line["answered"] for line in run.history] == [7, 8, 8]
    silent = misbehaving("train", lambda m, h: [] if h.content[FACTS]["number"] == 1 else [h])
    assert plain(run.state) == plain(on_flower(everybody(toy), tmp_path / "silent", QUICK, trouble=silent).state)


def test_an_upload_without_end_does_not_hold_up_the_strategy(toy: Experiment, tmp_path: Path) -> None:
    grid = Unfinished(everybody(toy), tmp_path)
    result = AlgorithmStrategy(everybody(toy), QUICK).start(grid, timeout=0.05)
    grid.go_on.set()
    assert not grid.held_up
    assert dict(result.train_metrics_clientapp[1]) == {"asked": 8, "answered": 7, "faults-missing": 1}
    assert dict(result.train_metrics_clientapp[2]) == {"asked": 8, "answered": 8}


def test_fewer_answers_than_a_round_needs_change_nothing(toy: Experiment, tmp_path: Path) -> None:
    trouble = misbehaving("train", lambda m, h: [])
    with pytest.raises(RunError, match="nothing was learned; the last reason was: few: 7 answers"):
        on_flower(everybody(toy), tmp_path, replace(QUICK, least_answers=8), trouble=trouble)


def test_a_group_with_fewer_answers_than_it_needs_is_left_out(toy: Experiment, tmp_path: Path) -> None:
    trouble = misbehaving("train", lambda m, h: [])  # client 3, of group 1: three of its four are left
    run = on_flower(everybody(toy), tmp_path, replace(QUICK, least_answers_per_group=4), trouble=trouble)
    assert run.history[0]["faults"] == {"few": 3, "missing": 1}
    assert run.history[0]["answered"] == 4
    assert sorted(run.state.groups) == [0]


def test_nobody_in_a_group_does_not_end_a_run(toy: Experiment, tmp_path: Path) -> None:
    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if partition % 2 and message.metadata.message_type == "train" else [honest]

    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=trouble)
    assert run.history[0]["faults"] == {"missing": 4}
    assert sorted(run.state.groups) == [0]


def test_a_run_in_which_nobody_ever_answers_fails(toy: Experiment, tmp_path: Path) -> None:
    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        return [Message(Error(2, "boom"), reply_to=message)] if message.metadata.message_type == "train" else [honest]

    with pytest.raises(RunError, match="nothing was learned; the last reason was: failed: boom"):
        on_flower(toy, tmp_path, QUICK, trouble=trouble)


def test_a_run_in_which_nobody_can_say_how_it_fares_fails(toy: Experiment, tmp_path: Path) -> None:
    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if message.metadata.message_type == "evaluate" else [honest]

    with pytest.raises(RunError, match="no client could say how it fares"):
        on_flower(toy, tmp_path, QUICK, trouble=trouble)


def test_a_client_that_shows_other_views_than_most_does_not_spoil_the_evaluation(
    toy: Experiment, tmp_path: Path
) -> None:
    experiment = everybody(toy)
    spec = experiment.build_model(experiment.build_data()).spec

    def other(message: Message, honest: Message) -> list[Message]:
        score = Score({"mine": {1: Tally(10, 10)}})
        number = int(honest.content[FACTS]["number"])
        return [Message(homeward(fill(score).to_bytes(spec), 3, number), reply_to=message)]

    run = on_flower(experiment, tmp_path, QUICK, trouble=misbehaving("evaluate", other))
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert len(run.clients) == 7


LIES: list[tuple[str, dict[str, Any]]] = [
    ("e2fl", {"group": -1}),
    ("e2fl", {"group": 0}),  # client 3 is in group 1
    ("e2fl", {"group": 2**31 - 1}),
    ("ifca", {"group": -1}),
    ("ifca", {"group": 2}),
    ("ifca", {"passes": 1e308}),
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
        sheet = ScoreSheet.from_bytes(honest.content[PAYLOAD]["bytes"].numpy().tobytes(), spec)
        number = int(honest.content[FACTS]["number"])
        return [Message(homeward(replace(sheet, **lie).to_bytes(spec), 3, number), reply_to=message)]

    options = replace(QUICK, out=str(tmp_path / "run"))
    run = on_flower(experiment, tmp_path, options, trouble=misbehaving("evaluate", act))
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]
