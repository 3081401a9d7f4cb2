"""The public API: five lines of Python, what a notebook shows, and one frame of runs."""

import sys
import warnings
from dataclasses import dataclass, replace

import pytest
from torch import nn

import e2fl
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fedavg import FedAvg
from e2fl.errors import ConfigError, E2flWarning
from e2fl.grouping import LowestLoss
from e2fl.results import frame
from e2fl.testing.toy import Toy
from tests.toys import toy_with


def test_every_public_name_is_there():
    assert all(getattr(e2fl, name) is not None for name in e2fl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        e2fl.nonsense  # noqa: B018


def test_run_takes_changes_another_algorithm_and_data(toy):
    run = e2fl.run(toy, algorithm="fedavg", data=Toy(clients=5), rounds=2, learner={"epochs": 1})
    assert (run.summary["algorithm"], run.summary["rounds"], len(run.clients)) == ("fedavg", 2, 5)
    assert (run.experiment.learner["epochs"], run.experiment.learner["learning_rate"]) == (1, 0.1)
    run = e2fl.run(toy, data={"clients": 5}, algorithm={"clients_per_round": 3}, rounds=1)
    assert len(run.clients) == 5
    one, other = e2fl.compare(toy, ["fedavg", "e2fl"], data={"clients": 4}, rounds=2)
    assert list(one.clients["client"]) == list(other.clients["client"])
    assert (one.label, other.label, len(one.clients)) == ("fedavg", "e2fl", 4)


@dataclass(frozen=True)
class Mine(FedAvg):
    """An algorithm of one's own, made at the top level of a module."""

    extra: float = 1.0


def own_model(inputs, classes, *, units: int = 8):
    return nn.Sequential(
        nn.Linear(inputs[0], units, bias=False), nn.ReLU(), nn.Linear(units, classes, bias=False)
    )


def test_classes_and_objects_are_algorithms(toy):
    by_name = e2fl.run(toy, algorithm={"name": "tests.test_results:Mine", "extra": 2.0}, rounds=1)
    by_class = e2fl.run(toy, algorithm=Mine, rounds=1)
    by_object = e2fl.run(toy, algorithm=Mine(extra=2.0, clients_per_round=4), rounds=1)
    assert by_class.experiment.algorithm["name"] == "tests.test_results:Mine"
    assert by_object.experiment.algorithm["extra"] == 2.0
    assert by_name.record.clients == by_object.record.clients
    found = e2fl.run(
        toy, algorithm=E2FL(clients_per_round=4, grouping=LowestLoss(groups=3)), rounds=1
    )
    assert found.experiment.algorithm["name"] == "e2fl"
    assert found.experiment.algorithm["grouping"]["groups"] == 3
    compared = e2fl.compare(toy, ["fedavg", Mine, E2FL(clients_per_round=2)], rounds=1)
    assert [run.label for run in compared] == ["fedavg", "Mine", "E2FL"]

    class Local(FedAvg):
        pass

    with pytest.raises(ConfigError, match="must be defined at the top level"):
        e2fl.run(toy, algorithm=Local)
    with pytest.raises(ConfigError, match="a class or an object, not int"):
        e2fl.run(toy, algorithm=3)


def test_functions_and_networks_are_models(toy):
    by_settings = e2fl.run(
        toy, model={"name": "tests.test_results:own_model", "units": 8}, rounds=1
    )
    by_function = e2fl.run(toy, model=own_model, rounds=1)
    by_network = e2fl.run(toy, model=own_model((16,), 3), rounds=1)
    assert by_settings.record.clients == by_function.record.clients == by_network.record.clients
    with pytest.raises(ConfigError, match="has 2 outputs, but the data has 3 classes"):
        e2fl.run(toy, model=own_model((16,), 2))


def test_warnings_come_through_warnings(toy, tmp_path):
    with pytest.warns(e2fl.E2flWarning, match="nothing is stored"):
        e2fl.run(toy, rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e2fl.run(toy, rounds=1, out=tmp_path / "quiet")
    with pytest.warns(e2fl.E2flWarning, match="have losses that are absurd or not finite"):
        e2fl.run(toy, algorithm="tests.runs.helpers:Huge", rounds=2, out=tmp_path / "run")
    path = tmp_path / "toy.toml"
    path.write_text(replace(toy, rounds=1, algorithm={"name": "tests.test_results:Mine"}).to_toml())
    with pytest.warns(
        e2fl.E2flWarning, match="names code that is imported and run: tests.test_results:Mine"
    ):
        e2fl.run(path, out=tmp_path / "own")


def test_a_notebook_sees_short_words_tables_and_plots(toy, tmp_path):
    run = e2fl.run(toy, out=tmp_path / "run")
    assert repr(run).startswith("<e2fl.Run e2fl, seed 0, 6 rounds: clients ")
    assert len(repr(run)) < 120
    assert "<table>" in run._repr_html_()
    assert list(run.history.index) == [2, 4, 6]
    assert run.history.loc[6, "clients/mean"] == run.summary["clients"]["mean"]
    assert (run.history["training_loss"] > 0).all()
    assert run.clients["accuracy"].mean() == pytest.approx(run.summary["clients"]["mean"])
    both = e2fl.compare(toy, ["fedavg", "e2fl"], seeds=[0, 1], rounds=2, out=tmp_path / "both")
    assert all(run.state is not None for run in both)  # stored runs, too
    assert repr(both) == "<e2fl.Comparison of fedavg, e2fl; seeds 0, 1>"
    assert len(both) == len(both.table) == 4
    assert set(both.table["algorithm"]) == {"fedavg", "e2fl"}
    assert "±" in str(both)
    assert str(both).endswith("2 seeds (0, 1): mean ± standard deviation")
    assert "1 seed (0)" in str(e2fl.Comparison(both.runs[:2]))
    assert "Comparison" in both._repr_html_()
    assert run.report() == tmp_path / "run" / "report.html"
    assert "<html" in run.report(tmp_path / "other.html").read_text()
    assert run.plot().to_dict()["mark"]["type"] == "line"
    assert both.plot("clients/mean").to_dict()["encoding"]["color"]["field"] == "algorithm"
    with pytest.raises(e2fl.E2flError, match="there is no figure 'nonsense'"):
        both.plot("nonsense")


def test_progress_is_drawn_in_notebooks_and_can_be_turned_off(toy, monkeypatch, capsys, tmp_path):
    e2fl.run(toy, rounds=2, out=tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    e2fl.run(toy, rounds=2, out=tmp_path / "lines", progress=True)
    assert "e2fl, seed 0: round 2 of 2" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    e2fl.run(toy, rounds=2, out=tmp_path / "bar")
    assert "2/2" in capsys.readouterr().err


def test_a_comparison_warns_of_a_method_that_cannot_start_and_has_the_others(toy):
    with pytest.warns(E2flWarning, match="ifca, seed 0: algorithm.groups is 99"):
        compared = e2fl.compare(toy, ["ifca", "fedavg"], rounds=1, algorithm={"groups": 99})
    assert [run.label for run in compared] == ["fedavg"]
    with pytest.raises(ConfigError, match="99"):
        e2fl.compare(toy, ["ifca"], rounds=1, algorithm={"groups": 99})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithms": "fedavg"}, r"algorithms must be a list, such as \['fedavg', 'e2fl'\]"),
        ({"algorithms": ["fedavg"], "seeds": 3}, r"seeds must be a list, such as \[0, 1, 2\]"),
        ({"algorithms": ["fedavg"], "seeds": [1, 1]}, "once"),
    ],
)
def test_what_is_not_a_list_is_a_clear_error(toy, tmp_path, arguments, words):
    with pytest.raises(ConfigError, match=words):
        e2fl.compare(toy, out=tmp_path / "run", **arguments)
    with pytest.raises(ConfigError, match="data=data"):  # data in place of a configuration
        e2fl.run(Toy())


@pytest.fixture(scope="module")
def pair():
    config = toy_with(rounds=2, evaluate_every=1)
    with pytest.warns(e2fl.E2flWarning, match="nothing is stored"):
        return e2fl.compare(config, ["fedavg", "e2fl"], progress=False)


def test_frame_has_a_row_per_run_view_and_round_and_the_summary_in_the_last(pair):
    rows = frame(pair)
    first = ["method", "label", "algorithm", "seed", "view", "round", "last"]
    assert list(rows.columns[:7]) == first
    assert list(rows["method"]) == ["fedavg", "fedavg", *["e2fl", "e2fl (GM)"] * 2]
    assert list(rows["last"]) == [False, True, False, False, True, True]
    rows = rows.set_index(["method", "round"])
    summary = pair[1].summary
    own, view = rows.loc[("e2fl", 2)], rows.loc[("e2fl (GM)", 2)]
    assert own["clients/mean"] == summary["clients"]["mean"]
    assert view["group/worst10"] == summary["views"]["global"]["group"]["worst10"]
    assert view["loss/clients/std"] == summary["views"]["global"]["loss"]["clients"]["std"]
    for name, group in summary["groups"].items():
        assert own[f"groups/{name}/accuracy"] == group["accuracy"]
        assert own[f"participation/{name}/asked"] == summary["participation"][name]["asked"]
    assert own["bytes/up_per_client_round"] == summary["bytes"]["up_per_client_round"]
    assert rows["bits/up_per_edge"].isna().to_list() == [True, False, True, True, False, False]
