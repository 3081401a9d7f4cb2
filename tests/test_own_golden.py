"""Tables give the same inputs, bit for bit, as the version that the digests below were taken from."""

import csv
import hashlib

import numpy as np
import pytest

from e2fl.data import from_arrays, from_table


def write(path, header, rows):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)
    return str(path)


def mixed(path):
    """Numbers of several scales, categories, true and false, groups of clients."""
    rng = np.random.default_rng(0)
    rows = [
        [
            f"H{row % 7}",
            "north" if row % 7 < 3 else "south",
            repr(float(rng.normal(50, 12))),
            int(rng.integers(0, 10**9)),
            ["red", "green", "blue"][int(rng.integers(3))],
            bool(rng.integers(2)),
            f"{rng.normal() * 1e-7:.3e}",
            ["no", "yes"][int(rng.integers(2))],
        ]
        for row in range(400)
    ]
    return write(path, ["who", "region", "age", "count", "colour", "flag", "tiny", "y"], rows)


def gaps(path):
    """Missing cells, spaces, a constant column, labels that are numbers, and a column of train and test."""
    rng = np.random.default_rng(1)
    rows = [
        [
            row % 4,
            " " if row % 11 == 0 else repr(float(rng.normal())),
            ["a ", "b", "?", "c"][int(rng.integers(4))],
            "7.5",
            [2, 10, 30][int(rng.integers(3))],
            "test" if row % 5 == 0 else "Train",
        ]
        for row in range(200)
    ]
    return write(path, ["who", "n", "c", "same", "y", "part"], rows)


def inside(path):
    """Groups inside clients, and one more client with a single row."""
    rng = np.random.default_rng(2)
    rows = [[f"c{row % 3}", "fm"[int(rng.integers(2))], repr(float(rng.exponential())), row % 2] for row in range(150)]
    return write(path, ["who", "sex", "n", "y"], [*rows, ["late", "f", "1.25", "1"]])


CASES = {
    "mixed": (mixed, {"client": "who", "label": "y", "group": "region"}),
    "mixed, seed 3": (mixed, {"client": "who", "label": "y", "group": "region", "seed": 3, "test_share": 0.3}),
    "dirichlet": (
        mixed,
        {"label": "y", "partition": {"name": "dirichlet", "num_partitions": 4, "partition_by": "label", "alpha": 0.5}},
    ),
    "positive": (mixed, {"client": "who", "label": "y", "positive": "no", "words": ("flag",), "pooled_test": True}),
    "drop": (gaps, {"client": "who", "label": "y", "split": "part", "missing": "drop"}),
    "fill": (gaps, {"client": "who", "label": "y", "split": "part", "missing": "fill"}),
    "inside": (inside, {"client": "who", "label": "y", "group": "sex", "unprivileged": "m"}),
}
DIGESTS = {
    "mixed": "135b4d77ed7a33aa",
    "mixed, seed 3": "9e2fb32915ae263e",
    "dirichlet": "7ff8d2385ed65432",
    "positive": "1d0718e6cbc962c0",
    "drop": "081bc8fb14e85fcf",
    "fill": "3cf173cde4479c14",
    "inside": "d343860f7b84a462",
    "arrays": "3505f79d932009be",
}


def digest(data):
    """Of every client's rows, the groups, the names and the encoding."""
    found = hashlib.sha256()
    for clients in ({number: data.client(number) for number in data.population.ids}, data.unseen()):
        for number, client in clients.items():
            found.update(f"{number} {data.client_name(number)} {client.group}".encode())
            for part in (client.train, client.test):
                found.update(part.inputs().numpy().tobytes())
                found.update(part.y.tobytes())
                found.update(b"-" if part.group is None else part.group.tobytes())
    found.update(repr((data.group_names, data.label_names, data.about().get("encoding"))).encode())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("case", CASES)
def test_tables_give_the_same_bits(tmp_path, case):
    make, settings = CASES[case]
    assert digest(from_table(path=make(tmp_path / "t.csv"), **settings)) == DIGESTS[case]


@pytest.mark.parametrize("case", CASES)
def test_parquet_gives_the_same_bits_as_the_csv_it_was_made_from(tmp_path, case):
    arrow_csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    make, settings = CASES[case]
    path = make(tmp_path / "t.csv")
    texts = arrow_csv.ConvertOptions(strings_can_be_null=False, column_types=dict.fromkeys(header(path), "string"))
    parquet.write_table(arrow_csv.read_csv(path, convert_options=texts), tmp_path / "t.parquet")
    assert digest(from_table(path=str(tmp_path / "t.parquet"), **settings)) == DIGESTS[case]


def header(path):
    with open(path, newline="") as file:
        return next(csv.reader(file))


def test_arrays_give_the_same_bits():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(90, 2, 5)), rng.integers(0, 3, 90)
    clients = {f"c{n}": (x[n::6], y[n::6], "ab"[n % 2]) for n in range(6)}
    assert digest(from_arrays(clients, seed=5)) == DIGESTS["arrays"]
