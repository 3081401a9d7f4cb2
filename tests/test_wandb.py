"""The Weights & Biases tracker: offline, in the folder of the run, with the history's figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

READ = """
import glob, json, sys
from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore

found = []
for path in glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb"):
    store = DataStore()
    store.open_for_scan(path)
    while (raw := store.scan_data()) is not None:
        record = pb.Record()
        record.ParseFromString(raw)
        if record.WhichOneof("record_type") == "history":
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            found.append(items)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_figures_of_a_run_are_stored_offline(toy, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_ERROR_REPORTING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    command = [
        sys.executable,
        "-m",
        "e2fl.cli",
        "run",
        "toy.toml",
        "--out",
        "run",
        "--track",
        "wandb",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600, capture_output=True)
    command = [sys.executable, "-c", READ, "run"]
    done = subprocess.run(
        command, cwd=tmp_path, check=True, timeout=600, capture_output=True, text=True
    )
    stored = {line["_step"]: line for line in json.loads(done.stdout)}
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    assert set(stored) == {line["round"] for line in history} == {2, 4, 6}
    for line in history:
        assert stored[line["round"]]["group/worst10"] == line["group"]["worst10"]
        assert stored[line["round"]]["groups/G1/accuracy"] == line["groups"]["G1"]["accuracy"]
