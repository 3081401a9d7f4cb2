"""Random operations of torch, drawn from the streams of a run."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def torch_seeded(random: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generator from this stream, and restore it at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(random.integers(2**63)))
        yield


_SWAPPING = threading.Lock()


class TorchStream(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """A context in which torch operations such as dropout draw from a stream of their own.

    It applies to the thread that enters it, so clients in parallel threads do not disturb each
    other.
    """

    def __init__(self, random: np.random.Generator, device: torch.device | str = "cpu"):
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn = False  # whether anything was drawn
        self._generator = torch.Generator(device).manual_seed(int(random.integers(2**63)))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.drawn = True
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **(kwargs | {"generator": self._generator}))
        return self._swapped(lambda: func(*args, **kwargs))

    def _swapped(self, draw: Callable[[], Any]) -> Any:
        """Let an operation without a generator use the global one, in the state of this stream."""
        own = self._generator
        shared = (
            torch.cuda.default_generators[own.device.index or 0]
            if own.device.type == "cuda"
            else None
        )
        shared = shared or torch.default_generator
        with _SWAPPING:
            before = shared.get_state()
            shared.set_state(own.get_state())
            try:
                return draw()
            finally:
                own.set_state(shared.get_state())
                shared.set_state(before)
