"""The registry of measures: every entry is complete, and paths with names of groups are known."""

from importlib.resources import files

import numpy as np
import pytest

from e2fl.errors import ConfigError
from e2fl.metrics import (
    COLUMNS,
    DEFINITIONS,
    MEASURES,
    METRICS,
    fairness,
    measure_of,
    own_measure,
)
from e2fl.metrics.measures import OwnMeasure, own_measures, registry

TEXT = (files("e2fl.metrics") / "measures.toml").read_text(encoding="utf-8")


def test_the_file_fits_together():
    assert {key.rpartition("/")[2] for key in MEASURES if key.startswith("clients/")} == {*METRICS}
    assert {measure.definition for measure in MEASURES.values()} <= {*DEFINITIONS}
    assert {path for paths in COLUMNS.values() for path in paths} <= {*MEASURES}
    assert {*COLUMNS} == {"printed", "seeds", "page", "protected", "gain", "recovery"}


def test_a_new_spread_is_a_function_and_an_entry(monkeypatch):
    monkeypatch.setitem(METRICS, "median", lambda values: float(np.median(values)))
    entry = 'median = { title = "median", unit = "%", better = "more", definition = "percentile" }'
    measures, _, _ = registry(TEXT.replace("[spreads]", f"[spreads]\n{entry}\n#"))
    assert measures["clients/median"].head == "clients"
    assert fairness([80, 90, 91], ["a", "a", "b"])["clients"]["median"] == 90.0


@pytest.mark.parametrize(
    ("path", "key", "sign"),
    [
        ("group/worst10", "group/worst10", 1),
        ("clients/variance", "clients/variance", -1),
        ("bytes/up", "bytes/up_per_client_round", -1),
        ("groups/north/west/accuracy", "groups/north/west/accuracy", 1),
        ("protected/eod", "protected/eod", 0),
    ],
)
def test_a_path_finds_its_measure(path, key, sign):
    measure = measure_of(path)
    assert (measure.key, measure.sign) == (key, sign)


@pytest.mark.parametrize("path", ["group/worst", "groups/accuracy", "groups/G1/nothing", ""])
def test_an_unknown_path_is_refused(path):
    with pytest.raises(ConfigError, match="no measure"):
        measure_of(path)


def test_an_own_measure_is_known_where_it_is_given():
    @own_measure(title="Cost", unit="EUR", better="less")
    def cost(y_true, outputs):
        return 0.0

    own = own_measures({"cost": OwnMeasure("cost", cost).described})
    assert measure_of("measures/cost/clients/high10", own).title == "worst 10 %"
    assert measure_of("measures/cost/clients/variance", own).sign == -1
    assert measure_of("measures/cost/groups/north", own).head == "north"
    for others, path in (((), "measures/cost/clients/mean"), (own, "measures/cost/clients/maen")):
        with pytest.raises(ConfigError, match="no measure"):
            measure_of(path, others)
    with pytest.raises(ConfigError, match="better is"):
        OwnMeasure("cost", own_measure(title="Cost", better="fewer")(cost))
