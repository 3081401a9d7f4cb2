"""Tables that the tests audit."""

import numpy as np
import pandas as pd


def exact(groups, columns=("group", "y", "y_hat")):
    """A table with exactly these counts of each group: tp, fn, fp, tn."""
    rows = []
    for name, (tp, fn, fp, tn) in groups.items():
        rows += [(name, 1, 1)] * tp + [(name, 1, 0)] * fn
        rows += [(name, 0, 1)] * fp + [(name, 0, 0)] * tn
    return pd.DataFrame(rows, columns=columns)


def people(n=400, seed=0, groups=("f", "m"), clients=20):
    """Predictions that are right four times in five, whatever the group and the client."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {"client": rng.integers(0, clients, n), "sex": rng.choice(groups, n), "y": y}
    return pd.DataFrame(columns | {"y_hat": np.where(rng.random(n) < 0.8, y, 1 - y)})


def clients(values, **columns):
    """A table of clients with these accuracies."""
    names = [f"c{place}" for place in range(len(values))]
    return pd.DataFrame({"client": names, "accuracy": values}).assign(**columns)


def golden_tables():
    """The twelve tables of tests/goldens/audits.json, and how each is audited."""
    rng = np.random.default_rng(5)
    tables = {
        "even": _predictions(2000, 30, 2, 0.0, 1),
        "gap": _predictions(2000, 30, 2, 0.2, 2),
        "five": _predictions(5000, 60, 5, 0.1, 3),
        "small": _predictions(300, 8, 3, 0.1, 4),
        "two_columns": _predictions(4000, 40, 3, 0.1, 5, second=True),
        "unknown": _predictions(1000, 20, 3, 0.1, 6),
        "scores": _predictions(1500, 25, 2, 0.1, 7),
        "classes": _predictions(1500, 25, 3, 0.1, 8),
        "no_clients": _predictions(800, 400, 2, 0.3, 9).drop(columns="client"),
    }
    tables["unknown"].loc[::17, "group"] = None
    scores, classes = tables["scores"], tables["classes"]
    scores["y_pred"] = np.clip(scores["y_pred"] * 0.6 + rng.random(1500) * 0.4, 0, 1)
    classes["y_true"] = rng.choice(list("abc"), 1500)
    classes["y_pred"] = np.where(rng.random(1500) < 0.7, classes["y_true"], "a")
    names = [f"c{place}" for place in range(60)]
    groups = [f"G{place % 4}" for place in range(60)]
    accuracy = rng.normal(80, 5, 60).round(3)
    tables["of_clients"] = pd.DataFrame({"client": names, "group": groups, "accuracy": accuracy})
    accuracy = rng.beta(8, 2, 40).round(4)
    tables["no_groups"] = pd.DataFrame({"client": names[:40], "accuracy": accuracy})
    n, groups = rng.integers(5, 200, 50), [f"G{place % 3}" for place in range(50)]
    columns = {"client": names[:50], "group": groups, "n": n, "auroc": rng.beta(9, 2, 50).round(4)}
    tables["auroc"] = pd.DataFrame(columns)
    return tables


def _predictions(n, clients, groups, gap, seed, second=False):
    rng = np.random.default_rng(seed)
    group, client = rng.integers(0, groups, n), rng.integers(0, clients, n)
    y = (rng.random(n) < 0.3 + 0.1 * (group == 0)).astype(int)
    right = rng.random(n) < 0.8 - gap * (group == 0)
    frame = pd.DataFrame({"client": [f"c{code}" for code in client]})
    frame["group"] = [f"G{code}" for code in group]
    frame["y_true"], frame["y_pred"] = y, np.where(right, y, 1 - y)
    return frame.assign(age=rng.choice(["young", "old"], n)) if second else frame


def said(found):
    """All sentences of an audit."""
    return " ".join(found.sentences)


def figures(found):
    """The key figures of an audit, by title."""
    return {one.title: f"{one.value}. {one.text}" for one in found.figures}
