"""Errors in words: a user never reads a number of the operating system."""

import errno

import pytest

from e2fl.errors import reason_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EINVAL, "it is a symbolic link, not a file", "x"), "it is a symbolic link"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "it does not exist"),
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not text"),
        (ValueError("[Errno 2] Unable to open\n the file"), "Unable to open the file"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_reason_of_an_error_is_words_on_one_line(error, words):
    assert reason_of(error).startswith(words)
    assert "Errno" not in reason_of(error)
