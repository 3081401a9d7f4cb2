"""Flower with bad replies, or too few of them; all in one process."""

import json
import math
import threading
from dataclasses import replace

import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict

from e2fl.errors import RunError
from e2fl.flower import exchange
from e2fl.flower.messages import PAYLOAD, RAW, VALUES, Reply, Request, Work, pack, read_reply
from e2fl.flower.server import run_on
from e2fl.runs.runner import run_experiment
from tests.flower.grid import (
    QUICK,
    At,
    LocalGrid,
    assert_equal,
    grid_of,
    on_flower,
    plain,
    with_all_clients,
)


def misbehaving(kind, act, *clients):
    """Let the nodes of some clients, or of client 3, act differently on messages of this type."""

    def misbehave(partition, message, honest):
        if partition in (clients or (3,)) and message.metadata.message_type.startswith(kind):
            return act(message, honest)
        return [honest]

    return misbehave


def silent(message, honest):
    return []


def replying(make):
    """Reply with other content."""
    return lambda message, honest: [Message(make(honest), reply_to=message)]


def failing(code, reason):
    """Let Flower reply with an error."""
    return lambda message, honest: [Message(Error(code, reason), reply_to=message)]


def changed(path, value):
    """Reply with another value in the JSON; None removes it. *: the clients' part."""

    def make(honest):
        values = json.loads(honest.content[VALUES]["json"])
        asked = "trained" if "trained" in values else "scores"
        *parents, name = path.replace("*", asked).split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner.pop(name, None) if value is None else inner.update({name: value})
        text = ConfigRecord({"json": json.dumps(values)})
        return RecordDict({**honest.content, VALUES: text})

    return replying(make)


def with_payload(make):
    """Reply with another payload."""

    def reply(honest):
        record = honest.content[f"{PAYLOAD}3"]
        changed = ConfigRecord({RAW: make(record[RAW])})
        return RecordDict({**honest.content, f"{PAYLOAD}3": changed})

    return replying(reply)


def flipped(raw):
    middle = len(raw) // 2
    return raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]


FAULTS = {
    "an error from the client": ("failed", failing(2, "boom")),
    "a dead process": ("lost", failing(8, "ClientApp stopped responding")),
    "a node that is gone": ("lost", failing(5, "Node Unavailable")),
    "no reply": ("missing", silent),
    "absurd work": ("malformed", changed("trained.3.grouping_passes", 1e308)),
    "one more client": ("impostor", changed("*.4", "boom")),
    "another round": ("malformed", changed("round_number", 99)),
    "nothing of the client": ("malformed", changed("*.3", [])),
    "no clients": ("impostor", changed("*", None)),
    "no JSON": ("malformed", replying(lambda h: RecordDict({VALUES: ConfigRecord({"json": 1})}))),
    "nothing at all": ("malformed", replying(lambda h: RecordDict())),
    "other records": ("malformed", replying(lambda h: RecordDict({VALUES: MetricRecord({})}))),
    "deep JSON": (
        "malformed",
        replying(lambda h: RecordDict({VALUES: ConfigRecord({"json": "[" * 10**6})})),
    ),
}
FAILED = {"a failure of the client": ("failed", changed("*.3", "boom"))}
BAD_PAYLOADS = {
    "a flipped bit": ("malformed", with_payload(flipped)),
    "no bytes": ("malformed", with_payload(lambda raw: b"")),
    "floats": ("malformed", with_payload(lambda raw: [1.0] * 64)),
    "text": ("malformed", with_payload(lambda raw: "text")),
}
OUT_OF_RANGE = {
    "grouping_passes": ("1", True, math.nan, math.inf, -1.0, 1e308, 1.1e9),
    "ballot_bits": ("1", True, math.nan, math.inf, -1.0, 1.1e15),
    "trained_examples": ("1", 1.0, True, -1, 2**53 + 1, -(2**63)),
    "examples": ("1", 1.0, True, 0, -1, 2**53 + 1, 2**63 - 1),
    "training_loss": ("1", True, [1.0]),
    "unknown": (1,),
}


