"""Data sets whose clients are compared, bit for bit, with the digests in golden.json.

`python -m tests.data.golden FOLDER` prints the digests of all cases; FOLDER holds real data.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.data import TensorDataset

from e2fl.data import build, from_arrays, from_partitioner, from_table
from e2fl.data.partition import PARTITIONERS

GOLDEN = Path(__file__).with_name("golden.json")


def digest(data):
    """Return a digest of every client's rows, ids, groups and names."""
    total = hashlib.sha256()
    shared = {}
    clients = {client_id: data.client(client_id) for client_id in data.population.ids}
    for part in (clients, data.unseen()):
        for client_id, client in part.items():
            total.update(f"{client_id} {data.client_name(client_id)} {client.group}".encode())
            for examples in (client.train, client.test, client.validation):
                if examples is None:
                    continue
                if id(examples) not in shared:
                    rows = hashlib.sha256(examples.inputs().numpy().tobytes())
                    rows.update(examples.y.astype(np.int64).tobytes())
                    rows.update(b"-" if examples.group is None else examples.group.tobytes())
                    shared[id(examples)] = rows.digest()
                total.update(shared[id(examples)])
    names = (data.name, data.classes, tuple(data.shape), data.group_names, data.label_names)
    total.update(repr((*names, data.population.groups)).encode())
    return total.hexdigest()[:16]


def written(path, header, rows):
    pd.DataFrame(rows, columns=header).to_csv(path, index=False)
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
    return written(path, ["who", "region", "age", "count", "colour", "flag", "tiny", "y"], rows)


def gaps(path):
    """Missing cells, spaces, a constant column, integer labels, and a column of train and test."""
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
    return written(path, ["who", "n", "c", "same", "y", "part"], rows)


def inside(path):
    """Groups inside clients, and one more client with a single row."""
    rng = np.random.default_rng(2)
    rows = [
        [f"c{row % 3}", "fm"[int(rng.integers(2))], repr(float(rng.exponential())), row % 2]
        for row in range(150)
    ]
    return written(path, ["who", "sex", "n", "y"], [*rows, ["late", "f", "1.25", "1"]])


REGIONS = {"client": "who", "label": "y", "group": "region"}


def partition(name, **settings):
    return {"label": "y", "partition": {"name": name, **settings}}


TABLES = {
    "mixed": (mixed, REGIONS),
    "mixed, seed 3": (mixed, REGIONS | {"seed": 3, "test_share": 0.3}),
    "dirichlet": (mixed, partition("dirichlet", num_partitions=4, partition_by="label", alpha=0.5)),
    "iid": (mixed, partition("iid", num_partitions=6) | {"group": "region", "seed": 2}),
    "by group": (
        mixed,
        partition("by_group", num_partitions=5, partition_by="group") | {"group": "region"},
    ),
    "positive": (
        mixed,
        {"client": "who", "label": "y", "positive": "no", "words": ("flag",), "pooled_test": True},
    ),
    "features": (mixed, REGIONS | {"features": ("tiny", "colour", "who"), "min_samples": 58}),
    "drop": (gaps, {"client": "who", "label": "y", "split": "part", "missing": "drop"}),
    "fill": (gaps, {"client": "who", "label": "y", "split": "part", "missing": "fill"}),
    "inside": (inside, {"client": "who", "label": "y", "group": "sex", "unprivileged": "m"}),
}


def table(path, form):
    """Return the table in another form: what `from_table` takes."""
    source, target = Path(path), Path(path).with_suffix(ENDINGS.get(form, ""))
    texts = pd.read_csv(path, dtype=str, keep_default_na=False)
    typed = pd.read_csv(path, skipinitialspace=True, na_values=["?", " "])
    if form in ("texts", "frame"):
        return texts if form == "texts" else typed
    if form in ("parquet", "typed parquet"):
        (texts if form == "parquet" else typed).to_parquet(target)
    elif form == "xlsx":
        texts.to_excel(target, index=False)
    elif form == "utf-16":
        target.write_text(source.read_text().replace(",", "\t"), encoding="utf-16")
    else:
        target.write_text("\ufeff" + source.read_text().replace(",", ";"), encoding="utf-8")
    return {"path": str(target)}


ENDINGS = {
    "parquet": ".parquet",
    "typed parquet": ".parquet",
    "xlsx": ".xlsx",
    "utf-16": ".txt",
    "semicolons": ".tsv",
}
FORMS = ("texts", "frame", *ENDINGS)


def numbers(seed=3, shape=(2, 5)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(90, *shape)), rng.integers(0, 3, 90)


def arrays(folder):
    x, y = numbers()
    return from_arrays({f"c{n}": (x[n::6], y[n::6], "ab"[n % 2]) for n in range(6)}, seed=5)


def arrays_of_bytes(folder):
    x, y = np.random.default_rng(4).integers(0, 256, (90, 1, 4, 4)).astype(np.uint8), numbers()[1]
    test = {"a": (x[60:70], y[60:70]), "b": (x[:5], y[:5]), "late": (x[70:], y[70:])}
    return from_arrays({"a": (x[:30], y[:30]), "b": (x[30:60], y[30:60])}, test=test, seed=1)


def arrays_inside(folder):
    x, y = numbers(5, (4,))
    group = np.arange(90) % 3
    clients = {n: (x[n::4], y[n::4].astype(str), group[n::4]) for n in range(4)}
    return from_arrays(clients, pooled_test=True, unprivileged=2)


def torch_rows(folder):
    x, y = numbers(6, (1, 4, 4))
    parts = {
        n: TensorDataset(torch.from_numpy(x[n::3]).float(), torch.from_numpy(y[n::3]))
        for n in range(3)
    }
    return from_arrays(parts, seed=2)


