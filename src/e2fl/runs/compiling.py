"""Reporting of functions that Numba compiles rather than loads from its cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


class _Listener(event.Listener):
    def __init__(self, tell: Callable[[str], None]):
        self.tell = tell

    def on_start(self, event: Any) -> None:
        self.tell(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with the name of each function before it is compiled, while this context is open."""
    with event.install_listener("numba:compile", _Listener(tell)):
        yield
