"""The node's process: it forks for each message, one at a time, and learns what to keep ready."""

import os
import signal
import sys
import time
from dataclasses import dataclass

import pytest
from flwr.supercore.constant import TaskType

from e2fl.config.experiment import Experiment
from e2fl.flower import node, supernode
from e2fl.flower.supernode import SHORTEST, Clock, ForkingExecutor

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@dataclass
class Spec:
    """The part of Flower's ExecutionSpec that matters here."""

    runtime_api_address: str = "127.0.0.1:1"
    token: str = "secret"
    insecure: bool = True
    parent_pid: int | None = None


def executor(monkeypatch, handle):
    monkeypatch.setattr(supernode, "run_clientapp", handle)
    return ForkingExecutor(0, Clock(1.0))


def test_each_message_has_a_process_of_its_own_and_the_next_waits_for_its_end(
    tmp_path, monkeypatch
):
    seen = []

    def handle(*_, **__):
        time.sleep(0.1)
        seen.append(os.getpid())
        (tmp_path / str(os.getpid())).write_text(str(len(seen)))
        sys.exit(0)

    forking = executor(monkeypatch, handle)
    for done in range(3):
        forking.launch(Spec())
        assert len(list(tmp_path.iterdir())) == done + 1
    assert seen == []  # what a process changes, no other sees
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1", "1", "1"]
    assert str(os.getpid()) not in {path.name for path in tmp_path.iterdir()}


def test_a_process_that_dies_does_no_harm(monkeypatch):
    def handle(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    forking = executor(monkeypatch, handle)
    forking.launch(Spec())
    assert forking.warm == set()


def test_what_one_message_loaded_is_ready_for_the_next(toy, tmp_path, monkeypatch):
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())

    def handle(*_, **__):
        hits = node.setup.cache_info().hits
        node.setup(str(path), ())
        warm = node.setup.cache_info().hits > hits
        node.LOADED.append((str(path), [], [0, 3]))
        sys.exit(0 if warm else 1)

    codes = []
    wait = os.waitpid

    def waitpid(pid, options):
        done = wait(pid, options)
        codes.append(os.waitstatus_to_exitcode(done[1]))
        return done

    monkeypatch.setattr(os, "waitpid", waitpid)
    forking = executor(monkeypatch, handle)
    for _ in range(2):
        forking.launch(Spec())
    assert codes == [1, 0]
    assert len(forking.warm) == 1


def test_code_of_other_people_is_not_run_in_the_process_that_stays(toy, tmp_path):
    path = tmp_path / "experiment.toml"
    data = toy.data | {"name": "tests.flower.test_supernode:Absent"}
    path.write_text(Experiment(**{**vars(toy), "data": data}).to_toml())
    node.warm(str(path), [], [0])  # would fail: there is no such class


def test_only_messages_for_clients_are_taken():
    supported = {TaskType.CLIENT_APP, TaskType.AGENT_APP}
    assert ForkingExecutor(0, Clock(1.0)).get_eligible_capacity(supported) == (
        {TaskType.CLIENT_APP},
        set(),
    )


def test_a_node_looks_often_after_a_message_and_rarely_when_it_is_idle(monkeypatch):
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    clock = Clock(3.0)
    clock.sleep(0.5)  # Flower waits for the client of a message
    assert slept == [SHORTEST]
    for _ in range(200):
        clock.sleep(3)
    assert slept[1] == SHORTEST
    assert slept[-1] == 3.0
    assert sum(slept[:30]) < 5
