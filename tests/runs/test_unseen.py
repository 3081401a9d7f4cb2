"""A client that was never trained with gets its group and its model, from what a run left on disk."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from e2fl import assign
from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import from_dict
from e2fl.data.federated import Examples
from e2fl.errors import DataError, RunError
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from e2fl.runs.watcher import Watcher
from e2fl.testing.toy import Toy


def experiment(grouping=None, name="e2fl", **data):
    algorithm = {"name": name, "clients_per_round": 6}
    if grouping:
        settings = {
            "known": {},
            "rank_clustering": {"groups": 2},
            "lowest_loss": {"groups": 2, "warm": True},
        }
        algorithm["grouping"] = {"name": grouping} | settings[grouping]
    return from_dict(
        {
            "rounds": 8,
            "data": {"name": "e2fl.testing.toy:Toy", "clients": 8, "styles": True} | data,
            "model": {"name": "mlp", "hidden": [32]},
            "learner": {"learning_rate": 0.1},
            "algorithm": algorithm,
        }
    )


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("grouping", ["known", "rank_clustering", "lowest_loss"])
def test_a_unseen_client_gets_the_group_and_the_model_of_its_like(grouping, tmp_path):
    run_experiment(experiment(grouping), out=tmp_path / "run")
    before = contents(tmp_path / "run")
    strangers = [Toy(clients=8, styles=True).client(number) for number in (20, 21)]
    found = [
        assign(
            tmp_path / "run",
            stranger.train,
            test=stranger.test,
            group=stranger.group if grouping == "known" else None,
        )
        for stranger in strangers
    ]
    assert found[0].group != found[1].group
    assert min(one.score.accuracy for one in found) > 80
    outputs = found[0].model.outputs(found[0].params, strangers[0].test.inputs())
    assert (
        outputs.argmax(dim=1) == strangers[0].test.labels()
    ).float().mean() * 100 == pytest.approx(found[0].score.accuracy)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_has_a_model_for_an_unseen_client(name, tmp_path):
    made = experiment(name=name)
    run_experiment(from_dict(made.to_dict() | {"rounds": 2}), out=tmp_path / "run")
    stranger = Toy(clients=8, styles=True).client(11)
    one, again = (
        assign(tmp_path / "run", stranger.train, test=stranger.test, group=1) for _ in range(2)
    )
    assert one.score == again.score
    assert one.score.n == len(stranger.test)


def test_clients_kept_out_of_training_are_reported():
    for grouping in ("known", "rank_clustering"):
        unseen = run_experiment(experiment(grouping, held_out=4)).summary["unseen"]
        assert unseen["count"] == 4
        assert unseen["right_group"] == 100
        assert unseen["clients"]["mean"] > 80
    assert "unseen" not in run_experiment(experiment("known")).summary


@dataclass(frozen=True)
class Spoilt(Toy):
    """Of the clients kept out of training, the first has training inputs that are none, the second a test label."""

    all_clients: bool = False

    def unseen(self):
        found = super().unseen()
        for client in found.values() if self.all_clients else [found[self.clients]]:
            nothing = np.full_like(client.train.x, np.nan)
            found[client.id] = replace(client, train=replace(client.train, x=nothing))
        second = found[self.clients + 1]
        found[second.id] = replace(
            second, test=replace(second.test, y=np.full(len(second.test), 99))
        )
        return found


class Listening(Watcher):
    def __init__(self):
        self.heard = []

    def warn(self, message):
        self.heard.append(message)


@pytest.mark.parametrize(
    ("name", "grouping"), [("local", None), ("ditto", None), ("e2fl", "rank_clustering")]
)
def test_a_client_kept_out_of_training_that_is_no_good_is_named_and_ends_nothing(
    name, grouping, tmp_path
):
    made = experiment(grouping, name, held_out=4)
    made = replace(made, rounds=2, data=made.data | {"name": "tests.runs.test_unseen:Spoilt"})
    watcher = Listening()
    run = run_experiment(made, out=tmp_path / "run", watcher=watcher)
    assert run.summary["unseen"]["count"] == 2
    assert run.summary["unseen"]["faults"] == {"failed": 2}
    first, second = watcher.heard
    assert first.startswith(
        "client 8, kept out of training, left out, failed: DataError: training diverged"
    )
    assert second.startswith("client 9, kept out of training, left out, failed: ")
    assert read_run(tmp_path / "run").summary == run.summary
    good = run_experiment(replace(made, data=made.data | {"name": "e2fl.testing.toy:Toy"})).summary
    assert {key: run.summary[key] for key in ("clients", "group")} == {
        key: good[key] for key in ("clients", "group")
    }


def test_all_clients_kept_out_of_training_may_be_no_good(tmp_path):
    made = experiment(name="local", held_out=3)
    made = replace(
        made, data=made.data | {"name": "tests.runs.test_unseen:Spoilt", "all_clients": True}
    )
    run = run_experiment(made, out=tmp_path / "run")
    assert run.summary["unseen"] == {"count": 0, "faults": {"failed": 3}}
    assert (tmp_path / "run" / "clients.csv").exists()


def test_what_does_not_fit_is_said(tmp_path):
    run_experiment(experiment("known"), out=tmp_path / "run")
    empty = Examples(np.zeros((0, 16), np.float32), np.zeros(0, np.int64))
    with pytest.raises(DataError, match="at least one training example"):
        assign(tmp_path / "run", empty)
    other = Examples(np.zeros((2, 5), np.float32), np.zeros(2, np.int64))
    with pytest.raises(DataError, match=r"shape \(5,\); the run has \(16,\)"):
        assign(tmp_path / "run", other)
    with pytest.raises(RunError, match="holds no finished run"):
        assign(tmp_path, Toy().client(0).train)


@pytest.mark.parametrize("name", ["ifca", "e2fl"])
def test_examples_unlike_those_of_the_run_are_refused(name, tmp_path):
    made = experiment("known" if name == "e2fl" else None, name=name).to_dict() | {"rounds": 1}
    if name == "ifca":
        made["algorithm"]["oracle_groups"] = True
    folder = tmp_path / "run"
    run_experiment(from_dict(made), out=folder)
    train = Toy(clients=8, styles=True).client(20).train
    x, y = train.x, train.y
    inside = np.zeros(len(y), np.int64)
    for bad, reason in [
        (Examples(x, np.full(len(y), 9)), "row 0 has the label 9; the run has classes 0 to 2"),
        (Examples(x, np.where(np.arange(len(y)) == 5, -1, y)), "row 5 has the label -1"),
        (Examples(x, y.astype(np.float32)), "must be integers"),
        (
            Examples(np.where(np.arange(len(y)) == 4, np.nan, x.T).T.astype(np.float32), y),
            "row 4 has an input",
        ),
        (Examples(x, y[:3]), r"48 training examples for labels of shape \(3,\)"),
        (Examples(x, y, inside[:3]), r"groups of shape \(3,\)"),
        (Examples(x, y, inside + 2), "a group that the run does not know"),
    ]:
        with pytest.raises(DataError, match=reason):
            assign(folder, bad, group=0)
        with pytest.raises(DataError, match=reason.replace("training", "test")):
            assign(folder, train, test=bad, group=0)
    for group in (7, 2, -1, 0.5):
        with pytest.raises(
            DataError, match=f"cannot declare group {group}; the run has groups 0 to 1"
        ):
            assign(folder, train, group=group)
    assert assign(folder, train, group=1).group == 1
    (folder / "config.toml").unlink()
    with pytest.raises(RunError, match=r"config\.toml cannot be read"):
        assign(folder, train, group=1)
