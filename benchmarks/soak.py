"""`python -m benchmarks.soak --seconds 60`: endurance, not speed.

Three campaigns share the time. Runs of several algorithms are killed with SIGKILL at random moments
and resumed; runs are ended before a random write operation and resumed; messages are mutated and
read. Resumed runs must end with the files of an uninterrupted run, bit for bit, and mutated bytes
must be read or rejected with one of the package's own errors. The counts are printed; the exit code
is 1 if anything else happened.
"""

import argparse
import contextlib
import io
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.fuzz_ballots import campaign

FILES = ("history.jsonl", "clients.csv", "model.safetensors")
WRITES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
LIMIT = 300.0  # seconds for one small run, however busy the machine is
GROUPINGS: tuple[dict[str, Any], ...] = (
    {"grouping": {"name": "lowest_loss", "groups": 2}},
    {"grouping": {"name": "rank_clustering", "groups": 2}},
)
NAMES = ("e2fl", "frl", "fedavg", "ditto", "local", "qffl", "ifca", "afl", "term")
ALGORITHMS: tuple[dict[str, Any], ...] = (
    *({"name": name} for name in NAMES),
    *({"name": "e2fl"} | grouping for grouping in GROUPINGS),
)


def configuration(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Return a run of about a second that writes a checkpoint after every round."""
    return {
        "name": "soak",
        "rounds": 6,
        "evaluate_every": 2,
        "checkpoint_seconds": 0.0,
        "data": {"name": "e2fl.testing.toy:Toy"},
        "model": {"name": "mlp", "hidden": [24]},
        "learner": {"learning_rate": 0.05, "batch_size": 8, "epochs": 2},
        "algorithm": {"clients_per_round": 4} | algorithm,
    }


def work(config: str, out: str, resume: bool, crash_at: int, ready: Any) -> None:
    """Run or resume, in a child process.

    Ends before the write operation with the number `crash_at`, if it is not 0.
    """
    from e2fl.cli import main

    if crash_at:
        sys.addaudithook(_crash_before(crash_at, out))
    with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
        log = io.StringIO()
        with contextlib.redirect_stderr(log):
            ready.set()
            code = main(["run", config, "--out", out, *(["--resume"] if resume else [])])
    if code:
        print(log.getvalue(), file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)


def _crash_before(number: int, folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    count = itertools.count(1)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in WRITES or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not (
            isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            return
        if next(count) == number:
            os._exit(137)

    return hook


class Campaign:
    """Runs in child processes, forked from a process that has imported and compiled everything."""

    def __init__(self, folder: Path, rng: random.Random):
        self.folder, self.rng = folder, rng
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(
            ["benchmarks.soak", "e2fl.cli", "e2fl.results", "e2fl.testing.toy"]
        )
        self.references: dict[int, tuple[dict[str, bytes], float]] = {}

    def start(self, config: Path, out: Path, *, resume: bool, crash_at: int = 0) -> Any:
        """Return a child that is about to begin its run."""
        ready = self.context.Event()
        child = self.context.Process(
            target=work, args=(str(config), str(out), resume, crash_at, ready)
        )
        child.start()
        if not ready.wait(LIMIT):
            raise TimeoutError("a child process did not start")
        return child

    def finish(self, child: Any) -> int:
        child.join(LIMIT)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutError("a small run did not end")
        return int(child.exitcode)

    def reference(self, which: int) -> tuple[Path, dict[str, bytes], float]:
        """Return an algorithm's configuration, and files and seconds of an uninterrupted run."""
        config = self.folder / f"{which}.toml"
        if which not in self.references:
            config.write_text(tomli_w.dumps(configuration(ALGORITHMS[which])))
            out = self.folder / f"reference-{which}"
            began = time.monotonic()
            if self.finish(self.start(config, out, resume=False)):
                raise RuntimeError(f"the uninterrupted run of {ALGORITHMS[which]} failed")
            self.references[which] = (files_of(out), time.monotonic() - began)
        files, seconds = self.references[which]
        return config, files, seconds

    def interrupted(self, number: int, *, kill: bool) -> None:
        """Interrupt one run up to three times, resume it, and compare."""
        which = number % len(ALGORITHMS)
        config, expected, seconds = self.reference(which)
        out = self.folder / f"run-{number}-{'kill' if kill else 'crash'}"
        for _ in range(self.rng.randint(1, 3)):
            resume = (out / "config.toml").exists()
            child = self.start(
                config, out, resume=resume, crash_at=0 if kill else self.rng.randint(1, 150)
            )
            if kill:
                child.join(self.rng.uniform(0, seconds))
                child.kill()
            code = self.finish(child)
            if code == 0:
                break
            self.counts["killed" if kill else "crashed"] += 1
        # A run that was ended before it wrote its configuration leaves nothing to resume.
        resume = (out / "config.toml").exists()
        target = out if resume or not out.exists() else out.with_name(out.name + "-again")
        code = self.finish(self.start(config, target, resume=resume))
        self.counts["resumed"] += 1
        if code:
            self.failures.append(f"{ALGORITHMS[which]}: resuming {target} ended with {code}")
        elif files_of(target) != expected:
            self.failures.append(f"{ALGORITHMS[which]}: {target} differs from an unbroken run")

    def mutate(self, deadline: float) -> None:
        """Mutate and read messages in child processes, because a reader may crash its process."""
        while (left := deadline - time.monotonic()) > 0:
            seed = self.rng.randrange(2**32)
            child = self.context.Process(target=mutate, args=(str(self.folder), left, seed))
            child.start()
            child.join(left + LIMIT)
            if child.exitcode == 0:
                shown = json.loads((self.folder / "mutations.json").read_text())
                self.counts.update(shown["counts"])
                self.failures += shown["failures"]
                continue
            child.kill()
            path = (self.folder / "last-mutation").rename(self.folder / f"failure-{seed}")
            self.failures.append(f"{path}: reading it ended the process with {child.exitcode}")


def mutate(folder: str, seconds: float, seed: int) -> None:
    """Mutate and read every kind of message; write counts and failures to mutations.json."""
    home = Path(folder)
    outcome = campaign(10**9, seconds, seed, home / "last-mutation")
    counts = {"mutated messages refused": outcome.refused, "accepted": outcome.accepted}
    text = json.dumps({"counts": counts, "failures": outcome.failures})
    (home / "mutations.json").write_text(text)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a finished run that must not depend on interruptions."""
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def soak(seconds: float, seed: int, folder: Path) -> int:
    """Run all campaigns; returns the exit code."""
    runs = Campaign(folder, random.Random(seed))
    began = time.monotonic()
    runs.mutate(began + seconds / 3)
    for number in itertools.count():
        if time.monotonic() >= began + seconds:
            break
        runs.interrupted(number // 2, kill=number % 2 == 0)
    for what, count in sorted(runs.counts.items()):
        print(f"{count:8}  {what}")
    spent = time.monotonic() - began
    print(f"{len(runs.failures):8}  failures, in {spent:.0f} seconds (seed {seed})")
    for failure in runs.failures[:20]:
        print(failure, file=sys.stderr)
    return 1 if runs.failures else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to run")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--folder", help="keep the files here (default: a temporary folder)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return soak(options.seconds, options.seed, folder)


if __name__ == "__main__":
    # The child processes import this file by name, and must find the same functions.
    from benchmarks import soak as this

    sys.exit(this.main())