def npz(folder):
    x, y = numbers(7, (6,))
    names = np.array([f"n{row % 5}" for row in range(90)])
    parts = np.where(np.arange(90) % 4 == 0, "test", "train")
    np.savez(
        folder / "d.npz",
        x=x.astype(np.float32),
        y=y,
        client=names,
        group=names == "n1",
        split=parts,
    )
    section = {"name": "npz", "path": str(folder / "d.npz"), "unprivileged": "True"}
    return build(section, seed=0)


def partitioned(name, **settings):
    def make(folder):
        x, y = numbers(8, (3,))
        partitioner = PARTITIONERS[name](**settings)
        return from_partitioner(x, y, partitioner, group=np.arange(90) % 2, seed=4)

    return make


def shipped(name, **settings):
    """A data set by its settings; `path` and `dir` are names inside the case's folder."""

    def make(folder):
        places = {
            key: str(folder / str(settings[key])) for key in ("path", "dir") if key in settings
        }
        return build({"name": name, **settings, **places}, seed=int(settings.get("seed", 0)))

    return make


def acs(folder, **settings):
    """A file as folktables has it: other columns, people outside the filter, missing codes."""
    rng = np.random.default_rng(11)
    names = "SERIALNO ST AGEP COW SCHL MAR OCCP POBP RELSHIPP WKHP SEX RAC1P PINCP"
    header = names.split()
    rows = [
        [
            f"2018{row}",
            [2, 37, 49][row % 3],
            int(rng.integers(10, 90)),
            rng.integers(1, 10) if row % 7 else "",
            int(rng.integers(1, 25)),
            int(rng.integers(1, 6)),
            f"{rng.integers(10, 9920):04}" if row % 5 else "",
            f"{rng.integers(1, 555):03}",
            int(rng.integers(20, 39)),
            f"{float(rng.integers(0, 99))}" if row % 9 else "",
            int(rng.integers(1, 3)),
            int(rng.integers(1, 10)),
            int(rng.integers(-100, 120_000)),
        ]
        for row in range(400)
    ]
    (folder / "acs").mkdir(exist_ok=True)
    written(folder / "acs" / "psam_p02.csv", header, rows)
    section = {"name": "acs_income", "path": str(folder / "acs"), "clients_per_state": 3}
    return build(section | settings, seed=2)


def bundled(**settings):
    return shipped("fair_mnist_rotate", source="bundled", **settings)


MADE = {
    "arrays": arrays,
    "arrays of bytes": arrays_of_bytes,
    "arrays inside": arrays_inside,
    "torch": torch_rows,
    "npz": npz,
    "partition iid": partitioned("iid", num_partitions=4, seed=1),
    "partition dirichlet": partitioned(
        "dirichlet", num_partitions=3, partition_by="label", alpha=0.5, min_partition_size=5
    ),
    "partition by group": partitioned("by_group", num_partitions=5, partition_by="group"),
    "acs of folktables": acs,
    "acs of folktables, race": lambda folder: acs(folder, group="race", states=["AK", "NC"]),
    "bundled": bundled(clients=20),
    "bundled, seed 1": bundled(clients=30, seed=1, angle_step=20.0, test_images=100),
    "bundled, sizes": bundled(group_sizes=[3, 1, 2], angle_step=45.0, seed=2),
    "bundled, validation": bundled(clients=12, validation_share=0.2),
    "bundled, samples": bundled(clients=100, samples_per_client=30),
}
REAL = {
    "adult": shipped("adult", dir=""),
    "adult, seed 1": shipped("adult", dir="", seed=1, alpha=1.0),
    "adult, label": shipped("adult", dir="", alpha=5.0, partition_by="label", clients=10),
    "adult, iid": shipped("adult", dir="", partition="iid", validation_share=0.1),
    "adult, by sex": shipped("adult", dir="", partition="by_group", sex_as_input=True),
    "adult, validation": shipped("adult", dir="", pooled_validation_share=0.2, seed=3),
    "acs": shipped("acs_income", dir=""),
    "acs, sex": shipped("acs_income", dir="", group="sex", states=["AK", "UT"], seed=1),
    "acs, race": shipped("acs_income", dir="", group="race", rows_per_client=100),
    "femnist": shipped("femnist", dir=""),
    "femnist, ink": shipped("femnist", dir="", scaling="ink", writers=50, seed=1),
    "mnist_writers": shipped("mnist_writers", dir=""),
    "mnist_writers, 100": shipped("mnist_writers", dir="", writers=100, seed=1, test_share=0.3),
    "fair_mnist_rotate": shipped("fair_mnist_rotate", dir="", clients=200, samples_per_client=50),
    "fair_mnist_rotate, seed 1": shipped(
        "fair_mnist_rotate", dir="", clients=20, seed=1, test_images=2000, samples_per_client=100
    ),
}


def table_digest(name, folder, form="csv"):
    make, settings = TABLES[name]
    path = make(folder / "t.csv")
    if form == "csv":
        return digest(from_table(path=path, **settings))
    given = table(path, form)
    frame = isinstance(given, pd.DataFrame)
    return digest(from_table(given, **settings) if frame else from_table(**given, **settings))


def main(real):
    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in TABLES:
            digests[f"table {name}"] = table_digest(name, Path(folder))
        for name, made in MADE.items():
            (Path(folder) / name).mkdir()
            digests[name] = digest(made(Path(folder) / name))
    digests |= {f"real {name}": digest(made(Path(real))) for name, made in REAL.items()}
    print(json.dumps(digests, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
