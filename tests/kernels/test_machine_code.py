"""The cache of compiled code: found by contents, compiled by one process at a time."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import e2fl
from e2fl import kernels
from e2fl.kernels import machine_code

CODE = """
import numpy as np
from e2fl import kernels
kernels.invert(np.arange(3, dtype=np.int32))
print(len(kernels.invert.stats.cache_hits))
"""


def hits(root, cache):
    environment = os.environ | {"PYTHONPATH": str(root), "XDG_CACHE_HOME": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    shown = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return int(shown.stdout)


def test_a_copy_finds_the_code_that_another_copy_compiled(tmp_path):
    package = Path(e2fl.__file__).parent
    for name in ("one", "two"):
        for part in ("kernels", "errors.py", "version.py"):
            source, target = package / part, tmp_path / name / "e2fl" / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        (tmp_path / name / "e2fl" / "__init__.py").touch()
    assert hits(tmp_path / "one", tmp_path / "cache") == 0
    assert hits(tmp_path / "two", tmp_path / "cache") == 1


def test_the_folder_is_named_after_all_files_with_loops():
    package = Path(kernels.__file__).parent.parent
    with_loops = {path for path in package.rglob("*.py") if "\n@compiled\n" in path.read_text()}
    assert len(with_loops) > 7
    assert with_loops <= set(machine_code.sources())
    assert machine_code.FOLDER is not None
    assert machine_code.FOLDER.name == f"compiled-{machine_code.DIGEST}"


def _hold(folder, seconds):
    machine_code.FOLDER = folder
    with machine_code.one_process():
        (folder / "held").touch()
        time.sleep(seconds)


def test_one_process_compiles_while_another_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "FOLDER", tmp_path)
    other = multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path, 0.5))
    other.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    start = time.monotonic()
    with machine_code.one_process():
        waited = time.monotonic() - start
    other.join()
    assert waited > 0.2
