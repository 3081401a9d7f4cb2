"""Flower: faults, going on after a kill, least numbers, the strategy, the hook, scores as bytes; all in one process."""

import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from e2fl.algorithms import ALGORITHMS
from e2fl.cli import main
from e2fl.data import Client, Roll
from e2fl.errors import ConfigError, RunError, WireError
from e2fl.experiment import Experiment, from_dict
from e2fl.flower.client import client_app
from e2fl.flower.envelope import FACTS, PAYLOAD, homeward
from e2fl.flower.fairness import fairness
from e2fl.flower.keys import make_keys
from e2fl.flower.options import Options, changes, from_run_config
from e2fl.flower.scoresheet import ScoreSheet, fill, read
from e2fl.flower.server import run_on
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.models import Layer, ModelSpec
from e2fl.runner import Run, Watcher, run_experiment
from e2fl.scores import NO_GROUP, Score, Tally
from tests.flower_grid import LocalGrid, Trouble
from tests.test_runtimes_agree import assert_equal, on_flower, plain

QUICK = Options(round_seconds=0.05, evaluate_seconds=0.05, wait_seconds=1.0, poll_seconds=0.01)


def misbehaving(kind: str, act: Callable[[Message, Message], list[Message]], client: int = 3) -> Trouble:
    """One client's node does something else whenever it should train (or whatever kind of message this is)."""

    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        if partition == client and message.metadata.message_type.startswith(kind):
            return act(message, honest)
        return [honest]

    return trouble


def everybody(toy: Experiment) -> Experiment:
    """The same experiment with all clients in every round, and every round evaluated."""
    return replace(toy, rounds=3, evaluate_every=1, algorithm=toy.algorithm | {"clients_per_round": 8})


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
    late: list[Message] = []

    def delay(message: Message, honest: Message) -> list[Message]:
        before = late[:]
        late[:] = [honest]
        return before

    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("train", delay))
    assert [line["faults"] for line in run.history] == [
        {"missing": 1},
        {"late": 1, "missing": 1},
        {"late": 1, "missing": 1},
    ]


def test_an_answer_to_no_message_is_counted_and_ignored(toy: Experiment, tmp_path: Path) -> None:
    def stranger(message: Message, honest: Message) -> list[Message]:
        honest.metadata.__dict__["_reply_to_message_id"] = "of another run"
        return [honest]

    run = on_flower(everybody(toy), tmp_path, QUICK, trouble=misbehaving("train", stranger))
    assert run.history[0]["faults"] == {"missing": 1, "unasked": 1}


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


