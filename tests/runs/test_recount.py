"""A recount of elections: an honest run passes, and one flipped bit anywhere is caught."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.errors import RunError
from e2fl.runs import recount as independent
from e2fl.runs.chain import BALLOTS, CHAIN, MismatchError, check_receipts, receipt
from e2fl.runs.recount import recount
from e2fl.runs.runner import run_experiment

NESTED = "[" * 200_000 + "]" * 200_000

ALGORITHMS = {
    "steady": {"name": "e2fl_steady", "clients_per_round": 5},
    "incumbents": {"name": "e2fl", "clients_per_round": 3, "incumbents": 0.7},
    "present": {"name": "e2fl", "clients_per_round": 1, "absent": "present_only"},
    "frl": {"name": "frl", "clients_per_round": 3},
    "inferred": {
        "name": "e2fl",
        "clients_per_round": 3,
        "absent": "members",
        "grouping": {"name": "lowest_loss", "groups": 2, "clustered": 2},
    },
    "clustered": {"name": "e2fl", "grouping": {"name": "rank_clustering", "groups": 2}},
    "coarse": {
        "name": "e2fl",
        "ballot": {"name": "moves"},
        "downlink": {"name": "buckets", "buckets": 32},
    },
    "weights": {"name": "e2fl", "reading": "weights"},
}


@pytest.fixture
def run(toy, tmp_path):
    steady = replace(toy, algorithm=ALGORITHMS["steady"], keep_ballots=True)
    run_experiment(steady, out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("inside", [False, True])
def test_an_honest_run_passes(toy, tmp_path, algorithm, inside):
    if inside and "grouping" in algorithm:
        pytest.skip("groups that are found are of whole clients")
    data = toy.data | {"inside": inside}
    run_experiment(replace(toy, data=data, algorithm=algorithm, keep_ballots=True), out=tmp_path)
    assert "6 rounds" in recount(tmp_path)
    assert "2 rounds" in recount(tmp_path, 2)


def test_one_flipped_bit_anywhere_is_caught(run, capsys):
    rng = np.random.default_rng(0)
    files = [run / CHAIN, run / "model.safetensors", *sorted((run / BALLOTS).iterdir())]
    assert main(["recount", str(run)]) == 0
    for path in files:
        whole = path.read_bytes()
        first = whole.index(b"}}") + 30 if path.suffix == ".safetensors" else 0  # after its header
        for position in rng.integers(first, len(whole), 12):
            changed = bytearray(whole)
            changed[position] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            assert main(["recount", str(run)]) == 1, (path.name, position)
            assert "does not match" in capsys.readouterr().err
        path.write_bytes(whole)
    assert main(["recount", str(run)]) == 0


def rewritten(run, change):
    """Change the rounds of a chain, and link it again as a dishonest server would."""
    lines = [json.loads(text) for text in (run / CHAIN).read_text().splitlines()]
    change(lines)
    previous, texts = "", []
    for line in lines:
        line = {key: line[key] for key in line if key != "digest"} | {"previous": previous}
        previous = independent.hashlib.sha256(json.dumps(line).encode()).hexdigest()
        texts.append(json.dumps(line | {"digest": previous}) + "\n")
    (run / CHAIN).write_text("".join(texts))


def counted_twice(lines):
    lines[3]["ballots"][0][:2] = lines[3]["ballots"][1][:2]


def in_another_group(lines):
    lines[3]["ballots"][0][1] = 1 - lines[3]["ballots"][0][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (counted_twice, "round 3: the number of voters"),
        (in_another_group, "round 3: what group"),
        (lambda lines: lines[3]["voters"].pop(), "round 3: the voters"),
        (lambda lines: lines[3]["voters"].append(lines[3]["voters"][-1]), "round 3: the voters"),
        (lambda lines: lines[3].update(lines[2] | {"round": 3}), "round 3: "),
        (lambda lines: lines[3].update({"global": lines[2]["global"]}), "round 3: the global vote"),
        (lambda lines: lines[0].update({"smoothing": [4, 1]}), "the mask"),
        (lambda lines: lines.pop(3), "line 4"),
    ],
)
def test_a_chain_that_was_written_anew_is_caught_by_the_votes(run, change, message):
    rewritten(run, change)
    with pytest.raises(MismatchError, match=message):
        recount(run)


def test_a_ballot_must_be_a_ranking(run):
    path = run / BALLOTS / "round-0000003.bin"
    raw = np.frombuffer(path.read_bytes(), "<i4").copy()
    edges = len(raw) // len(json.loads((run / CHAIN).read_text().splitlines()[3])["ballots"])
    raw[0] = raw[1]  # a ballot with more weight than others
    path.write_bytes(raw.tobytes())
    known = independent.digest(raw[:edges])
    rewritten(run, lambda lines: lines[3]["ballots"][0].__setitem__(2, known))
    with pytest.raises(MismatchError, match="round 3: ranks of client"):
        recount(run)


def test_a_resumed_run_has_the_chain_of_one_that_never_stopped(run, toy, tmp_path):
    steady = replace(toy, algorithm=ALGORITHMS["steady"], keep_ballots=True)
    run_experiment(replace(steady, rounds=3), out=tmp_path / "resumed")
    # What a killed process wrote after its last checkpoint is dropped.
    with (tmp_path / "resumed" / CHAIN).open("a") as file:
        file.write('{"round": 4, "digest": "00"}\n{"rou')
    run_experiment(steady, out=tmp_path / "resumed", resume=True)
    assert (tmp_path / "resumed" / CHAIN).read_bytes() == (run / CHAIN).read_bytes()
    assert recount(tmp_path / "resumed") == recount(run)


def test_receipts_are_found_in_the_chain(run, tmp_path, capsys):
    lines = [json.loads(text) for text in (run / CHAIN).read_text().splitlines()]
    client, _, known = lines[2]["ballots"][1]
    edges = sum(lines[0]["layers"].values())
    ranks = np.fromfile(run / BALLOTS / "round-0000002.bin", "<i4")[edges : 2 * edges]
    own = receipt(2, client, ({"all": ranks},))
    assert json.loads(own) == {"round": 2, "client": client, "ballots": [known]}
    path = tmp_path / "receipts.jsonl"
    path.write_text(own)
    assert check_receipts(run, path) == 1
    path.write_text(own + receipt(3, client, ({"all": ranks},)))
    assert main(["recount", str(run), "--receipt", str(path)]) == 1
    assert f"round 3: the receipt of client {client}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "garbage", '{"round": "x"}', '{"round": 0, "client": 0}', NESTED], ids=len
)
def test_a_file_without_receipts_is_refused(run, tmp_path, text):
    (tmp_path / "receipts.jsonl").write_text(text)
    with pytest.raises(RunError, match="receipt"):
        check_receipts(run, tmp_path / "receipts.jsonl")
    for number in (-1, 0, 7):
        with pytest.raises(MismatchError, match="the length of the chain"):
            recount(run, number)


def test_a_chain_that_is_nested_deeply_ends_in_one_line(tmp_path, capsys):
    (tmp_path / CHAIN).write_text(f"{NESTED}\n{NESTED}\n")
    assert main(["recount", str(tmp_path)]) == 1
    assert "line 1" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["line", "end"])
def test_a_run_with_a_damaged_chain_is_not_resumed(toy, tmp_path, damage):
    steady = replace(toy, algorithm=ALGORITHMS["steady"])
    run_experiment(replace(steady, rounds=3), out=tmp_path)
    lines = (tmp_path / CHAIN).read_text().splitlines(keepends=True)
    lines = [lines[0], "garbage\n", *lines[2:]] if damage == "line" else lines[:2]
    (tmp_path / CHAIN).write_text("".join(lines))
    with pytest.raises(MismatchError, match=CHAIN):
        run_experiment(steady, out=tmp_path, resume=True)


def test_a_chain_with_other_rules_ends_in_one_line(run, monkeypatch, capsys):
    monkeypatch.setattr(independent, "read_chain", lambda folder: [{"vote": 5}, {"round": 1}])
    assert main(["recount", str(run)]) == 1
    assert "not one that a run writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "kept", "words"),
    [
        ({"name": "e2fl"}, False, "keep_ballots"),
        ({"name": "fedavg"}, False, "only runs of E2FL"),
        ({"name": "e2fl", "vote": {"name": "trimmed_borda"}}, True, "not recounted"),
    ],
)
def test_what_cannot_be_recounted_is_refused(toy, tmp_path, algorithm, kept, words):
    run_experiment(replace(toy, rounds=1, algorithm=algorithm, keep_ballots=kept), out=tmp_path)
    with pytest.raises(RunError, match=words):
        recount(tmp_path)


def test_the_independent_implementation_is_short_and_shares_no_vote():
    text = Path(independent.__file__).read_text()
    assert len(text.splitlines()) <= 100
    assert "kernels" not in text
    assert "e2fl.rankings" not in text