@pytest.mark.parametrize("name", [*OUT_OF_RANGE, "round_number", "trained"])
def test_absurd_values_in_a_reply_are_rejected(name):
    request = Request(
        round_number=2, run_id="0" * 32, server_id="a", resumed_from=0, oldest=0, train={3: 0}
    )
    work = Work(trained_examples=40, grouping_passes=1.0, ballot_bits=9.5, examples=20)
    honest = Reply(round_number=2, trained={3: work})
    assert read_reply(pack(honest), request) == honest
    others = {
        "round_number": (None, "1", 1.0, True, 2**63 - 1, -1),
        "trained": (None, 3, "3", [], [3], {}, {"3.5": {}}, {"4": {}}),
    }
    for value in (OUT_OF_RANGE | others)[name]:
        values = json.loads(pack(honest)[VALUES]["json"])
        (values["trained"]["3"] if name in OUT_OF_RANGE else values)[name] = value
        content = RecordDict({VALUES: ConfigRecord({"json": json.dumps(values)})})
        assert isinstance(read_reply(content, request), str)


@pytest.fixture(scope="module")
def without_client_3(tmp_path_factory):
    """Runs in which client 3 sends nothing to messages of a type."""
    runs = {}

    def run(experiment, kind):
        key = experiment.to_toml(), kind
        if key not in runs:
            folder, misbehave = tmp_path_factory.mktemp("run"), misbehaving(kind, silent)
            runs[key] = on_flower(experiment, folder, QUICK, misbehave=misbehave)
        return runs[key]

    return run


@pytest.mark.parametrize("name", FAULTS | FAILED | BAD_PAYLOADS)
def test_a_bad_reply_is_counted_by_kind_and_the_others_decide(
    name, toy, tmp_path, without_client_3
):
    kind, act = (FAULTS | FAILED | BAD_PAYLOADS)[name]
    experiment = with_all_clients(toy)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("train", act))
    # A message without a usable reply is also the evaluation of the round before.
    twice = {kind: 1 + (name in FAULTS)}
    assert [line["faults"] for line in run.history] == [twice, twice, {kind: 1}]
    assert [(line["asked"], line["answered"]) for line in run.history] == [(8, 7)] * 3
    assert plain(run.state) == plain(without_client_3(experiment, "train").state)


@pytest.mark.parametrize("name", FAULTS | FAILED)
def test_a_bad_score_is_counted_by_kind_and_left_out(name, toy, tmp_path):
    kind, act = (FAULTS | FAILED)[name]
    experiment = replace(with_all_clients(toy), rounds=1)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("evaluate", act))
    assert [line["faults"] for line in run.history] == [{kind: 1}]
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]


def to_another_message(message, honest):
    """Client 3 claims to reply to the message sent to client 4, which is the next."""
    position = int(message.metadata.message_id.removeprefix("message-"))
    reply = Message(RecordDict(dict(honest.content)), reply_to=message)
    reply.metadata.__dict__["_reply_to_message_id"] = f"message-{position + 1}"
    return [reply]


@pytest.mark.parametrize(("kind", "counts"), [("train", [2, 2, 1]), ("evaluate", [0, 0, 1])])
def test_a_reply_counts_for_the_message_it_was_pulled_for_whatever_it_claims(
    kind, counts, toy, tmp_path, without_client_3
):
    experiment, act = with_all_clients(toy), misbehaving(kind, to_another_message)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=act)
    assert [line["faults"].get("impostor", 0) for line in run.history] == counts
    assert run.clients == without_client_3(experiment, kind).clients
    assert plain(run.state) == plain(without_client_3(experiment, kind).state)


def test_a_client_cannot_vote_twice(toy, tmp_path):
    def twice(message, honest):
        again = Message(RecordDict(dict(honest.content)), reply_to=message)
        return [honest, again, *to_another_message(message, honest)]

    experiment = with_all_clients(toy)
    run = on_flower(experiment, tmp_path, QUICK, misbehave=misbehaving("train", twice))
    assert_equal(run, run_experiment(experiment))


def test_a_late_reply_is_not_used_in_the_next_round(toy, tmp_path, without_client_3):
    late = {}

    def delay(message, honest):
        grid.replies.update(late)
        late.clear()
        late[message.metadata.message_id] = [honest]
        return []

    experiment = with_all_clients(toy)
    grid = grid_of(experiment, tmp_path, misbehave=misbehaving("train", delay))
    run = run_on(grid, experiment, QUICK)
    assert [line["faults"]["missing"] for line in run.history] == [2, 2, 1]
    assert plain(run.state) == plain(without_client_3(experiment, "train").state)


