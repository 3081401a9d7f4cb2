"""The registry of measures: every entry is complete, and paths with names of groups are known."""

import pytest

from e2fl.errors import ConfigError
from e2fl.metrics import COLUMNS, DEFINITIONS, MEASURES, Measure, measure_of


def test_every_measure_is_defined_and_every_column_is_a_measure() -> None:
    assert {measure.definition for measure in MEASURES.values()} <= set(DEFINITIONS)
    assert {key for keys in COLUMNS.values() for key in keys} <= set(MEASURES)
    assert all(measure.better in ("more", "less", "zero", "") for measure in MEASURES.values())


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
def test_a_path_finds_its_measure(path: str, key: str, sign: int) -> None:
    measure = measure_of(path)
    assert (measure.key, measure.sign) == (key, sign)


def test_a_group_is_the_head_of_its_column() -> None:
    assert measure_of("groups/north/loss").head == "north"


def test_an_own_measure_is_known_where_it_is_given() -> None:
    own = Measure("measures/auc/clients/mean", "AUC", better="more")
    assert measure_of(own.key, [own]) is own
    with pytest.raises(ConfigError, match="no measure"):
        measure_of(own.key)


@pytest.mark.parametrize("path", ["group/worst", "groups/accuracy", "groups/G1/nothing", ""])
def test_an_unknown_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="no measure"):
        measure_of(path)
