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


@pytest.mark.parametrize("kind", ["large", "nested", "bytes"])
def test_a_configuration_that_is_no_text_of_a_sane_size_is_refused(tmp_path, capsys, kind):
    from e2fl.cli import main

    path = tmp_path / "config.toml"
    nested = b"x = " + b"[" * 100_000
    path.write_bytes({"large": b"", "nested": nested, "bytes": b"\xff\x00"}[kind])
    if kind == "large":
        with path.open("wb") as file:
            file.truncate(20 * 2**30)
    assert main(["resume", str(tmp_path)]) == 2
    words = {"large": "256 MiB", "nested": "nested", "bytes": "UTF-8"}
    assert words[kind] in capsys.readouterr().err