def test_a_reply_that_flower_cannot_read_affects_no_other(toy, tmp_path):
    class Poisoned(LocalGrid):
        def pull_messages(self, message_ids):
            pulled = super().pull_messages(message_ids)
            sources = [(m.metadata.src_node_id, m.metadata.message_type) for m in pulled]
            if (1000, "train") in sources:
                raise ValueError("no such class")
            return pulled

    run = on_flower(with_all_clients(toy), tmp_path, QUICK, kind=Poisoned)
    assert [line["faults"]["malformed"] for line in run.history] == [2, 2, 1]


class Unfinished(LocalGrid):
    """Client 3 starts to upload its first reply, and does not finish until it is released."""

    stuck = ""
    timed_out = False

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.release = threading.Event()

    def pull_messages(self, message_ids):
        (name,) = message_ids
        (sent,) = [message for message in self.sent if message.metadata.message_id == name]
        node = self.contexts[sent.metadata.dst_node_id]
        if sent.metadata.message_type == "train" and node.node_config["partition-id"] == 3:
            self.stuck = self.stuck or name
        if name == self.stuck:
            self.timed_out = not self.release.wait(600)
        return super().pull_messages([name])


def test_an_endless_upload_delays_no_other_client(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "GRACE_SECONDS", 2.0)
    experiment = with_all_clients(toy)
    grid = grid_of(experiment, tmp_path, kind=Unfinished)
    assert isinstance(grid, Unfinished)
    run = run_on(grid, experiment, QUICK, watcher=At(2, grid.release.set))
    assert not grid.timed_out
    # Only the reply being uploaded is missing; when it is complete, it changes nothing.
    assert [line["faults"] for line in run.history] == [{"missing": 1}, {}, {}]
    assert [line["answered"] for line in run.history] == [7, 8, 8]
    first = misbehaving(
        "train",
        lambda m, h: [] if json.loads(h.content[VALUES]["json"])["round_number"] == 1 else [h],
    )
    without = on_flower(experiment, tmp_path / "silent", QUICK, misbehave=first)
    assert plain(run.state) == plain(without.state)


def test_rounds_with_too_few_replies_change_nothing(toy, tmp_path):
    experiment, act = with_all_clients(toy), misbehaving("train", silent)
    with pytest.raises(RunError, match="nothing was learned; the last reason was: few: 7 replies"):
        on_flower(experiment, tmp_path / "a", replace(QUICK, least_answers=8), misbehave=act)
    odd = misbehaving("train", silent, 1, 3, 5, 7)
    run = on_flower(experiment, tmp_path / "c", QUICK, misbehave=odd)
    assert run.history[-1]["faults"] == {"missing": 4}
    assert sorted(run.state.groups) == [0]


@pytest.mark.parametrize(
    ("kind", "act", "reason"),
    [
        ("train", failing(2, "boom"), "nothing was learned; the last reason was: failed: boom"),
        ("evaluate", silent, "no client could"),
    ],
)
def test_a_run_without_any_reply_fails(kind, act, reason, toy, tmp_path):
    misbehave = misbehaving(kind, act, *range(8))
    with pytest.raises(RunError, match=reason):
        on_flower(toy, tmp_path, QUICK, misbehave=misbehave)


OTHER = {"mine": {"1": {"n": 10, "correct": 10}}}
LIES = [
    ("e2fl", "group", None),
    ("e2fl", "group", 0),  # client 3 is in group 1
    ("e2fl", "group", 2**31 - 1),
    ("e2fl", "views", OTHER),
    ("e2fl", "validation", OTHER),
    ("ifca", "group", None),
    ("ifca", "group", 2),
    ("ifca", "passes", 1e308),
    ("fedavg", "group", 0),
    ("local", "group", 0),
]


@pytest.mark.parametrize(("name", "part", "value"), LIES)
def test_a_client_that_lies_in_its_score_is_left_out_of_the_evaluation(
    name, part, value, toy, tmp_path
):
    experiment = replace(toy.variant(name), rounds=1)
    act = misbehaving("evaluate", changed(f"scores.3.{part}", value))
    run = on_flower(experiment, tmp_path, QUICK, misbehave=act)
    assert run.history[-1]["faults"] == {"malformed": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2", "4", "5", "6", "7"]
