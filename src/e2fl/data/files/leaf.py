"""LEAF's JSON files, one client at a time: a file may be larger than memory, a client may not.

A file is one object: {"users": [...], "num_samples": [...], "user_data": {NAME: {"x": [...], "y": [...]}, ...}}.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from e2fl.errors import DataError

VALUE_LIMIT = 64 * 2**20  # characters that one value may have; the largest writer of FEMNIST needs about 8 million
DEPTH_LIMIT = 8
BLOCK = 2**20

_MARKS = re.compile(r'["\[\]{}\\]')
_NUMBER_END = re.compile(r"[,\]}\s:]")
_SPACE = " \t\r\n"


def read_clients(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and data of each client in a file, as they come."""
    with path.open(encoding="utf-8") as file:
        text = _Text(file, path)
        found = False
        try:
            for key in text.keys():  # noqa: SIM118  # not a dictionary: it walks through the file
                if key == "user_data":
                    found = True
                    for name in text.keys():  # noqa: SIM118
                        data = text.value()
                        if not isinstance(data, dict):
                            raise text.error(f"client '{name}' is not an object")
                        yield name, data
                else:
                    text.value()
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a number with thousands of digits
            raise text.error(str(error)) from error
        if not found:
            raise text.error("it has no user_data")


class _Text:
    """The text of a file, as far as it is needed."""

    def __init__(self, file: IO[str], path: Path):
        self.file, self.path = file, path
        self.text, self.at = "", 0
        self.passed = 0  # characters before `text`

    def error(self, reason: str) -> DataError:
        return DataError(f"{self.path} is not a LEAF file: {reason} (near character {self.passed + self.at})")

    def keys(self) -> Iterator[str]:
        """The keys of the object that comes next; whoever asks for one must take its value before the next."""
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.error("a key is not a text")
            self.take(":")
            yield key
            if self.peek() == "}":
                self.take("}")
                return
            self.take(",")

    def peek(self) -> str:
        """The next character that is not space."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                raise self.error("it ends too early")

    def take(self, character: str) -> None:
        if self.peek() != character:
            raise self.error(f"'{character}' expected, not '{self.peek()}'")
        self.at += 1

    def more(self) -> bool:
        """Read on, and forget what has been used; False at the end."""
        part = self.file.read(BLOCK)
        self.passed += self.at
        self.text, self.at = self.text[self.at :] + part, 0
        return bool(part)

    def value(self) -> Any:
        """The next value, whole."""
        first = self.peek()
        end = self._end_of_number() if first not in '"[{' else self._end_of_brackets()
        value = json.loads(self.text[self.at : end])
        self.at = end
        return value

    def _end_of_number(self) -> int:
        at = self.at
        while True:
            mark = _NUMBER_END.search(self.text, at)
            if mark is not None:
                return mark.start()
            at = self._read_on(at)

    def _end_of_brackets(self) -> int:
        """Where the text, list or object that begins here ends."""
        depth, quoted, at = 0, False, self.at
        while True:
            mark = _MARKS.search(self.text, at)
            if mark is None:
                at = self._read_on(at)
                continue
            character, at = mark.group(), mark.end()
            if character == "\\":
                at += 1  # whatever is escaped is no mark, even if it has not been read yet
            elif character == '"':
                quoted = not quoted
            elif not quoted:
                depth += 1 if character in "[{" else -1
            if depth > DEPTH_LIMIT:
                raise self.error("values are nested too deeply")
            if depth <= 0 and not quoted and character != "\\":
                return at

    def _read_on(self, at: int) -> int:
        """Where to search next, once there is more text."""
        passed = max(at, len(self.text)) - self.at
        if passed > VALUE_LIMIT:
            raise self.error(f"one value has more than {VALUE_LIMIT} characters")
        if not self.more():
            raise self.error("it ends inside a value")
        return self.at + passed
