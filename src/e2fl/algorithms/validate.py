"""Checks at the border between the runtime and an algorithm.

A mistake in the user's own algorithm ends in an error that names the method and says what it must return. A reply that
no honest client would send is rejected by name, and the run continues.
"""

import inspect
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from e2fl.data.federated import ClientId, Population
from e2fl.errors import ConfigError
from e2fl.participation import Ask
from e2fl.wire import Message

Kind = TypeVar("Kind")


def expect(value: Any, kind: type[Kind], algorithm: object, method: str) -> Kind:
    """Return the value if it is of this type, or raise an error that names the method."""
    if not isinstance(value, kind):
        raise ConfigError(f"{type(algorithm).__name__}.{method} returned {_a(type(value))}; it must return {_a(kind)}")
    return value


def expect_messages(
    value: Any, clients: Sequence[ClientId], kind: type[Message], algorithm: object, method: str
) -> Mapping[ClientId, Message]:
    """Return the mapping if it holds one message of this type for each client asked, and nothing else."""
    name = f"{type(algorithm).__name__}.{method}"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} returned {_a(type(value))}; it must return a mapping from client to {kind.__name__}")
    missing = [client for client in clients if client not in value]
    if missing or len(value) != len(clients):
        extra = sorted(set(value) - set(clients))
        which = (
            f"nothing for client {missing[0]}" if missing else f"a message for client {extra[0]}, which is not asked"
        )
        raise ConfigError(f"{name} returned {which}; it must return a message for each client asked, and no other")
    for message in {id(message): message for message in value.values()}.values():
        if not isinstance(message, kind):
            raise ConfigError(f"{name} returned {_a(type(message))} for a client; it must be {_a(kind)}")
    return value


def require_known(ask: Ask, population: Population, algorithm: object) -> Ask:
    """Return the request if it asks clients of the population, each once, or raise an error that names the method."""
    name = f"{type(algorithm).__name__}.ask"
    seen: set[ClientId] = set()
    for client in ask.clients:
        if client not in population.declared:
            raise ConfigError(f"{name} asks client {client!r}, which is not in the population; use population.ids")
        if client in seen:
            raise ConfigError(f"{name} asks client {client} twice; each client takes part once in a round")
        seen.add(client)
    return ask


def require_signatures(algorithm: object, methods: Mapping[str, int]) -> None:
    """Raise an error if a method does not take the number of arguments it is called with."""
    for method, count in methods.items():
        function = getattr(algorithm, method)
        try:
            inspect.signature(function).bind(*range(count))
        except TypeError:
            given = ", ".join(inspect.signature(function).parameters)
            raise ConfigError(
                f"{type(algorithm).__name__}.{method}({given}) must take {count} arguments besides self; "
                "see Algorithm in e2fl/algorithms/base.py"
            ) from None


def implausible(
    norms: Mapping[ClientId, float | None], sent: Mapping[ClientId, Message], limit: float
) -> dict[ClientId, str]:
    """Return the clients whose weights have a norm above `limit` times the typical one, with the reason.

    norms: of the replies; None where a reply has no weights. The typical norm is the median of the replies and of what
    the clients were sent, so that one reply alone is compared with the model it started from. One reply with weights of
    1e20 would otherwise spoil every later model.
    """
    known = {client: norm for client, norm in norms.items() if norm is not None}
    if not limit or not known:
        return {}
    start = max((norm for norm in {id(m): m.norm() for m in sent.values()}.values() if norm is not None), default=0.0)
    typical = max(statistics.median_low([*known.values(), start]), start)
    return {
        client: f"its weights have norm {norm:.3g}, more than {limit:g} times the median of the round ({typical:.3g})"
        for client, norm in known.items()
        if norm > limit * typical
    }


def _a(kind: type) -> str:
    name = "nothing" if kind is type(None) else kind.__name__
    return name if name == "nothing" else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
