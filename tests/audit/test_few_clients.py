"""With few clients, what is chance is rarely called a finding, and what is real is found.

Each simulated table has clients that differ and groups that do not.
"""

import numpy as np
import pandas as pd
import pytest

from e2fl_audit.rates import evaluate
from e2fl_audit.reader import read_table
from e2fl_audit.settings import Settings
from e2fl_audit.statistics import clients_test


def significant(frame, **options):
    settings = Settings(resamples=100, **options)
    results = evaluate(read_table(frame, settings), settings)
    return any(table.significant for tables in results for table in tables)


def predictions(rng, counts, skewed, nested=True, effect=0.0):
    """Rows of clients with different accuracies; counts: clients of each group, or of all."""
    total = int(np.sum(counts))
    skill = 1 - np.clip(rng.lognormal(-3, 1, total), 0, 0.9)
    if not skewed:
        skill = 1 / (1 + np.exp(-1 - rng.normal(0, 0.8, total)))
    size = np.exp(rng.uniform(3, 5.3, total)).astype(int)  # 20 to 200 rows
    client = np.repeat(np.arange(total), size)
    if nested:
        group = np.repeat(np.arange(len(counts)), counts)[client]
    else:
        group = (rng.random(len(client)) < rng.uniform(0.1, 0.9, total)[client]).astype(int)
    right = rng.random(len(client)) < np.clip(skill[client] - effect * (group == 0), 0, 1)
    y = rng.integers(0, 2, len(client))
    columns = {"client": client, "group": [f"g{code}" for code in group], "y": y}
    return pd.DataFrame(columns | {"y_hat": np.where(right, y, 1 - y)})


def measures(rng, counts):
    """A skewed measure of clients, such as an error."""
    group = np.repeat([f"g{number}" for number in range(len(counts))], counts)
    columns = {"client": range(len(group)), "group": group, "rmse": rng.lognormal(0, 1, len(group))}
    return pd.DataFrame(columns)


def alarms(tables, low, high, kind, seed=0):
    """The share of tables without a difference in which one is found."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(tables):
        counts = rng.integers(low, high + 1, {"measure": 6, "crossed": 1}.get(kind, 5))
        if kind == "measure":
            found += significant(measures(rng, counts), score="rmse")
        else:
            frame = predictions(rng, counts, kind != "normal", nested=kind != "crossed")
            found += significant(frame)
    return found / tables


@pytest.mark.parametrize("kind", ["normal", "skewed", "crossed", "measure"])
@pytest.mark.parametrize(("low", "high"), [(1, 4), (5, 20), (21, 40)])
@pytest.mark.parametrize("tables", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_false_alarms_are_at_most_5_percent(low, high, kind, tables):
    """Of few tables, two may be false by chance."""
    noise = 2 * np.sqrt(0.05 * 0.95 / tables)
    assert alarms(tables, low, high, kind, seed=1) <= 0.05 + noise


@pytest.mark.parametrize(("counts", "nested"), [([8], False), ([8, 8], True)])
def test_a_real_difference_among_few_clients_is_found(counts, nested):
    rng = np.random.default_rng(0)
    found = [
        significant(predictions(rng, counts, skewed=False, nested=nested, effect=0.4))
        for _ in range(5)
    ]
    assert sum(found) >= 4


def test_below_five_clients_nothing_is_judged():
    frame = predictions(np.random.default_rng(0), [4, 4], skewed=False, effect=0.4)
    table = read_table(frame, Settings())
    rows = evaluate(table, Settings())[0][0].rows
    assert {row.status for row in rows} == {"too few clients"}
    one = frame.assign(client="the only hospital")
    assert evaluate(read_table(one, Settings()), Settings())[0][0].rows[0].judged


def test_the_test_over_clients_is_exact_for_any_distribution():
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 2, (400, 25))
    inside = np.arange(25) < 5
    ones = np.ones(25)
    below = np.mean([clients_test(row, ones, inside) < 0.05 for row in values])
    assert 0.02 <= below <= 0.08
