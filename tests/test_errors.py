"""Errors in words: a user never reads a number of the operating system."""

import errno

import pytest

from e2fl.errors import reason_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EINVAL, "it is a symbolic link, not a file", "x"), "it is a symbolic link"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "No such file"),
        (ValueError("[Errno 2] Unable to open\n the file"), "Unable to open the file"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_reason_of_an_error_is_words_on_one_line(error, words):
    assert reason_of(error).startswith(words)
    assert "Errno" not in reason_of(error)


def test_a_run_that_cannot_be_read_says_why_in_words(tmp_path, capsys):
    from e2fl.cli import main

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "config.toml").symlink_to(tmp_path / "elsewhere")
    assert main(["report", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("e2fl: ")
    assert "Errno" not in said
