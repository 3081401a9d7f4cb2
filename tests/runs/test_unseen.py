"""An unseen client gets its group and its model, from what a run left on disk."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from e2fl import assign
from e2fl.data.federated import Examples
from e2fl.errors import DataError, RunError
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from e2fl.testing.toy import Toy
from tests.runs.helpers import Noting
from tests.toys import toy_with

GROUPINGS = {
    "known": {},
    "rank_clustering": {"groups": 2},
    "lowest_loss": {"groups": 2, "clustered": 3},
}


def experiment(grouping=None, name="e2fl", rounds=8, **data):
    algorithm = {"name": name, "clients_per_round": 6}
    if grouping:
        algorithm["grouping"] = {"name": grouping} | GROUPINGS[grouping]
    return toy_with(rounds=rounds, data={"styles": True} | data, algorithm=algorithm)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_an_unseen_client_gets_the_group_and_the_model_of_its_like(grouping, tmp_path):
    run_experiment(experiment(grouping), out=tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    strangers = [Toy(clients=8, styles=True).client(number) for number in (20, 21)]
    found = []
    for stranger in strangers:
        group = stranger.group if grouping == "known" else None
        found.append(assign(tmp_path / "run", stranger.train, test=stranger.test, group=group))
    assert found[0].group != found[1].group
    assert min(one.score.accuracy for one in found) > 80
    outputs = found[0].model.outputs(found[0].params, strangers[0].test.inputs())
    right = outputs.argmax(dim=1) == strangers[0].test.labels()
    assert right.float().mean() * 100 == pytest.approx(found[0].score.accuracy)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@dataclass(frozen=True)
class Spoilt(Toy):
    """Of the clients kept out of training, the first has no inputs, the second no test label."""

    all_clients: bool = False

    def unseen(self):
        found = super().unseen()
        for client in found.values() if self.all_clients else [found[self.clients]]:
            nothing = np.full_like(client.train.x, np.nan)
            found[client.id] = replace(client, train=replace(client.train, x=nothing))
        second = found[self.clients + 1]
        wrong = np.full(len(second.test), 99)
        found[second.id] = replace(second, test=replace(second.test, y=wrong))
        return found


@pytest.mark.parametrize(
    ("name", "grouping"), [("local", None), ("ditto", None), ("e2fl", "rank_clustering")]
)
def test_a_spoilt_client_kept_out_of_training_is_named_and_ends_nothing(name, grouping, tmp_path):
    good = experiment(grouping, name, rounds=2, held_out=4)
    bad = replace(good, data=good.data | {"name": "tests.runs.test_unseen:Spoilt"})
    everybody = replace(bad, rounds=1, data=bad.data | {"all_clients": True})
    unseen = {"count": 0, "faults": {"failed": 4}}
    if name == "local":
        assert run_experiment(everybody).summary["unseen"] == unseen
    noting = Noting()
    run = run_experiment(bad, out=tmp_path / "run", watcher=noting)
    assert run.summary["unseen"]["count"] == 2
    assert run.summary["unseen"]["faults"] == {"failed": 2}
    first, second = noting.warnings
    left_out = "kept out of training, left out, failed: "
    assert first.startswith(f"client 8, {left_out}DataError: training diverged")
    assert second.startswith(f"client 9, {left_out}")
    assert read_run(tmp_path / "run").summary == run.summary
    expected = run_experiment(good).summary
    assert all(run.summary[key] == expected[key] for key in ("clients", "group"))


def test_examples_unlike_those_of_the_run_are_refused(tmp_path):
    folder = tmp_path / "run"
    run_experiment(experiment("known", rounds=1), out=folder)
    train = Toy(clients=8, styles=True).client(20).train
    x, y = train.x, train.y
    inside, rows = np.zeros(len(y), np.int64), np.arange(len(y))
    for bad, reason in [
        (Examples(x[:, :5], y), r"shape \(5,\); the run has \(16,\)"),
        (Examples(x, np.full(len(y), 9)), "row 1 has the label 9; the run has 0 to 2"),
        (Examples(x, np.where(rows == 5, -1, y)), "row 6 has the label -1"),
        (Examples(x, y + 0.5), "has the label"),
        (Examples(np.where(rows == 4, np.nan, x.T).T.astype(np.float32), y), "row 5 has an input"),
        (Examples(x, y[:3]), "as many labels"),
        (Examples(x, y, inside[:3]), "as many labels, and groups"),
        (Examples(x, y, inside + 2), "declares the group 2; the run has 0 to 1"),
    ]:
        with pytest.raises(DataError, match=reason):
            assign(folder, bad, group=0)
        with pytest.raises(DataError, match=reason.replace("training", "test")):
            assign(folder, train, test=bad, group=0)
    with pytest.raises(DataError, match="at least one training example"):
        assign(folder, Examples(x[:0], y[:0]))
    for group in (7, 2, -1, 0.5):
        with pytest.raises(DataError, match=f"declares the group {group}; the run has"):
            assign(folder, train, group=group)
    with pytest.raises(DataError, match="the group 'G1'; it must be a number"):
        assign(folder, train, group="G1")
    assert assign(folder, train, group=1).group == 1
    (folder / "config.toml").unlink()
    with pytest.raises(RunError, match=r"config\.toml cannot be read"):
        assign(folder, train, group=1)
    with pytest.raises(RunError, match="holds no finished run"):
        assign(tmp_path, train)
