"""Inputs that are probably mistakes are warned of; missing values are counted."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

from e2fl.cli import main
from e2fl.config.experiment import from_dict, load
from e2fl.data import from_arrays, from_table
from e2fl.errors import ConfigError, DataError, E2flWarning
from e2fl.models import Model
from e2fl.runs.data_files import write_data
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Folder
from e2fl.runs.watcher import Watcher


def frame(count=60, **columns):
    rng = np.random.default_rng(0)
    rows = {
        "who": [f"c{row % 3}" for row in range(count)],
        "age": rng.normal(50, 9, count),
        "y": rng.integers(0, 2, count),
    }
    return pd.DataFrame(rows | columns)


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("shape", "warns"), [((8, 8, 3), True), ((3, 8, 8), False), ((1, 8, 8), False), ((8, 3), False)]
)
def test_images_with_channels_last_are_warned_of(shape, warns):
    x = np.random.default_rng(0).random((20, *shape))
    found = warned(lambda: from_arrays({"a": (x, np.arange(20) % 2)}))
    assert [("transpose(0, 3, 1, 2)" in message) for message in found] == [True] * warns


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"patient": range(60)}, "'patient' .* identifier"),
        ({"case_id": np.random.default_rng(1).permutation(10**6)[:60]}, "'case_id' .* identifier"),
        ({"outcome": None}, "'outcome' .* copy"),
        ({"income": np.random.default_rng(1).permutation(10**6)[:60]}, None),
        ({"grade": np.arange(60) % 5}, None),
        ({"size": np.arange(60) / 7}, None),
    ],
)
def test_a_copy_of_the_label_and_an_identifier_are_warned_of(columns, word):
    table = frame(**{name: 0 if values is None else values for name, values in columns.items()})
    if "outcome" in columns:
        table["outcome"] = table["y"].map({0: "ill", 1: "well"})
    if word is None:
        assert not warned(lambda: from_table(table, client="who", label="y"))
    else:
        with pytest.warns(UserWarning, match=word):
            from_table(table, client="who", label="y")


def test_more_outputs_than_classes_are_warned_of():
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(4, 5)))
    with pytest.warns(E2flWarning, match="5 outputs for 3 classes"):
        model.require_fit((4,), 3, "own")


def experiment(path, **data):
    section = {"name": "table", "path": str(path), "client": "who", "label": "y", **data}
    return from_dict(
        {
            "rounds": 1,
            "data": section,
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": {"name": "fedavg", "clients_per_round": 2},
        }
    )


class Warnings(Watcher):
    def __init__(self):
        self.messages = []

    def warn(self, message):
        self.messages.append(message)


def test_an_input_that_was_the_group_of_an_earlier_run_is_warned_of(tmp_path):
    frame(sex=["f", "m"] * 30).to_csv(tmp_path / "t.csv", index=False)
    run_experiment(experiment(tmp_path / "t.csv", group="sex"), out=tmp_path / "runs" / "a")
    watcher = Warnings()
    for name, settings in (("b", {"group": "sex"}), ("c", {})):
        made = experiment(tmp_path / "t.csv", **settings)
        run_experiment(made, out=tmp_path / "runs" / name, watcher=watcher)
    assert sum("column 'sex' is an input here" in message for message in watcher.messages) == 1


def test_missing_values_are_counted_for_each_column(tmp_path):
    table = frame(size=1.0, colour="red")
    table.loc[[3, 5], "size"] = None
    table.loc[7, "colour"] = "?"
    with pytest.raises(DataError, match=r"row 3 has nothing in column 'size'.*size 2, colour 1"):
        from_table(table, client="who", label="y")
    data = from_table(table, client="who", label="y", missing="drop")
    assert data.about()["missing_values"] == {"size": 2, "colour": 1}


def test_a_path_is_a_table_and_what_is_missing_is_said(tmp_path):
    frame().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ConfigError, match=r"label = .*columns: who, age, y"):
        from_table(str(tmp_path / "t.csv"))
    with pytest.raises(ConfigError, match="client"):
        from_table(tmp_path / "t.csv", label="y")
    assert len(from_table(tmp_path / "t.csv", client="who", label="y").population) == 3
    with pytest.raises(DataError, match="no file or folder"):
        from_table("absent.csv", client="who", label="y")


def test_a_path_in_a_configuration_starts_at_its_own_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "study").mkdir()
    frame().to_csv(tmp_path / "study" / "t.csv", index=False)
    (tmp_path / "study" / "my.toml").write_text(experiment("t.csv").to_toml())
    monkeypatch.chdir(tmp_path)
    made = load("study/my.toml")
    assert Path(made.data["path"]).resolve() == tmp_path / "study" / "t.csv"
    assert len(made.build_data().population) == 3
    assert load("study/my.toml", ["data.path=other.csv"]).data["path"] == "other.csv"
    assert main(["data", "show", "study/my.toml"]) == 0
    assert "table: 3 clients, 2 classes, inputs 1" in capsys.readouterr().out
    assert (tmp_path / "my.svg").is_file()


def test_a_run_that_ends_between_the_files_of_the_data_writes_both_again(tmp_path, monkeypatch):
    data, folder = from_table(frame(), client="who", label="y"), Folder(tmp_path / "run")
    written = []
    monkeypatch.setattr(Folder, "write", lambda self, name, text: written.append(name))
    write_data(folder, data, lambda message: None)
    assert written == ["data.svg", "data.json"]  # a run without the last one starts again