def test_a_second_node_with_the_same_client_is_an_impostor(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = LocalGrid(client_app(path), [0, 1, 2, 3, 3], node_config={"memory": str(tmp_path)})
    run = run_on(grid, everybody(toy), QUICK)
    assert run.history[0]["faults"] == {"impostor": 1}
    assert run.history[0]["asked"] == 4


def test_a_node_pinned_to_one_client_cannot_be_another(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = LocalGrid(client_app(path), range(4), node_config={"memory": str(tmp_path)})
    numbers = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    pins = " ".join(f"{node}={0 if client == 3 else client}" for node, client in numbers.items())
    run = run_on(grid, everybody(toy), replace(QUICK, pins=pins))
    assert run.history[0]["faults"] == {"impostor": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2"]
    with pytest.raises(ConfigError, match="pins are NODE=CLIENT"):
        Options(pins="7")


def test_nodes_that_are_no_client_of_the_data_are_refused(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    data = toy.build_data()

    def load_client(context: Any) -> Client:
        partition = int(context.node_config["partition-id"])
        known = data.client(partition % 8)
        group = 7 if partition == 1 else 1 if partition == 2 else known.group  # 7: none such; client 2 is in group 0
        return replace(known, id=partition, group=group)

    grid = LocalGrid(client_app(path, load_client), [0, 1, 2, 3, 88], node_config={"memory": str(tmp_path)})
    run = run_on(grid, everybody(toy), QUICK)
    assert run.history[0]["faults"] == {"malformed": 3}
    assert [row["client"] for row in run.clients] == ["0", "3"]


def test_fewer_answers_than_a_round_needs_change_nothing(toy: Experiment, tmp_path: Path) -> None:
    trouble = misbehaving("train", lambda m, h: [])
    with pytest.raises(RunError, match="nothing was learnt; the last reason was: few: 7 answers"):
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


def test_too_few_nodes_are_said_at_once(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), [0, 1], node_config={"memory": str(tmp_path)})
    with pytest.raises(RunError, match=r"2 clients were there after 0\.2 seconds, and least-clients is 3"):
        run_on(grid, toy, replace(QUICK, wait_seconds=0.2, least_clients=3))


def test_a_run_in_which_nobody_ever_answers_fails(toy: Experiment, tmp_path: Path) -> None:
    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        return [Message(Error(2, "boom"), reply_to=message)] if message.metadata.message_type == "train" else [honest]

    with pytest.raises(RunError, match="nothing was learnt; the last reason was: failed: boom"):
        on_flower(toy, tmp_path, QUICK, trouble=trouble)


def test_a_run_in_which_nobody_can_say_how_it_fares_fails(toy: Experiment, tmp_path: Path) -> None:
    def trouble(partition: int, message: Message, honest: Message) -> list[Message]:
        return [] if message.metadata.message_type == "evaluate" else [honest]

    with pytest.raises(RunError, match="no client could say how it fares"):
        on_flower(toy, tmp_path, QUICK, trouble=trouble)


def test_a_node_that_comes_back_with_another_id_is_found_again(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})

    class Restart(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 1:
                grid.contexts[9999] = grid.contexts.pop(1000)

    run = run_on(grid, everybody(toy), QUICK, watcher=Restart())
    assert plain(run.state) == plain(run_experiment(everybody(toy)).state)
    assert [line["faults"] for line in run.history] == [{}, {}, {}]


class KilledError(Exception):
    """Stands for a process that is gone."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_server_that_was_killed_goes_on_to_the_same_result(name: str, toy: Experiment, tmp_path: Path) -> None:
    experiment = toy.variant(name)
    last = experiment.build_algorithm().rounds(experiment.rounds, experiment.build_data().roll)
    options = Options(out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == last - 1:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, experiment, options, Kill())
    # The newest checkpoint is of the round before: what clients kept in the killed one must not count.
    resumed = _run_at(tmp_path, experiment, replace(options, resume=True), Watcher())
    whole = on_flower(experiment, tmp_path / "whole", Options(out=str(tmp_path / "whole-run")))
    assert_equal(resumed, whole)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {path.name for path in (tmp_path / "whole-run").iterdir()}
    assert (tmp_path / "run/clients.csv").read_bytes() == (tmp_path / "whole-run/clients.csv").read_bytes()


def _run_at(folder: Path, experiment: Experiment, options: Options, watcher: Watcher) -> Run:
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), experiment.build_data().roll.ids, node_config={"memory": str(folder / "memory")})
    return run_on(grid, experiment, options, watcher=watcher)


def test_a_run_is_gone_on_with_by_those_who_began_it(toy: Experiment, tmp_path: Path) -> None:
    options = replace(QUICK, out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 2:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, everybody(toy), options, Kill())
    grid = LocalGrid(client_app(tmp_path / "experiment.toml"), range(7), node_config={"memory": str(tmp_path)})
    run = run_on(grid, everybody(toy), replace(options, resume=True))
    assert run.history[-1]["asked"] == 8
    assert run.history[-1]["faults"] == {"missing": 2}  # client 7: in training, and in the evaluation


def test_a_folder_that_is_there_is_not_overwritten(toy: Experiment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="resume=true"):
        _run_at(tmp_path, toy, Options(out=str(tmp_path)), Watcher())


def test_a_message_for_many_is_encoded_once(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, everybody(toy), QUICK)
    trained = [m.content[PAYLOAD] for m in grid.sent if m.metadata.message_type == "train"]
    assert len(trained) == 24
    assert len({id(record) for record in trained}) == 3


def test_a_node_brings_its_own_data_and_its_group(toy: Experiment, tmp_path: Path) -> None:
    source = toy.build_data()
    section = {"name": "e2fl.flower.data:OnNodes", "clients": 8, "classes": 3, "shape": [16], "groups": 2}
    experiment = replace(toy, data=section)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())

    def load_client(context: Any) -> Client:
        known = source.client(int(context.node_config["partition-id"]))
        return Client(known.id, known.train, known.test)

    grid = LocalGrid(client_app(path, load_client), range(8), node_config={"memory": str(tmp_path)})
    for context in grid.contexts.values():
        context.node_config["group"] = context.node_config["partition-id"] % 2
    run = run_on(grid, experiment, QUICK)
    assert plain(run.state) == plain(run_experiment(toy).state)
    assert run.history[-1]["groups"] == run_experiment(toy).history[-1]["groups"]


def test_data_on_nodes_cannot_be_simulated(toy: Experiment) -> None:
    section = {"name": "e2fl.flower.data:OnNodes", "clients": 8, "classes": 3, "shape": [16], "groups": 2}
    with pytest.raises(Exception, match="run the experiment with Flower"):
        run_experiment(replace(toy, data=section))


def test_a_node_with_another_experiment_is_refused(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    with pytest.raises(RunError, match="another experiment than the server"):
        run_on(grid, replace(toy, seed=5), replace(QUICK, wait_seconds=0.2))


def test_changes_and_options_come_from_the_run_configuration() -> None:
    assert changes({"set": "rounds=20; algorithm.absent=present_only;"}) == [
        "rounds=20",
        "algorithm.absent=present_only",
    ]
    assert from_run_config({"round-seconds": 5, "other": "mine"}) == Options(round_seconds=5.0)
    with pytest.raises(ConfigError, match="round-seconds must be above 0"):
        from_run_config({"round-seconds": 0.0})
    with pytest.raises(ConfigError, match="resume needs out"):
        from_run_config({"resume": True})


def test_flower_looks_at_the_app_without_importing_torch(tmp_path: Path) -> None:
    code = "import sys; from e2fl.flower.client import client_app; client_app('x'); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False"


# The strategy, and fairness for anybody's.


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_a_strategy_with_the_same_result(name: str, toy: Experiment, tmp_path: Path) -> None:
    experiment = toy.variant(name)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(experiment, QUICK)
    simulated = run_experiment(experiment)
    result = strategy.start(grid, num_rounds=simulated.summary["rounds"] + 1 - strategy.algorithm.first_round)
    assert plain(strategy.state) == plain(simulated.state)
    last = result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]
    assert {name: last[f"user-{name}"] for name in simulated.summary["user"]} == simulated.summary["user"]
    assert {name.split("/")[0] for name in result.arrays} == set(strategy.algorithm.models(strategy.state))


def test_the_strategy_counts_faults_and_goes_on(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    trouble = misbehaving("train", FAULTS["a flipped bit"][1])
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)}, trouble=trouble)
    result = AlgorithmStrategy(everybody(toy), QUICK).start(grid, timeout=0.05)
    assert dict(result.train_metrics_clientapp[1]) == {"asked": 8, "answered": 7, "faults-malformed": 1}


def test_the_strategy_fails_where_nothing_was_learnt(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(
        client_app(path),
        range(8),
        node_config={"memory": str(tmp_path)},
        trouble=lambda partition, message, honest: [] if message.metadata.message_type == "train" else [honest],
    )
    with pytest.raises(RunError, match="nothing was learnt"):
        AlgorithmStrategy(toy, QUICK).start(grid, timeout=0.05)


def reported(accuracy: float, group: int | None = None) -> RecordDict:
    values: dict[str, int | float] = {"accuracy": accuracy, "num-examples": 10}
    return RecordDict({"metrics": MetricRecord(values if group is None else values | {"group": group})})


def test_fairness_of_three_clients_in_two_groups() -> None:
    found = fairness()([reported(0.9, 0), reported(0.7, 0), reported(0.5, 1)], "num-examples")
    assert found["clients"] == 3
    assert found["user-mean"] == pytest.approx(70.0)
    assert found["user-worst10"] == pytest.approx(50.0)
    assert found["user-variance"] == pytest.approx(800 / 3)  # (20² + 0² + 20²) / 3
    assert (found["group-0"], found["group-1"]) == (pytest.approx(80.0), pytest.approx(50.0))
    assert found["group-variance"] == pytest.approx(225.0)  # 15²


def test_fairness_leaves_out_what_is_no_number_and_says_so() -> None:
    found = fairness()([reported(float("nan")), reported(0.5), RecordDict()], "num-examples")
    assert (found["clients"], found["unmeasured"], found["user-mean"]) == (1, 2, 50.0)
    assert dict(fairness()([], "num-examples")) == {"clients": 0, "unmeasured": 0}


def test_fairness_fits_flowers_own_strategies(toy: Experiment, tmp_path: Path) -> None:
    LocalGrid(client_app("unused"), [])  # gives messages an identity
    strategy = FedAvg(evaluate_metrics_aggr_fn=fairness())
    asked = Message(RecordDict(), dst_node_id=1, message_type="evaluate")
    replies = [Message(reported(accuracy), reply_to=asked) for accuracy in (0.25, 0.75)]
    found = strategy.aggregate_evaluate(1, replies)
    assert found is not None
    assert found["user-mean"] == 50.0


# Scores as bytes.

SPEC = ModelSpec((Layer("fc", (3, 4)),))
ROLL = Roll({0: None, 1: 1, 2: None}, 3)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    true_positive, true_negative, false_positive, false_negative = (draw(st.integers(0, 50)) for _ in range(4))
    correct = true_positive + true_negative
    n = max(1, correct + false_positive + false_negative)
    return Tally(n, correct, draw(st.floats(0)), true_positive, false_positive, false_negative)


@st.composite
def scores(draw: st.DrawFn) -> Score:
    groups = draw(st.sampled_from([[NO_GROUP], [0], [0, 1], [0, 2], [0, 1, 2]]))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    views = {name: {group: draw(tallies()) for group in groups} for name in names}
    return Score(views, draw(st.none() | st.integers(0, 9)), draw(st.floats(0, 1e6)))


@given(scores())
def test_scores_survive_the_wire(score: Score) -> None:
    sheet = ScoreSheet.from_bytes(fill(score).to_bytes(SPEC), SPEC)
    assert read(sheet, 0, ROLL) == score
    assert list(read(sheet, 0, ROLL).views) == list(score.views)


@given(scores(), st.data())
def test_bytes_of_scores_that_were_tampered_with_are_refused(score: Score, data: st.DataObject) -> None:
    raw = bytearray(fill(score).to_bytes(SPEC))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        ScoreSheet.from_bytes(bytes(raw), SPEC)


NUMBER = st.integers(-(2**31), 2**31 - 1)
SHEETS = st.builds(
    ScoreSheet,
    names=st.lists(st.integers(0, 255) | st.just(0) | NUMBER, max_size=20).map(tuple)
    | st.just((97, 0))
    | st.just((97, 0, 98, 0)),
    groups=st.lists(st.integers(-1, 3) | NUMBER, max_size=3).map(tuple),
    counts=st.lists(st.integers(0, 9) | NUMBER, max_size=10).map(tuple),
    losses=st.lists(st.floats(), max_size=2).map(tuple),
    group=NUMBER,
    passes=st.floats(),
)


@given(SHEETS, st.sampled_from([0, 1]))
def test_a_sheet_made_by_a_stranger_is_a_possible_score_or_refused(sheet: ScoreSheet, client: int) -> None:
    sent = ScoreSheet.from_bytes(sheet.to_bytes(SPEC), SPEC)
    try:
        score = read(sent, client, ROLL)
    except WireError:
        return
    for view in score.views.values():
        assert set(view) == {1} if client == 1 else set(view) <= {NO_GROUP, 0, 1, 2}
        for tally in view.values():
            assert 0 <= tally.accuracy <= 100
            assert tally.n >= 1
    assert score.passes >= 0


@given(scores(), st.data())
def test_a_sheet_with_one_field_changed_never_does_more_than_be_refused(score: Score, data: st.DataObject) -> None:
    sheet = fill(score)
    name = data.draw(st.sampled_from(["names", "groups", "counts", "losses"]))
    values = list(getattr(sheet, name))
    change = data.draw(st.sampled_from(["drop", "repeat", "replace"]))
    place = data.draw(st.integers(0, len(values) - 1))
    if change == "drop":
        del values[place]
    elif change == "repeat":
        values.insert(place, values[place])
    else:
        values[place] = data.draw(st.floats() if name == "losses" else NUMBER)
    changed = replace(sheet, **{name: tuple(values)})
    try:
        found = read(ScoreSheet.from_bytes(changed.to_bytes(SPEC), SPEC), 0, ROLL)
    except WireError:
        return
    assert all(0 <= tally.accuracy <= 100 for view in found.views.values() for tally in view.values())


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


def test_memories_of_a_killed_life_are_forgotten(tmp_path: Path) -> None:
    """Client 0 trains in rounds 1 and 2; the server goes on from round 1; what it kept in round 2 never happened."""
    experiment = from_dict(
        {
            "rounds": 1,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": "tests.test_flower:Counting"},
        }
    )
    from e2fl.flower.envelope import Errand, outward
    from e2fl.flower.envelope import payload as wrap
    from e2fl.wire import Nothing

    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), [0], node_config={"memory": str(tmp_path / "memory")})
    raw = Nothing().to_bytes(experiment.build_model(experiment.build_data()).spec)
    seen = []
    for life, number, resumed in (("a", 1, 0), ("a", 2, 0), ("b", 3, 1), ("b", 4, 1)):
        errand = Errand(number, "0" * 32, life, resumed, 0)
        content = outward(wrap(raw), errand)
        grid.send_and_receive([Message(content, dst_node_id=1000, message_type="train")])
        seen.append(COUNTED[-1])
    assert seen == [1, 2, 2, 3]


COUNTED: list[int] = []


def _counting() -> type:
    import torch

    from e2fl.algorithms.local import Local

    class Counting(Local):
        def train(self, message: Any, client: Any, learner: Any) -> Any:
            before = client.memory.get("times", {"n": torch.zeros(1)})
            client.memory["times"] = {"n": before["n"] + 1}
            COUNTED.append(int(client.memory["times"]["n"]))
            return message

    return Counting


Counting = _counting()


# The command.


def test_export_writes_an_app_that_flower_accepts(tmp_path: Path) -> None:
    from flwr.common.config import validate_config

    assert main(["flower", "export", "three_nodes", "--set", "rounds=2", "--out", str(tmp_path / "app")]) == 0
    config = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert validate_config(config, check_module=True, project_dir=tmp_path / "app") == (True, [], [])
    assert config["tool"]["flwr"]["app"]["config"]["out"] == "runs/three-nodes"
    assert "rounds = 2" in (tmp_path / "app/federation/experiment.toml").read_text()
    for script in (tmp_path / "app/scripts").iterdir():
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert "--insecure" not in script.read_text() or script.name == "simulate"
        assert "@name@" not in script.read_text()
    assert main(["flower", "export", "three_nodes", "--out", str(tmp_path / "app")]) == 2


def test_keys_are_secret_and_never_overwritten(tmp_path: Path) -> None:
    assert main(["flower", "keys", "--nodes", "2", "--host", "example.org", "--out", str(tmp_path / "keys")]) == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert modes == {
        "ca.crt": 0o644,
        "server.crt": 0o644,
        "server.key": 0o600,
        "node-0": 0o600,
        "node-0.pub": 0o644,
        "node-1": 0o600,
        "node-1.pub": 0o644,
    }
    with pytest.raises(ConfigError, match="never overwritten"):
        make_keys(tmp_path / "keys", 1, ["localhost"])


def test_polling_is_quick(toy: Experiment, tmp_path: Path) -> None:
    """An answer that is there after a tenth of a second is taken then, not after Flower's three."""
    start = time.monotonic()
    ready: dict[str, float] = {}

    class Slow(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            due = [name for name in message_ids if time.monotonic() >= ready.setdefault(name, time.monotonic() + 0.1)]
            return super().pull_messages(due)

    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = Slow(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, everybody(toy), Options(poll_seconds=0.02))
    assert time.monotonic() - start < 3
    assert len(ready) == 8 * 7  # roll, and three times training and evaluation
