"""Files are written whole or not at all, and an error says what failed and what to do."""

import errno
import os

import pytest

from e2fl.errors import StorageError
from e2fl.files import replacing, write_text


def write_half(path, error):
    with replacing(path) as partial:
        partial.write_text("half")
        raise error


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "Read-only .* choose another place"),
        (errno.EIO, "check the disk"),
    ],
)
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, number, words):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(StorageError, match=words) as caught:
        write_half(path, OSError(number, os.strerror(number)))
    assert str(path) in str(caught.value)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_folder_in_the_way_is_named(tmp_path):
    (tmp_path / "summary.json" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"summary\.json: it is a folder"):
        write_text(tmp_path / "summary.json", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_an_interruption_leaves_no_partial_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "file.txt", KeyboardInterrupt())
    assert not list(tmp_path.iterdir())
